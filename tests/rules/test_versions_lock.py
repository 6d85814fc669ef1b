"""Each built-in rule's VERSION stands for the source that rules/versions.lock names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "confirm_versions", REPOSITORY / "tools/confirm_versions.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_rule_is_confirmed(tool: ModuleType) -> None:
    folder = REPOSITORY / "rules"
    rules = tool.read_rules(folder)
    assert {"train", "shards", "evaluate"} <= rules.keys()
    left = tool.findings(rules, tool.read_lock(folder / "versions.lock"))
    assert not left, "run: python tools/confirm_versions.py\n" + "\n".join(
        f"rules/{name}.py {text}" for name, text in left.items()
    )


RULE = '''"""A rule."""
VERSION = 1
def actions(target):  # analysis
    "Says nothing."
def work(run):
    from rules import _deep
    from rules._near import helper
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "__init__": "",
        "x": RULE,
        "_near": "def helper(): return 1\n",
        "_deep": "import rules._deeper\n",
        "_deeper": "X = 1\n",
        "_other": "X = 1\n",
        "schema": "X = 1\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_the_digest_covers_what_the_rule_imports_and_ignores_layout(tool: ModuleType, folder: Path) -> None:
    (rule,) = tool.read_rules(folder).values()
    assert rule.files == ("_deep.py", "_deeper.py", "_near.py", "x.py")
    for name, old, new in [
        ("x", "# analysis", "# pure"),
        ("x", "A rule.", "One rule."),
        ("x", "Says nothing.", "Silent."),
        ("_near", "return 1", "return  1  # one"),
        ("_other", "1", "2"),
        ("schema", "1", "2"),
    ]:
        path = folder / f"{name}.py"
        path.write_text(path.read_text().replace(old, new))
        assert tool.read_rules(folder)["x"].digest == rule.digest, f"{name}: {new}"
    for name in ("x", "_near", "_deep", "_deeper"):
        path = folder / f"{name}.py"
        before = path.read_text()
        path.write_text(before + "Y = 2\n")
        assert tool.read_rules(folder)["x"].digest != rule.digest, name
        path.write_text(before)


def test_what_is_to_be_done_is_said(tool: ModuleType, folder: Path) -> None:
    rules = tool.read_rules(folder)
    digest = rules["x"].digest
    for lock, expected in [
        ({"x": (1, digest)}, None),
        ({}, "is new"),
        ({"x": (1, "0" * 64)}, "raise VERSION if any output could differ, else --same-behaviour x"),
        ({"x": (2, digest)}, "2 was used before"),
        ({"x": (0, digest)}, "was raised to VERSION 1"),
    ]:
        found = tool.findings(rules, lock)
        assert expected in found["x"] if expected else found == {}
    assert "is gone" in tool.findings({}, {"x": (1, digest)})["x"]
