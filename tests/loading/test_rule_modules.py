"""Rule files are found without running them, and run only as the bytes that were trusted."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path

import pytest

from mxt.errors import LoadError, UsageError
from mxt.loading.rule_modules import BUILTIN_RULES, Origin, find_rules, import_own, import_rule
from mxt.loading.trust import trust
from tests.loading.conftest import Space


def imported(space: Space, name: str) -> object:
    workspace = space.workspace
    return import_rule(find_rules(workspace)[name], workspace, space.environ)


def test_finding(space: Space) -> None:
    space.write("rules/mine.py", "raise SystemExit('ran')")
    space.write("rules/_private.py", "")
    space.write("rules/not-a-name.py", "")
    space.write("rules/class.py", "")
    rules = find_rules(space.workspace, ["genrule"])
    assert rules["mine"].origin is Origin.WORKSPACE
    assert rules["genrule"].origin is Origin.CORE
    assert rules["train"].origin is Origin.BUILTIN
    assert not {"_private", "not-a-name", "class", "recipe", "__init__"} & set(rules)


def test_the_repository_itself_has_no_rules_of_its_own() -> None:
    from mxt.loading.workspace import Workspace

    root = BUILTIN_RULES.parent
    assert {r.origin for r in find_rules(Workspace(root, root / "cache")).values()} == {Origin.BUILTIN}


def test_a_name_is_taken_once(space: Space) -> None:
    space.write("rules/train.py", (BUILTIN_RULES / "train.py").read_bytes())
    assert find_rules(space.workspace)["train"].origin is Origin.BUILTIN  # the same bytes
    space.write("rules/train.py", "x = 1\n")
    with pytest.raises(UsageError, match=r"rules/train.py takes the name of a rule"):
        find_rules(space.workspace)
    (space.root / "rules/train.py").unlink()
    space.write("rules/genrule.py", "")
    with pytest.raises(UsageError, match=r"rules/genrule.py takes the name of a rule"):
        find_rules(space.workspace, ["genrule"])


def test_untrusted_does_not_run(space: Space) -> None:
    space.write("rules/mine.py", f"open({str(space.root / 'ran')!r}, 'w')\n")
    with pytest.raises(UsageError, match=r"not trusted: rules/mine.py"):
        imported(space, "mine")
    assert not (space.root / "ran").exists()


def test_siblings(space: Space) -> None:
    space.write(
        "rules/mine.py",
        "from rules._one import ONE\nfrom ._two import TWO\n"
        "from .sub.deep import DEEP\nSUM = ONE + TWO + DEEP\n",
    )
    space.write("rules/_one.py", "ONE = 1\n")
    space.write("rules/_two.py", "from rules import _one\nTWO = _one.ONE + 1\n")
    space.write("rules/sub/deep.py", "DEEP = 10\n")
    trust(space.root, space.environ)
    module = imported(space, "mine")
    assert module.SUM == 13  # type: ignore[attr-defined]
    assert imported(space, "mine") is module
    assert not (space.root / "rules/__pycache__").exists()


def test_what_runs_is_the_source_not_a_planted_pyc(space: Space) -> None:
    source = space.write("rules/mine.py", "VALUE = 'evil'\n")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    space.write("rules/mine.py", "VALUE = 'good'\n")
    trust(space.root, space.environ)
    assert imported(space, "mine").VALUE == "good"  # type: ignore[attr-defined]


def test_a_change_takes_effect_after_trust(space: Space) -> None:
    for value in (1, 2):
        space.write("rules/mine.py", f"VALUE = {value}\n")
        trust(space.root, space.environ)
        assert value == imported(space, "mine").VALUE  # type: ignore[attr-defined]


def test_two_workspaces_do_not_mix(space: Space, tmp_path: Path) -> None:
    for number in (1, 2, 1):
        rules = tmp_path / str(number) / "rules"
        rules.mkdir(parents=True, exist_ok=True)
        (rules / "same.py").write_text(f"from ._help import VALUE\nMINE = {number}\n")
        (rules / "_help.py").write_text(f"VALUE = {number}\n")
        module = import_own(rules, "same")
        assert (number, number) == (module.VALUE, module.MINE)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("content", "where", "says"),
    [
        ("x = 1\ny = 1 // 0\n", "rules/mine.py:2", "ZeroDivisionError: integer division or modulo by zero"),
        ("import nonsense_xyz\n", "rules/mine.py:1", "ModuleNotFoundError: No module named 'nonsense_xyz'"),
        ("x = (\n", "rules/mine.py:1:5", "not valid Python: '(' was never closed"),
        ("raise SystemExit(3)\n", "rules/mine.py:1", "SystemExit: 3"),
        ("from ._bad import x\n", "rules/_bad.py:1", "NameError: name 'y' is not defined"),
        (
            "def f():\n    g()\ndef g():\n    raise ValueError('no')\nf()\n",
            "rules/mine.py:4",
            "ValueError: no",
        ),
    ],
)
def test_import_errors_name_the_line(space: Space, content: str, where: str, says: str) -> None:
    space.write("rules/mine.py", content)
    space.write("rules/_bad.py", "x = y\n")
    trust(space.root, space.environ)
    with pytest.raises(LoadError) as caught:
        imported(space, "mine")
    assert caught.value.where == where
    assert says in caught.value.message
    assert "Traceback" not in str(caught.value)
    with pytest.raises(LoadError):  # a half-imported module is not kept
        imported(space, "mine")


def test_builtin_rules_import_from_any_folder(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(space.root)
    module = imported(space, "train")
    assert module is sys.modules["rules.train"]
    assert os.path.dirname(str(module.__file__)) == str(BUILTIN_RULES)  # type: ignore[attr-defined]
