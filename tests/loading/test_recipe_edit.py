"""Changing values of a recipe in place: every other character stays, or it is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mxt.errors import LoadError
from mxt.loading.recipe_edit import RecipeEdit
from mxt.loading.recipe_yaml import parse_yaml


def changed(text: str, path: tuple[str, ...], value: str | tuple[str, ...], note: str = "n") -> str:
    edit = RecipeEdit(text.encode(), "r.yaml")
    edit.set(path, value, note)
    return edit.result().decode()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: old\n", "a: new # pinned: n\n"),
        ("a: old", "a: new # pinned: n"),
        ("a:   old  \nb: 1\n", "a:   new # pinned: n\nb: 1\n"),
        ("a: 'old' # mine\n", "a: 'new' # mine\n"),
        ('a: "old" # pinned: main on 2020-01-01\n', 'a: "new" # pinned: n\n'),
        ("a: old  # `mxt pin` writes the commit\n", "a: new # pinned: n\n"),
        ("a: old # ask Bob before `mxt pin`\n", "a: new # ask Bob before `mxt pin`\n"),
        ("a: old # from Ann on 2020-01-01\n", "a: new # from Ann on 2020-01-01\n"),
        ("{b: 1, a: old, c: [1, 2]}\n", "{b: 1, a: new, c: [1, 2]}\n"),
        ("{b: 1, a: old} # mine\n", "{b: 1, a: new} # mine\n"),
        ("a:\n  old\n", "a:\n  new # pinned: n\n"),
        ("b: 1\n", "b: 1\na: new # pinned: n\n"),
        ("b: 1 # one\nc: 2\n", "b: 1 # one\na: new # pinned: n\nc: 2\n"),
        ("b: [x]\nc: 2\n", "a: new # pinned: n\nb: [x]\nc: 2\n"),
        ("# top\nb:\n  c: 1\n", "# top\na: new # pinned: n\nb:\n  c: 1\n"),
        ("{b: 1}\n", "{b: 1, a: new} # pinned: n\n"),
        ("{b: [1], c: 2} # mine\n", "{b: [1], a: new, c: 2} # mine\n"),
        ("{}\n", "{a: new} # pinned: n\n"),
        ("{b: 1, a: old}\n", "{b: 1, a: new} # pinned: n\n"),
        ("{b: 1, a: old }  # pinned: main on 2020-01-01\n", "{b: 1, a: new } # pinned: n\n"),
    ],
)
def test_a_text(text: str, wanted: str) -> None:
    assert changed(text, ("a",), "new") == wanted


PIN = "# pinned: n"
LONG = ("x" * 60, "y" * 60)


@pytest.mark.parametrize(
    ("text", "value", "wanted"),
    [
        ("s:\n  a: [old]\n", ("x", "y z"), "s:\n  a: [x, y z] # pinned: n\n"),
        ("s:\n  a: [ old ] # mine\n", ("x",), "s:\n  a: [x] # mine\n"),
        ("s: {a: [old], b: 1}\n", LONG, f"s: {{a: [{LONG[0]}, {LONG[1]}], b: 1}}\n"),
        ("s:\n  a: [old]\n  b: 1\n", LONG, f"s:\n  a: {PIN}\n    - {LONG[0]}\n    - {LONG[1]}\n  b: 1\n"),
        ("s:\n  a: [old] # mine\n", LONG, f"s:\n  a: # mine\n    - {LONG[0]}\n    - {LONG[1]}\n"),
        ("s:\n  a: [\n    one,\n    two,\n  ]\n", ("x",), "s:\n  a: [x] # pinned: n\n"),
        ("s:\n  a:\n  - old\n  b: 1\n", ("x", "y"), "s:\n  a: # pinned: n\n  - x\n  - y\n  b: 1\n"),
        ("s:\n  a: # mine\n  - k # kept\n  - old\n", ("k", "x"), "s:\n  a: # mine\n  - k # kept\n  - x\n"),
        ("s:\n  a:\n  - k\n  - l\n", (*"xkylz",), f"s:\n  a: {PIN}\n  - x\n  - k\n  - y\n  - l\n  - z\n"),
        ("s:\n  a:\n    - k\n    - old\n    - l\n", ("k", "l"), "s:\n  a: # pinned: n\n    - k\n    - l\n"),
        ("s:\n  a:\n    - k\n    - old", ("k",), "s:\n  a: # pinned: n\n    - k\n"),
    ],
)  # fmt: skip
def test_a_list(text: str, value: tuple[str, ...], wanted: str) -> None:
    assert changed(text, ("s", "a"), value) == wanted


@pytest.mark.parametrize(
    "value", ["1e5", "0123", "true", "null", "~", "a: b", "a #b", "- x", "", "é", "it's", "\t"]
)
def test_a_text_that_yaml_would_take_for_something_else_is_quoted(value: str) -> None:
    for text in ("a: old\n", "{a: old}\n", "{b: 1}\n", "a: 'old'\n", 'a: "old"\n'):
        assert parse_yaml(changed(text, ("a",), value, "").encode(), "r").value["a"] == value


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a: |\n  old\n", ("a",), "new"),
        ("a: [old]\n", ("a",), "new"),
        ("a: old\n", ("a",), ("x",)),
        ("b: 1\n", ("a",), ("x",)),
        ("a: [\n  old, # why\n]\n", ("a",), ("x",)),
        ("a:\n  - k\n  - l\n", ("a",), ("l", "k")),
        ("a:\n  - k\n  - old # why\n", ("a",), ("k",)),
    ],
)
def test_what_cannot_be_changed_alone_is_refused_with_what_to_write(
    text: str, path: tuple[str, ...], value: Any
) -> None:
    with pytest.raises(LoadError, match="'a' is written in a way that cannot be changed in place") as caught:
        changed(text, path, value)
    shown = value if isinstance(value, str) else f"[{', '.join(value)}]"
    assert caught.value.hint == f"write it by hand: {shown}"


def test_notes_are_read_where_they_are_written() -> None:
    edit = RecipeEdit(
        b"a: x # pinned: main on 2026-01-01\nb: # pinned: from *\n  - x # no\nc: [x] #  y \nd: '#x'\n",
        "r.yaml",
    )
    assert [edit.note((k,)) for k in "abcdz"] == ["main on 2026-01-01", "from *", "", "", ""]


def test_many_changes_at_once_leave_the_rest(tmp_path: object) -> None:
    """Recipes written in every odd way, some of their values changed; all else stays, comments too."""
    dice = random.Random(11)
    for _ in range(150):
        lines, wanted, values = [], [], {}
        for number in range(dice.randrange(1, 12)):
            key = f"k{number}"
            gap, quote = " " * dice.randrange(1, 4), dice.choice(["", "'", '"'])
            behind = dice.choice(["", " # mine", "   # main, perhaps", "  "])
            before = dice.choice([[], ["# a comment"], [""]])
            new = dice.random() < 0.5
            lines += [*before, f"{key}:{gap}{quote}old{number}{quote}{behind}"]
            if new:
                values[key] = f"new{number}"
                wanted += [
                    *before,
                    f"{key}:{gap}{quote}new{number}{quote}{behind if behind.strip() else ' # pinned: n'}",
                ]
            else:
                wanted += [*before, lines[-1]]
        end = dice.choice(["\n", "\r\n"])
        edit = RecipeEdit(end.join(lines).encode(), "r.yaml")
        for key in dice.sample(sorted(values), len(values)):
            edit.set((key,), values[key], "n")
        assert edit.result().decode() == end.join(wanted)
