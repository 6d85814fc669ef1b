"""The starters: which there are, and the files of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mxt.errors import UsageError, did_you_mean
from rules.starters._own_data import own_data

CHECKOUT = Path(__file__).resolve().parents[2]
RECIPES = CHECKOUT / "recipes"
DEFAULT = "tiny_sft_lora"
GPU_HINTS = """
# A GPU is one more platform, and a toolchain with the build of torch for it; recipes name it in
# hardware.platform, and finetune() takes the toolchain. `mxt doctor` says what this machine has.
#
#   platform(name = "mi300x", arch = "gfx942", compute_units = 304, gpus = 1)
#   platform(name = "h100", arch = "sm_90", compute_units = 132, gpus = 1)
#   toolchain(name = "rocm_py311", lock = "toolchains/rocm-py311.lock.json")  # mxt toolchain lock --write
"""

Content = str | Path


def starters() -> dict[str, str]:
    """Name -> one line; the default comes first, then what any machine can run."""
    found = {path.stem: _description(path) for path in sorted(RECIPES.glob("*.yaml"))}
    return {name: found[name] for name in sorted(found, key=lambda n: (n != DEFAULT, n[:5] != "tiny_", n))}


class Starter(NamedTuple):
    """files: path in the new workspace -> text, or a file to copy. build, test: what these verbs come to
    for its target, in words; test is "" where there is none.
    """

    files: dict[str, Content]
    build: str
    test: str


def starter(chosen: str, name: str, title: str, data: Sequence[Path] = ()) -> Starter:
    """name: of the target. title: of the README. data: the user's rows.

    Raises UsageError as starter_files does.
    """
    files = starter_files(chosen, name, data)
    tested = "\neval:\n" in str(files[f"recipes/{name}.yaml"])
    readme = Path(__file__).with_name("README.md").read_text("utf-8")
    readme = readme.replace("@NAME@", name).replace("@TITLE@", title)
    files["README.md"] = readme if tested else re.sub(r"(?m)^\./mxtw test .*\n", "", readme)
    build = "train, evaluate, sign the receipt" if tested else "train, sign the receipt"
    return Starter(files, build, "is the tuned model better than its base?" if tested else "")


def starter_files(starter: str, name: str, data: Sequence[Path] = ()) -> dict[str, Content]:
    """Path in the new workspace -> text, or a file to copy. name: of the target. data: the user's rows.

    Raises UsageError for an unknown starter, and for rows that no recipe could train on.
    """
    known = starters()
    if not starter:
        starter = DEFAULT
    if starter not in known:
        raise UsageError(
            f"there is no recipe '{starter}' to start from{did_you_mean(starter, known)}",
            hint="'mxt init --list' shows them",
        )
    recipe = (RECIPES / f"{starter}.yaml").read_text("utf-8")
    files: dict[str, Content] = {
        "MXTBUILD": _root_package(name),
        "recipes/MXTBUILD": _package(name),
    }
    for path in _lock_files():
        files[path] = CHECKOUT / path
    if data:
        recipe, more = own_data(recipe, data)
        files.update(more)
    files[f"recipes/{name}.yaml"] = recipe
    for path in _named_files(recipe):
        files.setdefault(f"recipes/{path}", RECIPES / path)
    return files


def _root_package(name: str) -> str:
    """This checkout's own: the one place that says what a stage runs in."""
    text = (CHECKOUT / "MXTBUILD").read_text("utf-8")
    mine = 'workspace(name = "mxt")\n'
    assert mine in text, "the checkout's MXTBUILD does not begin with workspace()"
    renamed = text.replace(mine, f'workspace(name = "{name}")\n', 1)
    return renamed.rstrip("\n") + "\n" + GPU_HINTS


def _package(name: str) -> str:
    return (
        "# Each recipe is one YAML file; finetune() makes a target of each of its stages.\n"
        'load("@mxt//rules:finetune.mxt", "finetune")\n\n'
        f'finetune(\n    name = "{name}",\n    recipe = "{name}.yaml",\n)\n'
    )


def _lock_files() -> list[str]:
    """The locks that the root package names."""
    text = (CHECKOUT / "MXTBUILD").read_text("utf-8")
    return re.findall(r'^\s*lock = "([^"]+)",$', text, re.MULTILINE)


def _named_files(recipe: str) -> list[str]:
    """Files beside this checkout's recipes that a recipe names, anywhere in it, by path or glob."""
    import yaml

    found: dict[str, None] = {}
    for text in _texts(yaml.safe_load(recipe)):
        if "/" not in text or text.startswith("/") or ".." in text or "\n" in text:
            continue
        for path in sorted(RECIPES.glob(text)):
            if path.is_file():
                found[path.relative_to(RECIPES).as_posix()] = None
    return list(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _description(path: Path) -> str:
    import yaml

    recipe = yaml.safe_load(path.read_text("utf-8"))
    return str(recipe.get("meta", {}).get("description", ""))
