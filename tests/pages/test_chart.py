"""Charts: their numbers, their axes, and that no number or text can break the drawing."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from mxt.pages import chart
from mxt.pages.chart import number, span, ticks
from mxt.panels import Bar, Bars, Lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345, "12,345"),
        (0.65833333, "0.6583"),
        (1.0, "1"),
        (13.5, "13.5"),
        (1234.56, "1,235"),
        (0.00029999, "0.0003"),
        (1.2e-05, "1.2e-05"),
        (-0.5, "-0.5"),
        (1e20, "1.000e+20"),
        (math.inf, "∞"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_ticks_are_round_and_cover_what_is_asked() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert ticks(7960, 8680) == [8000, 8200, 8400, 8600]
    assert ticks(7960, 8680, outside=True) == [7800, 8000, 8200, 8400, 8600, 8800]


@pytest.mark.parametrize("low", [0.0, 1e-290, -1e289, 1e289, 5.0, 1e15])
@pytest.mark.parametrize("width", [0.0, 1e-290, 1e-9, 1.0, 1e289])
def test_an_axis_is_never_empty_nor_endless(low: float, width: float) -> None:
    first, last = span([low, low + width])
    assert first < last
    found = ticks(first, last, outside=True)
    assert 1 <= len(found) <= 25
    assert all(map(math.isfinite, found))
    panel = Lines("x", x=(low, low + width), series={"y": (low, low + width)}, points=2)
    assert "nan" not in chart.curves(panel).replace("nano", "")
    ET.fromstring(chart.curves(panel))


def test_neighbouring_ticks_have_different_words() -> None:
    for low, high in ((1000, 1000.001), (0, 1e-7), (123456, 123457), (0, 3e9), (-0.02, 0.01)):
        found = ticks(low, high)
        words = [chart._tick(value, found) for value in found]
        assert len(set(words)) == len(words), words


def test_curves_say_in_words_what_they_show() -> None:
    panel = Lines("Loss", x_label="step", x=(1, 2, 3), series={"loss": (6.0, None, 0.5)}, points=3)
    root = ET.fromstring(chart.curves(panel))
    assert root.find("svg").attrib["aria-label"] == (  # type: ignore[union-attr]
        "Loss by step: loss from 6 to 0.5, lowest 0.5 at 3, highest 6 at 1"
    )
    # a gap is no line: two dots stand alone
    assert len(root.findall(".//polyline")) == 2


def test_several_curves_have_a_legend_and_differ_without_colour() -> None:
    panel = Lines("x", x=(0, 1), series={"a": (0, 1), "b": (1, 0)}, points=2)
    root = ET.fromstring(chart.curves(panel))
    assert [item.text or item[0].tail for item in root.findall(".//li")] == ["a", "b"]
    lines = root.findall(".//polyline")
    assert [line.attrib.get("stroke-dasharray") for line in lines] == [None, "7 4"]


def test_bars_reach_from_zero_and_carry_their_whiskers() -> None:
    panel = Bars("Cost", unit="ms", bars=(Bar("a", 50, 10, marked=True), Bar("b", -50)))
    root = ET.fromstring(chart.bars(panel))
    boxes = [(b.attrib["class"], b.attrib["x"], b.attrib["width"]) for b in root.findall(".//rect")]
    assert boxes == [("bar marked", "45.45%", "45.46%"), ("bar", "0.00%", "45.45%")]
    whiskers = root.findall(".//line[@class='whisker']")
    assert (whiskers[0].attrib["x1"], whiskers[0].attrib["x2"]) == ("81.82%", "100.00%")
    assert root.find("svg").attrib["aria-label"] == "Cost in ms: a 50 ± 10 (marked); b -50"  # type: ignore[union-attr]


def test_texts_are_escaped() -> None:
    evil = '"><script>alert(1)</script>&'
    lines = Lines(evil, x_label=evil, y_label=evil, x=(0, 1), series={evil: (0, 1), "b": (0, 1)}, points=2)
    bars = Bars(evil, unit=evil, bars=(Bar(evil, 1, text=evil, group=evil),))
    for drawn in (chart.curves(lines), chart.bars(bars)):
        assert "<script" not in drawn
        ET.fromstring(drawn)  # every quote and bracket in its place


def test_no_error_is_drawn_where_all_were_alike() -> None:
    assert chart.value_with_error(Bar("tuned", 1.0, error=0.0)) == "1"
    assert chart.value_with_error(Bar("base", 0.5, error=0.03)) == "0.5 ± 0.03"
