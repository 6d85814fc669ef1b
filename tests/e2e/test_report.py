"""The page beside a receipt: written with it, kept with it, safe whatever a stage left, good to read."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import Browser
from tests.e2e.conftest import Workspace, digits_away

NOTES = '''
"""notes(name, panels): leaves the file as panels.json, and a panel by the call for it."""

from mxt.rule import Attributes, Label, Run, Target


class Attrs(Attributes):
    panels: Label
    call: bool = False


def actions(target: Target) -> None:
    target.action(
        run=leave,
        inputs={"panels": target.attrs.panels},
        outputs={"done": "done.txt"},
        params={"call": target.attrs.call},
    )


def leave(run: Run) -> None:
    run.outputs["done"].write_text("done")
    if run.params["call"]:
        run.panel("facts", "What came of it", section="Results", facts=[("apples", 3)])
    else:
        (run.evidence / "panels.json").write_bytes(run.inputs["panels"].read_bytes())
'''

GOOD = [
    {"kind": "verdict", "title": "All is well", "good": True},
    {"kind": "lines", "title": "Heat", "section": "Oven", "x": [0, 1, 2], "series": {"heat": [20, 90, 180]}},
    {
        "kind": "table",
        "title": "Left out",
        "columns": ["why", "rows"],
        "rows": [["burnt", 2]],
        "add_up": True,
    },
]
REPORT = "mxt-out/whole/report.html"


def noted(ws: Workspace, *panels: Any, raw: bytes | None = None, call: bool = False) -> Workspace:
    ws.write("rules/notes.py", NOTES)
    ws.write("panels.json", raw if raw is not None else json.dumps(panels))
    ws.write(
        "MXTBUILD",
        f"""
        notes(name = "notes", panels = "panels.json", call = {call})
        genrule(name = "text", srcs = ["text.txt"], outs = ["text.up"], cmd = "cat $< > $@")
        bundle(name = "whole", deps = [":notes", ":text"], receipt = True)
        """,
    )
    ws.write("text.txt", "some\n")
    assert ws.run("trust").code == 0
    return ws


def sections(page: str) -> list[str]:
    return re.findall(r"<h2 [^>]*>([^<]*)</h2>", page)


def test_it_lies_beside_the_receipt_and_is_kept_like_it(ws: Workspace) -> None:
    noted(ws, *GOOD)
    built = ws.run("build", "//:whole")
    assert digits_away(built.out) == (
        "  mxt-out/whole/receipt.dsse.json\n  mxt-out/whole/report.html\nbuilt: 2 actions: 2 executed in T\n"
    )
    page = ws.read(REPORT)
    assert sections(page) == [
        "How it was made", "notes", "Oven", "Times and sizes", "Versions", "Check it yourself",
    ] or sections(page) == [
        "How it was made", "Oven", "notes", "Times and sizes", "Versions", "Check it yourself",
    ]  # fmt: skip
    assert "All is well" in page
    assert ws.run("verify", "//:whole").code == 0

    before = (ws.root / REPORT).stat()
    assert digits_away(ws.run("build", "//:whole").out) == "up to date: 2 actions in T\n"
    assert (ws.root / REPORT).stat() == before

    (ws.root / REPORT).unlink()
    assert digits_away(ws.run("build", "//:whole").out).endswith("up to date: 2 actions: 2 cached in T\n")
    assert ws.read(REPORT) == page
    ws.write(REPORT, page.replace("All is well", "All is ill"))
    assert ws.run("build", "//:whole").code == 0
    assert ws.read(REPORT) == page


def test_what_was_found_finished_shows_the_evidence_of_its_own_run(ws: Workspace) -> None:
    noted(ws, *GOOD).build("//:whole")
    assert ws.read(REPORT).count('<span class="state hit">hit</span></td>') == 0
    ws.write("text.txt", "other\n")
    assert ws.build("//:whole").executed == {"//:text"}
    page = ws.read(REPORT)
    assert "All is well" in page
    assert page.count('<span class="state hit">hit</span></td>') == 1
    assert "1 ran in this build, 1 were found finished" in page


def test_the_call_for_a_panel(ws: Workspace) -> None:
    noted(ws, call=True).build("//:whole")
    page = ws.read(REPORT)
    assert "Results" in sections(page)
    assert "<h3>What came of it</h3><dl><dt>apples</dt><dd>3</dd></dl>" in page


def test_evidence_that_is_gone_or_was_changed_is_said_and_not_shown(ws: Workspace) -> None:
    noted(ws, *GOOD).build("//:whole")
    (file,) = (ws.root / "cache/evidence").rglob("panels.json")
    file.chmod(0o644)
    file.write_text(json.dumps([{"kind": "verdict", "title": "Believe me", "good": True}]))
    shown = ws.run("report", "//:whole", "-o", "-")
    assert (shown.code, shown.err) == (0, "")
    assert "Believe me" not in shown.out
    note = "//:notes: its evidence is not what the receipt names: it was changed afterwards"
    assert f'<p class="problem">{note}</p>' in shown.out
    file.unlink()
    shown = ws.run("report", "//:whole", "-o", "-")
    assert '<p class="problem">//:notes: its evidence is not in this store</p>' in shown.out


def test_the_verb(ws: Workspace) -> None:
    noted(ws, *GOOD).build("//:whole")
    page = ws.read(REPORT)
    written = ws.run("report", "mxt-out/whole/receipt.dsse.json", "-o", "run.html")
    assert (written.code, written.out, written.err) == (0, "run.html\n", "")
    assert ws.read("run.html") == page
    (ws.root / REPORT).unlink()
    again = ws.run("report", ":whole")
    assert (again.code, again.out) == (0, "mxt-out/whole/report.html\n")
    assert ws.read(REPORT) == page
    folder = ws.run("report", ":whole", "-o", "cache")
    assert (folder.code, folder.err) == (
        2, "error: 'cache' is a folder\n  hint: name the file to write, such as report.html\n",
    )  # fmt: skip
    nowhere = ws.run("report", ":whole", "-o", "none/x.html")
    assert nowhere.code == 1 or nowhere.code == 2
    assert nowhere.err.startswith("error: ")
    assert ws.run("report", ":text").err == (
        "error: mxt-out/text/receipt.dsse.json: '//:text' has no receipt\n  hint: mxt build //:text\n"
    )


def test_a_receipt_that_somebody_changed_is_not_drawn(ws: Workspace) -> None:
    noted(ws, *GOOD).build("//:whole")
    file = ws.root / "mxt-out/whole/receipt.dsse.json"
    envelope = json.loads(file.read_bytes())
    payload = base64.b64decode(envelope["payload"]).replace(b'"//:whole"', b'"//:whale"')
    envelope["payload"] = base64.b64encode(payload).decode()
    file.write_text(json.dumps(envelope, sort_keys=True, separators=(",", ":")))
    refused = ws.run("report", "//:whole")
    assert refused.code == 2
    assert "the receipt's signature does not hold, so nothing in it is shown" in refused.err


EVIL = (
    "</style></script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">'"
)


def hostile() -> list[Any]:
    """Everything that might get out of its place, or be too much."""
    inf = float("inf")
    return [
        {"kind": "verdict", "title": EVIL, "note": EVIL, "good": False},
        {"kind": "lines", "title": EVIL, "section": EVIL, "x_label": EVIL, "y_label": EVIL, "note": EVIL,
         "x": list(range(200_000)), "series": {EVIL: [(i * 7919) % 1000 for i in range(200_000)]}},
        {"kind": "lines", "title": "gaps", "x": [1, 2, 3], "series": {"a": [1, float("nan"), inf], "b": [0, 0, 0]}},
        {"kind": "lines", "title": "edges", "x": [-1e289, 1e289], "series": {"a": [1e-289, 1e289]}},
        {"kind": "bars", "title": EVIL, "unit": EVIL,
         "bars": [{"name": EVIL * 9, "value": -1e200, "error": 1e280, "text": EVIL, "group": EVIL}] * 120},
        {"kind": "table", "title": "wide", "columns": [EVIL] * 16, "rows": [["w" * 700] * 16] * 300},
        {"kind": "table", "title": "odd", "columns": [None, {}], "rows": [[[], "\ud800\u0000\u202eevil"]]},
        {"kind": "facts", "title": "x" * 9000, "facts": [["y" * 5000, 10**300]] * 150},
        {"kind": EVIL, "title": EVIL},
        {"kind": "lines", "title": "none", "x": [], "series": {}},
        *[{"kind": "facts", "title": "many", "facts": []}] * 200,
    ]  # fmt: skip


def test_nothing_that_a_stage_leaves_breaks_or_gets_out_of_the_page(ws: Workspace, browser: Browser) -> None:
    noted(ws, *hostile())
    built = ws.run("build", "//:whole")
    assert (built.code, built.err.count("warning")) == (0, 0), built.err
    page = ws.root / REPORT
    assert page.stat().st_size < 3_000_000
    for width in (390, 1280):
        browser.open_page(page, width=width)
        assert browser.console_errors() == []
        assert browser.js("document.title") == "whole: report"
        assert browser.js("document.querySelectorAll('script, img').length") == 0
        assert browser.sideways() == 0
    notes = browser.js("[...document.querySelectorAll('.problem')].map(e => e.innerText)")
    assert any("unknown kind" in note for note in notes), notes
    assert "//:notes: 110 panels beyond the first 100 are left out" in notes
    assert "200,000 points; " in browser.text("main")


def test_evidence_that_is_too_large_is_a_note(ws: Workspace) -> None:
    """What else may be wrong with a file is in tests/test_panels.py."""
    noted(ws, raw=b"[]" + b" " * (16 << 20))
    assert ws.run("build", "//:whole").code == 0
    note = "//:notes: panels.json is larger than the 16 MiB that are read"
    assert f'<p class="problem">{note}</p>' in ws.read(REPORT)


@pytest.fixture
def micro_page(micro_built: Workspace) -> Path:
    return micro_built.output("recipes/micro") / "report.html"


def test_a_recipes_report_tells_the_whole_story(micro_page: Path) -> None:
    page = micro_page.read_text("utf-8")
    assert sorted(sections(page)) == sorted(
        [
            "How it was made", "Model", "Pre-training", "Data", "Plan", "Training", "Evaluation",
            "Times and sizes", "Settings", "Versions", "Check it yourself",
        ]
    )  # fmt: skip
    (verdict,) = re.findall(r'<div class="verdict \w+">.*?</div>', page)
    assert re.search(
        r"Gate (not )?passed: count acc 0\.\d{4} against the base model&#39;s 0\.\d{4} on 200 held-out rows",
        verdict,
    )
    titles = re.findall(r"<(?:figcaption|h3)>([^<]+?) *<", page)
    for title in (
        "Loss", "Learning rate", "Speed", "What was dropped, and why", "Packed sequences", "What was chosen",
        "Candidates", "Every metric", "Time by stage",
    ):  # fmt: skip
        assert title in titles, title
    # three shards, one table: what they read adds up
    assert re.search(r'rows in the files</td><td class="number">48</td>', page)
    assert re.search(r'<td class="text">pack</td><td class="text">rows trained on</td>', page)
    for stage in ("base", "tuned"):
        assert re.search(rf'<text class="name" [^>]*>{stage}</text>', page)
    assert "://" not in re.sub(r'xmlns="[^"]*"', "", page)  # opens without a network, leads nowhere


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_it_reads_well_on_screens_large_and_small(
    micro_page: Path, browser: Browser, width: int, dark: bool
) -> None:
    browser.open_page(micro_page, width=width, dark=dark)
    assert browser.console_errors() == []
    assert browser.sideways() == 0
    colours = browser.js(
        "[getComputedStyle(document.body).color, getComputedStyle(document.documentElement).backgroundColor]"
    )
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 380 for colour in colours]
    assert light == [dark, not dark]
    # what is wider than a phone scrolls by itself, with a shadow where it is cut off
    cut = "[...document.querySelectorAll('.scroll, .picture')].filter(e => e.scrollWidth > e.clientWidth)"
    assert bool(browser.js(f"{cut}.length")) == (width == 390)
    assert browser.js(f"{cut}.every(e => getComputedStyle(e).backgroundAttachment.includes('local'))")
    # the letters of a chart are as large on a phone
    assert browser.js("getComputedStyle(document.querySelector('.chart text')).fontSize") == "12.5px"
    inside = """[...document.querySelectorAll('.chart text')].every(e => {
        const box = e.getBoundingClientRect(); return box.left >= 0 && box.right <= window.innerWidth })"""
    assert browser.js(inside)


def test_it_is_used_with_the_keyboard_alone(micro_page: Path, browser: Browser) -> None:
    browser.open_page(micro_page)
    browser.press("TAB")
    assert browser.js("document.activeElement.getAttribute('href')") == "#part-1"
    browser.js("document.querySelector('summary').focus()")
    assert browser.js("document.querySelector('details').open") is False
    browser.press("ENTER")
    assert browser.js("document.querySelector('details').open") is True
    assert browser.js("document.querySelectorAll('details[open] tbody tr').length") == 30
    assert browser.js("document.querySelectorAll('svg[role=img]:not([aria-label])').length") == 0
    # whatever scrolls sideways can have the focus
    assert browser.js(
        "[...document.querySelectorAll('.scroll, .picture')].every(e => e.tabIndex === 0 && e.ariaLabel)"
    )


def test_it_prints_on_white(micro_page: Path, browser: Browser) -> None:
    browser.open_page(micro_page, width=700, dark=True, media="print")
    assert browser.js("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        browser.js("getComputedStyle(document.querySelector('.verdict')).backgroundColor")
        == "rgb(246, 247, 249)"
    )
    assert browser.sideways() == 0
    browser.command("Emulation.setEmulatedMedia", media="", features=[])
