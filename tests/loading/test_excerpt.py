"""The caret stands below what it points to, also in long, odd and missing lines."""

from __future__ import annotations

from mxt.loading.excerpt import WIDTH, excerpt


def test_the_caret() -> None:
    assert excerpt("a\nbcd\n", 2, 2) == "    bcd\n     ^"
    assert excerpt("\tx", 1, 2) == "     x\n     ^"
    assert excerpt("a\r\n", 1, 9) == "    a\n     ^"


def test_past_the_end() -> None:
    assert excerpt("a", 3, 1) == ""
    assert excerpt("a", 0, 1) == ""


def test_a_long_line_is_cut_around_the_column() -> None:
    line, caret = excerpt("x" * 5000 + "!" + "y" * 5000, 1, 5001).split("\n")
    assert len(line) <= WIDTH + 10
    assert line[len(caret) - 1] == "!"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in excerpt("a\x1b[31mb", 1, 1)
