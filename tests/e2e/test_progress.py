"""How a running build looks, on exact screens: any width, resized, wide characters, many at once, in a log."""

from __future__ import annotations

import re

import pytest

from mxt.cli.cells import width_of
from tests.e2e.conftest import GATE, Workspace, at_gate, digits_away, let_go, wait_for
from tests.e2e.terminal import Shown, in_terminal

LONG = "a_rather_long_name_for_a_target_" * 2 + "end"
TALK = """
    import time
    from mxt.rule import Attributes

    class Attrs(Attributes):
        said: str = ""

    def actions(target):
        target.action(run=run, outputs={"o": "o"}, params={"said": target.attrs.said, "name": target.name})

    def run(run):
        for _ in range(4):
            run.report(
                stage="training", step=3, of=6, loss=2.25, tokens_per_s=12345.6, eta_s=61,
                note=run.params["said"],
            )
            time.sleep(0.1)
        run.outputs["o"].write_text("x")
"""


@pytest.fixture
def talking(ws: Workspace) -> Workspace:
    ws.write("rules/talk.py", TALK)
    ws.write("MXTBUILD", 'talk(name = "t", said = "reading")\n')
    assert ws.run("trust").code == 0
    return ws


def running(done: Shown, word: str) -> list[str]:
    """The last screen that shows the word, times as T."""
    screen = next(screen for screen in reversed(done.screens) if any(word in line for line in screen))
    return [digits_away(line) for line in screen]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (120, "  //:t  ━━━━━━━━━━━━────────────  training  3/6  loss 2.25  12.3k tokens/s  reading  T left"),
        (80, "  //:t  training  3/6  loss 2.25  12.3k tokens/s  reading  T left"),
        (40, "  //:t  training  3/6  T left"),
        (20, "  //:t"),
    ],
)
def test_a_stage_that_reports(talking: Workspace, columns: int, line: str) -> None:
    done = in_terminal(talking, columns, "build", "//:t")
    assert done.code == 0
    shown = running(done, "3/6" if columns > 20 else "0 of 1")
    state = {20: "  0 of 1"}.get(columns, "  0 of 1 action, T")
    bars = re.compile("[━─]+")
    assert [bars.sub("=", text) for text in shown] == [bars.sub("=", line), state]
    assert len(shown[0].replace("T left", "1:01 min left")) < columns
    assert "\x1b[?" not in done.raw  # no mode is switched, so none must be switched back
    if columns >= 80:  # nothing of the live lines is left
        assert [digits_away(text) for text in done.terminal.lines()] == [
            "  ok //:t  T  loss 2.25",
            "  mxt-out/t",
            "built: 1 action: 1 executed in T",
        ]


def test_long_and_wide_names(talking: Workspace) -> None:
    wide = "模型训练数据集" * 4
    talking.write("MXTBUILD", f'talk(name = "{LONG}")\ntalk(name = "{wide}", said = "\\x1b[2J模")\n')
    done = in_terminal(talking, 60, "build", "//:all", "-j2")
    assert done.code == 0
    lines = {line for screen in done.screens for line in screen if "3/6" in line}
    assert lines
    assert max(map(width_of, lines)) < 60
    assert any("..." in line and "_end  " in line for line in lines)
    assert any("..." in line and "数据集  " in line for line in lines)


def test_narrowed_in_mid_build(ws: Workspace) -> None:
    """What was drawn wider wraps, and is still taken away as a whole."""
    commands = [
        f'genrule(name = "{LONG}{i}", outs = ["o{i}"], cmd = "sleep 0.{6 + i}; echo {i} > $@")'
        for i in (1, 2)
    ]
    ws.write("MXTBUILD", "\n".join(commands))
    done = in_terminal(ws, 100, "build", "//:all", "-j2", until="0 of 2", narrow_to=50)
    assert done.code == 0
    shown = running(done, "1 of 2")
    assert len(shown) == 4  # the one that is done (two rows), the one that runs, and the state
    assert all(line.count("of 2 actions") <= 1 for line in shown)
    text = "\n".join(done.terminal.lines())
    assert "of 2 actions" not in text
    assert text.count("  ok //:") == 2


def test_many_at_once(ws: Workspace) -> None:
    """As many rows as there is room for; then how many more."""
    rules = f'genrule(name = "g%d" % i, outs = ["o%d" % i], cmd = "{GATE}; echo %d > $@" % i)'
    ws.write("MXTBUILD", f"[{rules} for i in range(30)]")
    import threading

    def release() -> None:
        wait_for(lambda: len(at_gate(ws)) == 30)
        let_go(ws)

    thread = threading.Thread(target=release)
    thread.start()
    done = in_terminal(ws, 80, "build", "//:all", "-j30", rows=10)
    thread.join()
    assert done.code == 0
    most = max((s for s in done.screens if "  0 of 30 actions" in s[-1]), key=len)
    assert [re.sub(r" +\d.*", "", line) for line in most[:6]] == [f"  //:g{i}" for i in range(6)]
    assert most[6] == "  and 24 more"
    assert len(most) == 8
    lines = done.terminal.lines()
    assert sum(line.startswith("  ok //:g") for line in lines) == 20
    assert lines.count("  from here on only what takes 10 s or more; -v shows all") == 1


def test_a_log_gets_what_matters(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        '[genrule(name = "g%d" % i, outs = ["o%d" % i], cmd = "echo %d > $@" % i) for i in range(60)]',
    )
    result = ws.run("build", "//:all")
    lines = result.err.splitlines()
    assert sum(line.startswith("  ok //:g") for line in lines) == 20
    assert [line for line in lines if not line.startswith("  ok ")] == [
        "  from here on only what takes 10 s or more; -v shows all"
    ]
    ws.write("MXTBUILD", ws.read("MXTBUILD").replace("echo %d", "echo again %d"))
    every = ws.run("build", "//:all", "-v").err.splitlines()
    assert sum(line.startswith("  ok //:g") for line in every) == 60
    assert sum(line.startswith("  running //:g") for line in every) == 60
    assert all("(params.cmd: " in line for line in every if line.startswith("  running"))


def test_a_terminal_without_unicode(talking: Workspace) -> None:
    done = in_terminal(talking, 120, "build", "//:t", env={"PYTHONIOENCODING": "latin-1:backslashreplace"})
    assert running(done, "3/6")[0] == (
        "  //:t  ############............  training  3/6  loss 2.25  12.3k tokens/s  reading  T left"
    )


@pytest.mark.parametrize("variable", ["CI", "TERM", "NO_COLOR"])
def test_terminals_that_do_not_draw(talking: Workspace, variable: str) -> None:
    value = {"CI": "true", "TERM": "dumb", "NO_COLOR": "1"}[variable]
    done = in_terminal(talking, 80, "build", "//:t", env={variable: value})
    assert done.code == 0
    if variable == "NO_COLOR":  # draws all the same
        assert any("3/6" in line for screen in done.screens for line in screen)
        assert not re.search(r"\x1b\[[0-9;]*m", done.raw)
    else:
        assert not any("3/6" in line for screen in done.screens for line in screen)
        assert ("\x1b" in done.raw) == (variable == "CI")  # colours are another question
