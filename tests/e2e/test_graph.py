"""mxt graph: states of the boxes in the terminal and in a browser; keys only; five hundred boxes."""

from __future__ import annotations

import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.browser import Browser
from tests.e2e.conftest import Workspace

SVG = "{http://www.w3.org/2000/svg}"


def states(ws: Workspace, *labels: str) -> dict[str, str]:
    """Box -> state, as drawn."""
    result = ws.run("graph", *(labels or ("//...",)), "--output", "-")
    assert (result.code, result.err) == (0, "")
    found = {}
    for group in ElementTree.fromstring(result.out).iter(f"{SVG}g"):
        kind, _, state = (group.get("class") or "").partition(" ")
        if kind == "node":
            title = group.find(f"{SVG}title")
            assert title is not None
            assert title.text
            found[title.text.partition("\n")[0]] = state
    return found


@pytest.fixture
def chain(ws: Workspace) -> Workspace:
    """a -> b -> c, each with a source; and an independent d."""
    rule = 'genrule(name = "{0}", srcs = ["{0}.in", {1}], outs = ["{0}.out"], cmd = "cat $(SRCS) > $@")\n'
    ws.write(
        "MXTBUILD",
        rule.format("a", "") + rule.format("b", '":a"') + rule.format("c", '":b"') + rule.format("d", ""),
    )
    for name in "abcd":
        ws.write(f"{name}.in", name)
    return ws


def test_states_follow_the_builds(chain: Workspace) -> None:
    sources = dict.fromkeys(("a.in", "b.in", "c.in", "d.in"), "source")
    boxes = ("//:a", "//:b", "//:c", "//:d")
    assert states(chain) == {**sources, **dict.fromkeys(boxes, "waiting")}
    chain.build("//...")
    assert states(chain) == {**sources, **dict.fromkeys(boxes, "executed")}
    chain.write("b.in", "other")
    assert states(chain) == {
        **sources,
        **dict(zip(boxes, ("executed", "stale", "stale", "executed"), strict=True)),
    }
    chain.build("//...")
    assert states(chain) == {
        **sources,
        **dict(zip(boxes, ("hit", "executed", "executed", "hit"), strict=True)),
    }
    text = chain.read("MXTBUILD")
    chain.write("MXTBUILD", text.replace('name = "b"', 'tags = ["x"], name = "b"').replace("b.in", "gone.in"))
    chain.write("gone.in", "x")
    chain.write(
        "MXTBUILD",
        chain.read("MXTBUILD").replace(
            '"gone.in", ":a"], outs = ["b.out"], cmd = "',
            '"gone.in", ":a"], outs = ["b.out"], cmd = "exit 3; ',
        ),
    )
    chain.build("-k", "//...", code=1)
    failed = states(chain)
    assert {n: s for n, s in failed.items() if s != "source"} == dict(
        zip(boxes, ("hit", "failed", "skipped", "hit"), strict=True)
    )
    # an edit after the failure: nobody knows any more whether it fails
    chain.write("gone.in", "y")
    assert states(chain)["//:b"] == "stale"


def test_the_command_says_what_it_drew(chain: Workspace) -> None:
    result = chain.run("graph", "//:c", "//:d")
    assert (result.out, result.err, result.code) == (
        "mxt-out/graph.html: 4 boxes (4 waiting), 4 sources\n",
        "",
        0,
    )
    assert not (chain.root / "mxt-out/a").exists()
    chain.build("//...")
    result = chain.run("graph", "//:a", "--no-sources", "-o", "one box.svg", cwd="")
    assert result.out == "one box.svg: 1 box (1 executed)\n"
    drawn = chain.read("one box.svg")
    assert re.search(r">executed</tspan> · \d+\.\d\d s · 1 B</text>", drawn)
    assert chain.run("graph", "//:a", "--no-sources", "-o", "again.svg").code == 0
    assert chain.read("again.svg") == drawn


def test_bad_requests(chain: Workspace) -> None:
    chain.write("folder.html/x", "")
    chain.write("p/MXTBUILD", 'platform(name = "cpu", arch = "x86_64")')
    cases = {
        ("//:a", "-o", "x.png"): (
            2,
            (
                "error: --output 'x.png' is neither .html nor .svg\n"
                "  hint: name a file with one of these endings, or - for SVG on standard output\n"
            ),
        ),
        ("//:a", "-o", "no/x.svg"): (
            1,
            (
                "error: no/x.svg: cannot write the picture: No such file or directory\n"
                "  hint: name another file\n"
            ),
        ),
        ("//:a", "-o", "folder.html"): (
            2,
            "error: 'folder.html' is a folder\n  hint: name a file with --output\n",
        ),
        ("//p:cpu",): (2, "error: nothing to draw: these targets have no actions\n"),
    }
    for args, (code, message) in cases.items():
        result = chain.run("graph", *args)
        assert (result.code, result.out, result.err) == (code, "", message)


def test_names_from_the_workspace_are_inert(ws: Workspace, browser: Browser) -> None:
    name = "<script>alert(1)<!-- & '"
    ws.write(
        "MXTBUILD", f'genrule(name = "{name}", srcs = ["</script>.txt"], outs = ["o"], cmd = "touch $@")'
    )
    ws.write("</script>.txt", "")
    assert ws.run("graph", "//...").code == 0
    browser.open_page(ws.root / "mxt-out/graph.html")
    assert browser.console_errors() == []
    browser.press("/", "alert", "ENTER")
    assert browser.text("#details h2") == f"//:{name}"
    assert "</script>.txt" in browser.text("#details")


def test_the_page_by_keys_alone(chain: Workspace, browser: Browser) -> None:
    chain.build("//...")
    chain.write("b.in", "other")
    chain.run("graph", "//...")
    page = chain.root / "mxt-out/graph.html"
    browser.open_page(page)
    assert browser.js("document.title") == "Graph of //..."
    assert browser.text("header p").startswith("last build ")

    # search, step through what was found, into the picture
    browser.press("/")
    assert browser.focused() == "input#search"
    browser.press(".in")
    assert browser.text("#found") == "4 of 8"
    browser.press("ENTER", "ENTER")
    assert (browser.text("#found"), browser.text("#details h2")) == ("2 of 4", "b.in")
    browser.press("ESCAPE")
    assert browser.js("document.getElementById('search').value") == ""
    browser.press("/", "//:b", "ENTER", "ARROW_DOWN")
    assert (browser.focused(), browser.text("#details h2")) == ("g", "//:b")
    assert browser.text("#details .words") == "stale"
    facts = browser.text("#details dl")
    assert "inputs.b.in" in facts
    assert "MXTBUILD:2:1" in facts
    browser.press("ESCAPE")

    # arrows follow the drawing; Enter leaves only what belongs to a box
    browser.js("document.querySelector('.node').focus({})")
    way = []
    for _ in range(3):
        browser.press("ARROW_DOWN")
        way.append(browser.text("#details h2"))
    assert way == ["//:a", "//:b", "//:c"]
    browser.press("/", "//:b", "ENTER", "ARROW_DOWN", "ENTER")
    bright = "[...document.querySelectorAll('.node.bright')].map(e => e.querySelector('title').textContent.split('\\n')[0])"
    assert sorted(browser.js(bright)) == ["//:a", "//:b", "//:c", "a.in", "b.in"]
    browser.press("ESCAPE")
    assert browser.js(bright) == []
    assert browser.text("#details h2") == "Details"

    # every control can be reached, and the zoom follows its keys
    browser.open_page(page)
    reached = []
    for _ in range(9):
        browser.press("TAB")
        reached.append(browser.focused())
    assert reached[0] == "input#search"
    assert {"button#in", "button#out", "button#fit", "g"} <= set(reached)
    browser.js("document.querySelector('.node').focus({})")
    zoom = browser.text("#zoom")
    browser.press("-")
    assert browser.text("#zoom") != zoom
    browser.press("0")
    assert browser.text("#zoom") == zoom
    assert browser.console_errors() == []


def test_the_page_by_mouse(chain: Workspace, browser: Browser) -> None:
    from selenium.webdriver import ActionChains

    chain.run("graph", "//...")
    browser.open_page(chain.root / "mxt-out/graph.html")
    boxes = browser.driver.find_elements("css selector", ".node.waiting")
    ActionChains(browser.driver, duration=0).click(boxes[0]).perform()
    assert browser.text("#details h2") == "//:a"
    browser.driver.find_element("xpath", "//aside//button[text()='//:b']").click()
    assert browser.text("#details h2") == "//:b"
    before = browser.js("document.querySelector('.view').getAttribute('transform')")
    ActionChains(browser.driver, duration=0).move_to_element(boxes[0]).click_and_hold().move_by_offset(
        60, 40
    ).release().perform()
    after = browser.js("document.querySelector('.view').getAttribute('transform')")
    assert before != after
    assert browser.text("#details h2") == "//:b"
    # a state's button leaves what is so, and leads to the first of it
    browser.driver.find_element("css selector", "[data-state=source]").click()
    assert browser.js("document.querySelectorAll('.node.bright').length") == 4
    assert browser.text("#details h2") == "a.in"
    assert browser.console_errors() == []


def test_a_label_in_the_address_is_shown(chain: Workspace, browser: Browser) -> None:
    chain.run("graph", "//...")
    browser.open_page(chain.root / "mxt-out/graph.html", fragment="//:c")
    assert browser.text("#details h2") == "//:c"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_the_pipeline_in_every_window(
    micro_built: Workspace, browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    """Fourteen steps and their bundle; nobody scrolls sideways; text stands out from its box."""
    page = tmp_path / "graph.html"
    result = micro_built.run("graph", "//recipes:micro", "--output", str(page))
    assert result.out == f"{page}: 15 boxes (15 executed), 6 sources\n"
    browser.open_page(page, width=width, height=800, dark=dark)
    assert browser.console_errors() == []
    assert browser.sideways() == 0
    assert browser.js("document.querySelectorAll('.node').length") == 21
    colours = browser.js(
        "[...document.querySelectorAll('.node.executed')].slice(0, 1).flatMap(e => ['.title', '.state', '.box']"
        ".map(s => getComputedStyle(e.querySelector(s)).fill))"
    )
    title, state, box = (_light(c) for c in colours)
    assert _contrast(title, box) > 7
    assert _contrast(state, box) > 4.5
    assert (box < 0.2) == dark


def _light(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)", as WCAG has it."""
    parts = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_five_hundred_boxes(ws: Workspace, browser: Browser) -> None:
    """All of them fit into the window at first; one is found by name, and its surroundings by Enter."""
    r = random.Random(2)
    lines = []
    needs: dict[int, set[int]] = {}
    for i in range(500):
        needs[i] = (
            {max(0, i - 1 - int(r.expovariate(1 / 25))) for _ in range(r.choice([1, 2, 3]))} if i else set()
        )
        srcs = ", ".join(f'":step_{j:03d}"' for j in sorted(needs[i]))
        lines.append(f'genrule(name = "step_{i:03d}", srcs = [{srcs}], outs = ["o{i}"], cmd = "touch $@")\n')
    ws.write("MXTBUILD", "".join(lines))
    assert ws.run("graph", "//...").out == "mxt-out/graph.html: 500 boxes (500 waiting)\n"
    browser.open_page(ws.root / "mxt-out/graph.html")
    outside = """[...document.querySelectorAll('.node')].filter(e => {
      const b = e.getBoundingClientRect(), p = document.getElementById('picture').getBoundingClientRect();
      return b.left < p.left - 1 || b.right > p.right + 1 || b.top < p.top - 1 || b.bottom > p.bottom + 1;
    }).length"""
    assert browser.js(outside) == 0
    browser.press("/", "step_250", "ENTER", "ARROW_DOWN", "ENTER")
    assert browser.text("#details h2") == "//:step_250"
    above, below = {250}, {250}
    for i in range(250, -1, -1):
        if i in below:
            below |= needs[i]
    for i in range(250, 500):
        if needs[i] & above:
            above.add(i)
    assert browser.js("document.querySelectorAll('.node.bright').length") == len(above | below)
    # read at a size at which its text can be read
    height = browser.js("document.querySelector('.node.selected .box').getBoundingClientRect().height")
    assert height > 30
    assert browser.console_errors() == []


STAGE = """
from mxt.rule import Attributes, Label, Target, not_yet

VERSION = 1

class Attrs(Attributes):
    src: Label
    helper: Label | None = None
    written: bool = True

def actions(target: Target) -> None:
    target.action(
        run=copy,
        inputs={"src": target.attrs.src},
        outputs={"out": "out"},
        accelerants=target.attrs.helper or True,
        refuse=None if target.attrs.written else not_yet("flying", "walk"),
    )

def copy(run):
    run.outputs["out"].write_bytes(run.inputs["src"].read_bytes())
"""


def test_what_cannot_run_and_what_only_saves_time(ws: Workspace, browser: Browser) -> None:
    ws.write("rules/stage.py", STAGE)
    ws.write(
        "MXTBUILD",
        """
        stage(name = "helper", src = "in")
        stage(name = "user", src = "in", helper = ":helper")
        stage(name = "flight", src = ":user", written = False)
        bundle(name = "all", deps = [":flight"])
        """,
    )
    ws.write("in", "x")
    assert ws.run("trust").code == 0
    assert states(ws, "//:all") == {
        "in": "source",
        "//:helper": "waiting",
        "//:user": "waiting",
        "//:flight": "refused",
        "//:all": "refused",
    }
    assert (
        ws.run("graph", "//:all").out == "mxt-out/graph.html: 4 boxes (2 waiting, 2 cannot run), 1 source\n"
    )
    browser.open_page(ws.root / "mxt-out/graph.html", fragment="//:user")
    assert "Is saved time by (1)\n//:helper" in browser.text("#details")
    assert "Reads (1)\nin" in browser.text("#details")
    browser.driver.find_element("css selector", "[data-state=refused]").click()
    assert browser.text("#details h2") == "//:flight"
    assert browser.text("#details .words") == "cannot run · absent"
    assert "not implemented yet: flying" in browser.text("#details dl")
    assert "walk" in browser.text("#details dl")
    assert browser.console_errors() == []
    explained = ws.run("explain", "//:all").out
    assert "//:flight cannot run: not implemented yet: flying\n" in explained
    assert explained.endswith("2 of 3 actions would run, 1 cannot\n")
    assert "3 actions: 2 to run, 1 that cannot run, 0 cached" in ws.run("doctor", "//:all").out


def test_on_a_phone_what_is_cut_off_shows_that_it_is(chain: Workspace, browser: Browser) -> None:
    chain.run("graph", "//...")
    browser.open_page(chain.root / "mxt-out/graph.html", width=390)
    shadow = "getComputedStyle(document.getElementById('picture')).getPropertyValue('--r')"
    assert browser.js(shadow) == "14px"
    assert browser.text("#more") == "drag to see the rest"
    browser.driver.find_element("id", "fit").click()
    assert (browser.js(shadow), browser.js("document.getElementById('more').hidden")) == ("0px", True)
