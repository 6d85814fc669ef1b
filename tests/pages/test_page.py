"""The shell of a page: escaped, self-contained, parseable."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from mxt.pages.page import escape, page, script_json


@given(st.text(st.characters(codec=None)))
def test_escaped_text_is_inert_in_html_and_xml(text: str) -> None:
    shown = escape(text)
    assert not set(shown) & set("<>\"'")
    shown.encode()
    tree = ElementTree.fromstring(f'<a b="{shown}">{shown}</a>')
    if text.isprintable():
        assert (tree.text or "") == text == tree.get("b")


def test_escape_shows_what_no_page_may_hold() -> None:
    assert escape("a\x1b[1m\udcff<b>") == "a\\x1b[1m\\udcff&lt;b&gt;"


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page("a <b>", "<p>hello</p>", script="let x = 1", style="p { margin: 0 }")
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - its base's
            if tag not in ("meta", "link", "img", "br"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Parser(convert_charrefs=True).feed(text)
    assert opened == []
    assert "<title>a &lt;b&gt;</title>" in text
    assert text.endswith("<p>hello</p>\n<script>\nlet x = 1\n</script>\n</body>\n</html>\n")
    assert not re.search(r"(src|href)=|@import|url\(|https?:", text)


@settings(max_examples=30)
@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_json_in_a_script_cannot_end_it(value: object) -> None:
    text = script_json(["</script><!--", value])
    assert "<" not in text
    assert json.loads(text)[1] == value
