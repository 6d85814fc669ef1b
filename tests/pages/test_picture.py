"""The SVG of a graph: well-formed, escaped, every state told apart in words."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mxt.pages.picture import STATES, WORDS, PictureNode, describe, svg
from mxt.words import middle_out

SVG = "{http://www.w3.org/2000/svg}"


def node(name: str, state: str = "hit", **more: object) -> PictureNode:
    fields: dict[str, object] = {"title": name, "kind": "genrule", "wall_s": None, "size": None, **more}
    return PictureNode(name=name, state=state, **fields)  # type: ignore[arg-type]


def test_every_state_is_a_word_and_a_class() -> None:
    tree = ElementTree.fromstring(svg([node(s, s) for s in STATES], []))
    for state in STATES:
        (group,) = (g for g in tree.iter(f"{SVG}g") if g.get("class") == f"node {state}")
        said = "".join(group.itertext())
        assert WORDS.get(state, state) in said


def test_times_sizes_links_and_edges() -> None:
    text = svg(
        [node("a", wall_s=83.4, size=4_200_000, href="#a"), node("b", "source", kind="source file")],
        [("b", "a"), ("b", "a"), ("b", "nobody"), ("a", "a")],
    )
    assert ">hit</tspan> · 1:23 min · 4.0 MiB</text>" in text
    assert '<a href="#a">' in text
    assert re.findall('data-e="([^"]*)"', text) == ["1-0"]


def test_what_only_saves_time_is_dotted() -> None:
    text = svg([node("a"), node("b"), node("c")], [("a", "c")], saves=[("b", "c"), ("a", "c")])
    edges = re.findall(r'<path class="edge([ a-z]*)" data-e="([^"]*)"', text)
    assert sorted(edges) == [("", "0-2"), (" saves", "1-2")]
    assert text.count("<title>saves time, changes no byte</title>") == 1


def test_a_picture_brings_its_ground_along() -> None:
    """On a page of any colour; dark letters never lie on a dark page."""
    text = svg([node("a")], [])
    assert '<rect class="ground" width="100%" height="100%"/>' in text
    assert ".ground { fill: var(--paper) }" in text


def test_names_are_inert() -> None:
    text = svg([node('<script>"&\x00\udcff', title="]]><b>")], [])
    tree = ElementTree.fromstring(text)
    assert "<script>" not in text
    assert any("<script>" in "".join(title.itertext()) for title in tree.iter(f"{SVG}title"))


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="'done' is no state"):
        svg([node("a", "done")], [])


def test_words() -> None:
    assert describe(node("a", "executed", wall_s=0.04, size=512)) == "executed · 0.04 s · 512 B"
    assert describe(node("a", "refused", note="unpinned")) == "cannot run · unpinned"
    assert describe(node("a", "source", kind="source file")) == "source file"
    assert middle_out("abcdefghij", 10) == "abcdefghij"
    assert middle_out("abcdefghijk", 10) == "abcd…ghijk"
