"""Which files of a rules/ folder are in a rule's key."""

from __future__ import annotations

from mxt.loading.rule_closure import rule_closure

FILES = {
    "rules/a.py": b"import json\nfrom rules._x import f\ndef g():\n    from . import late\n",
    "rules/_x.py": b"import rules.sub.deep\n",
    "rules/late.py": b"",
    "rules/sub/__init__.py": b"from .. import other_rule_not_here\n",
    "rules/sub/deep.py": b"from .beside import z\n",
    "rules/sub/beside.py": b"",
    "rules/b.py": b"",
}


def test_a_rule_is_its_module_and_all_it_imports_from_its_folder() -> None:
    assert rule_closure("a", FILES) == [
        "rules/_x.py",
        "rules/a.py",
        "rules/late.py",
        "rules/sub/__init__.py",
        "rules/sub/beside.py",
        "rules/sub/deep.py",
    ]


def test_other_rules_are_not_in_it() -> None:
    assert rule_closure("b", FILES) == ["rules/b.py"]


def test_a_circle_of_imports_ends() -> None:
    files = {"rules/p.py": b"import rules.q", "rules/q.py": b"import rules.p"}
    assert rule_closure("p", files) == ["rules/p.py", "rules/q.py"]
