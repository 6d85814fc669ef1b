"""Brackets are counted where they are code, not in strings and comments."""

from __future__ import annotations

import pytest

from mxt.loading.nesting import nesting


@pytest.mark.parametrize(
    ("source", "depth", "place", "unclosed"),
    [
        ("", 0, (1, 1), ""),
        ("x = [1]\ny = f([{}])", 3, (2, 6), ""),
        ("x = '[[[' # [[[\ny = [1]", 1, (2, 5), ""),
        ('x = """[\n[\n"""\ny = ("\\"(")', 1, (4, 5), ""),
        ("x = [(1)\n", 2, (1, 5), "["),
        ("x = [\n  (1\n", 2, (1, 5), "("),
    ],
)
def test_nesting(source: str, depth: int, place: tuple[int, int], unclosed: str) -> None:
    found = nesting(source)
    assert (found.depth, (found.line, found.column), found.unclosed) == (depth, place, unclosed)
