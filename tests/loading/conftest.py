"""Workspaces in a temporary folder, and the one way these tests load a package from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mxt.loading.loader import Loader, Package
from mxt.loading.rule_modules import find_rules
from mxt.loading.workspace import Workspace, find_workspace

CORE = ("genrule", "filegroup")


class Space:
    """A workspace to write files into; `load` evaluates one of its packages afresh."""

    def __init__(self, root: Path, environ: dict[str, str]) -> None:
        self.root = root
        self.environ = environ
        self.printed: list[str] = []
        self.loaders: list[Loader] = []

    def write(self, path: str, content: str | bytes = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    @property
    def workspace(self) -> Workspace:
        return find_workspace(self.root, environ={})

    def loader(self) -> Loader:
        workspace = self.workspace
        loader = Loader(
            workspace, find_rules(workspace, CORE), environ=self.environ, tell=self.printed.append
        )
        self.loaders.append(loader)
        return loader

    def load(self, package: str = "") -> Package:
        return self.loader().package(package)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "MXTBUILD").touch()
    made = Space(root, {"XDG_CONFIG_HOME": str(tmp_path / "config"), "MXT_LOAD_TIMEOUT": "5"})
    yield made
    for loader in made.loaders:
        loader.close()


@pytest.fixture
def build(space: Space) -> Callable[[str], Package]:
    """Evaluate the root package with this content."""

    def run(content: str) -> Package:
        space.write("MXTBUILD", content)
        return space.load()

    return run
