"""A build with nothing to do: one line, quickly; and every kind of change is noticed all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, Workspace, digits_away

SHORT = "up to date: 3 actions in T\n"


def quiet(ws: Workspace) -> Workspace:
    """A workspace whose last build saw everything long after it had changed."""
    ws.write(
        "MXTBUILD", 'genrule(name = "a", srcs = glob(["src/*"]), outs = ["a.txt"], cmd = "cat $(SRCS) > $@")'
    )
    ws.write(
        "p/MXTBUILD",
        """
        load(":m.mxt", "copy")
        copy("b")
        genrule(name = "c", srcs = ["dir"], outs = ["o/"], cmd = "cp -r $</* $@/")
        """,
    )
    ws.write(
        "p/m.mxt",
        """
        def copy(name):
            native.genrule(name = name, srcs = ["//:a"], outs = [name + ".txt"], cmd = "cat $< > $@")
        """,
    )
    ws.write("src/one", "1\n")
    ws.write("p/dir/f", "f\n")
    ws.run("build", "//...")
    time.sleep(0.05)
    assert ws.run("build", "//...").code == 0
    return ws


def test_one_line(ws: Workspace) -> None:
    quiet(ws)
    result = ws.run("build", "//...")
    assert (result.code, digits_away(result.out), result.err) == (0, SHORT, "")


def append(path: str) -> Callable[[Path], object]:
    return lambda root: (root / path).write_text((root / path).read_text() + "\n")


def edit(path: str, text: str = "changed\n") -> Callable[[Path], object]:
    return lambda root: (root / path).write_text(text)


def replace_output(root: Path) -> None:
    file = root / "mxt-out/a/a.txt"
    real = Path(os.path.realpath(file))
    real.unlink()
    real.write_text("1\n")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a source": edit("src/one"),
    "a file in a source folder": edit("p/dir/f"),
    "a new file in a source folder": edit("p/dir/g"),
    "a new file under a glob": edit("src/two"),
    "a deleted file under a glob": lambda root: [edit("src/two")(root), (root / "src/one").unlink()],
    "a new package": lambda root: [(root / "q").mkdir(), edit("q/MXTBUILD", "")(root)],
    "a deleted package": lambda root: (root / "p/MXTBUILD").unlink(),
    "an MXTBUILD": append("MXTBUILD"),
    "a macro": append("p/m.mxt"),
    "a deleted link": lambda root: (root / "mxt-out/a").unlink(),
    "a link that leads elsewhere": lambda root: [
        (root / "mxt-out/a").unlink(),
        (root / "mxt-out/a").symlink_to("p/b"),
    ],
    "a deleted output": lambda root: Path(os.path.realpath(root / "mxt-out/a/a.txt")).unlink(),
    "a replaced output": replace_output,
    "a deleted store": lambda root: shutil.rmtree(root / "cache"),
    "an executable bit": lambda root: (root / "src/one").chmod(0o755),
    "rules of the workspace's own": lambda root: (root / "rules").mkdir(),
    "another MXTBUILD above the files of a glob": edit("src/MXTBUILD", ""),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("null")
    return quiet(Workspace(folder / "ws", folder / "home"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(template: Workspace, tmp_path: Path, change: str) -> None:
    ws = Workspace(tmp_path / "copy", template.home)
    ws.root.rmdir()
    subprocess.run(["cp", "-a", str(template.root), str(ws.root)], check=True)
    ws.run("build", "//...")
    time.sleep(0.03)
    assert digits_away(ws.run("build", "//...").out) == SHORT
    CHANGES[change](ws.root)
    assert digits_away(ws.run("build", "//...").out) != SHORT


def test_nothing_is_remembered_of_a_failed_build(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "exit 1")')
    for _ in range(2):
        assert "Genrule failed: exit status 1" in ws.run("build", ":a").err


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b'{"format":1}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_snapshot_is_none(template: Workspace, damage: bytes) -> None:
    snapshots = list((template.root / "cache/state/snapshots").iterdir())
    assert snapshots
    for file in snapshots:
        file.write_bytes(damage)
    result = template.run("build", "//...")
    assert (result.code, result.err) == (0, "")
    assert "up to date: 3 actions: 3 cached" in result.out
    assert digits_away(template.run("build", "//...").out) == SHORT


def test_other_labels_and_folders_have_their_own(template: Workspace) -> None:
    assert digits_away(template.run("build", "//:a").out) != SHORT
    assert digits_away(template.run("build", "//:a").out) == "up to date: 1 action in T\n"
    assert "no target or file '//p:a'" in template.run("build", ":a", cwd="p").err
    assert digits_away(template.run("build", ":b", cwd="p").out) != SHORT
    assert digits_away(template.run("build", ":b", cwd="p").out) == "up to date: 2 actions in T\n"


def test_another_mxt_looks_again(template: Workspace, tmp_path: Path) -> None:
    """An engine whose code changed trusts no snapshot."""
    for part in ("mxt", "rules"):
        shutil.copytree(REPOSITORY / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    assert digits_away(template.run("build", "//...").out) == SHORT
    env = {"PYTHONPATH": str(tmp_path)}
    assert digits_away(template.run("build", "//...", env=env).out) != SHORT
    assert digits_away(template.run("build", "//...", env=env).out) == SHORT
    file = tmp_path / "mxt/action/key.py"
    file.write_text(file.read_text() + "\n")
    assert digits_away(template.run("build", "//...", env=env).out) != SHORT
    assert digits_away(template.run("build", "//...").out) != SHORT


def test_events_and_verbose_output_come_whole(template: Workspace) -> None:
    assert template.build("//...").finished == {"//:a": "cached", "//p:b": "cached", "//p:c": "cached"}
    assert "cached //p:b" in template.run("build", "-v", "//...").err


def test_nothing_heavy_is_imported(template: Workspace) -> None:
    """The promise of a null build below 100 ms is kept by what it does not import."""
    template.run("build", "//...")
    code = (
        "import sys; from mxt.cli.main import main; status = main(['build', '//...']);"
        "heavy = {'pydantic', 'rich', 'blake3', 'cryptography', 'sqlite3', 'starlark', 'yaml', 'asyncio', 'torch'};"
        "print(status, sorted(heavy & sys.modules.keys()), len(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=template.root,
        env=template.env,
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1]
    assert last.startswith("0 [] "), last
    assert int(last.split()[-1]) < 140
