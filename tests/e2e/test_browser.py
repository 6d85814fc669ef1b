"""The browser fixture sees what it must: errors, colour scheme, narrow windows, keys."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.browser import Browser

PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><title>x</title>
<style>body { background: white } @media (prefers-color-scheme: dark) { body { background: black } }</style>
<input id="first"><p>said</p><script>{script}</script>"""


def test_the_fixture_sees_errors_and_the_network(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE.replace("{script}", "console.error('boo'); nothing()"))
    browser.open_page(page)
    errors = browser.console_errors()
    assert any("boo" in e for e in errors), errors
    assert any("nothing is not defined" in e for e in errors), errors
    page.write_text(PAGE.replace("{script}", "") + '<img src="https://example.com/x.png">')
    browser.open_page(page)
    assert any("example.com" in e for e in browser.console_errors())


def test_the_fixture_shows_sizes_colours_and_keys(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE.replace("{script}", ""))
    browser.open_page(page, width=390, height=800, dark=True)
    assert browser.js("[innerWidth, getComputedStyle(document.body).backgroundColor]") == [
        390,
        "rgb(0, 0, 0)",
    ]
    browser.press("TAB", "a", "b")
    assert (browser.focused(), browser.js("document.activeElement.value")) == ("input#first", "ab")
    assert browser.text("p") == "said"
    assert browser.sideways() == 0
    assert browser.console_errors() == []
    shot = browser.screenshot(tmp_path / "shot.png").read_bytes()
    assert shot.startswith(b"\x89PNG")
    assert (int.from_bytes(shot[16:20]), int.from_bytes(shot[20:24])) == (390, 800)
