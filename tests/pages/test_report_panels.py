"""Panels as HTML: what becomes one table, what stays apart, and that texts stay texts."""

from __future__ import annotations

import re

from mxt.pages.panels import draw, merge
from mxt.panels import MAX_ROWS, Bar, Bars, Facts, Lines, Panel, Table, Verdict


def table(*rows: tuple[object, ...], title: str = "Left out", add_up: bool = False) -> Table:
    return Table(title, section="Data", columns=("why", "rows"), rows=rows, add_up=add_up)  # type: ignore[arg-type]


def test_what_adds_up_is_one_table_over_all_stages() -> None:
    found = merge(
        [
            ("read", table(("burnt", 2), ("lost", 1), add_up=True)),
            ("read", table(("lost", 4), add_up=True)),
            ("pack", table(("burnt", 0.5), ("late", None), add_up=True)),
        ]
    )
    assert found == [(("read", "pack"), table(("burnt", 2.5), ("lost", 5), ("late", None), add_up=True))]


def test_tables_of_the_parts_of_a_stage_stand_below_each_other_those_of_two_stages_apart() -> None:
    found = merge(
        [("a", table(("x", 1))), ("b", table(("x", 2))), ("a", table(("x", 3))), ("a", table(title="other"))]
    )
    assert found == [
        (("a",), table(("x", 1), ("x", 3))),
        (("b",), table(("x", 2))),
        (("a",), table(title="other")),
    ]


def test_rows_beyond_the_limit_are_counted() -> None:
    ((_, merged),) = merge([("a", table(*[(f"{part}-{i}", 1) for i in range(150)])) for part in range(3)])
    assert isinstance(merged, Table)
    assert (len(merged.rows), merged.left_out) == (MAX_ROWS, 450 - MAX_ROWS)
    assert "250 more rows are left out." in draw(merged)


def test_numbers_are_set_right_and_a_column_of_words_and_numbers_is_not() -> None:
    cells = re.findall(r"<td class=\"(\w+)\">([^<]*)</td>", draw(table(("a", 1234.6), ("b", None))))
    assert cells == [("text", "a"), ("number", "1,235"), ("text", "b"), ("number", "")]
    cells = re.findall(r"<td class=\"(\w+)\">([^<]*)</td>", draw(table(("a", 1), ("b", "none"))))
    assert [kind for kind, _ in cells] == ["text"] * 4


def test_a_verdict_says_in_words_what_its_colour_says() -> None:
    assert draw(Verdict("Fine", good=True)) == (
        '<div class="verdict good"><span class="mark" role="img" aria-label="positive">✓</span>Fine</div>\n'
    )
    assert 'class="verdict bad"' in draw(Verdict("Ill", good=False))
    assert draw(Verdict("Open")) == '<div class="verdict open">Open</div>\n'


def test_a_thinned_curve_says_so_and_its_table_too() -> None:
    panel = Lines("Loss", x=(0, 1, 2), series={"loss": (3, 2, 1)}, points=70_000)
    drawn = draw(panel)
    assert "70,000 points; 3 are drawn, with the extremes." in drawn
    assert "Data as a table, 3 of 70,000 points" in drawn


def test_no_text_becomes_markup() -> None:
    evil = "</td><script>alert(1)</script>\"'&"
    panels: list[Panel] = [
        Verdict(evil, note=evil, good=True),
        Lines(evil, note=evil, x_label=evil, y_label=evil, x=(0, 1), series={evil: (0, 1)}, points=2),
        Bars(evil, note=evil, unit=evil, bars=(Bar(evil, 1, 1, evil, evil),)),
        Table(evil, note=evil, columns=(evil,), rows=((evil,),)),
        Facts(evil, note=evil, facts=((evil, evil),)),
    ]
    for panel in panels:
        drawn = draw(panel, of=evil)
        assert "<script" not in drawn
        assert "alert(1)" in drawn
        assert drawn.count('"') % 2 == 0
