"""What a person sees: in a terminal of any width, in a pipe, with and without colours."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from mxt.cli.verbs import VERBS
from tests.e2e.conftest import Workspace, digits_away

LONG = "a_rather_long_name_for_a_target_" * 2
FILES = f"""
    genrule(name = "short", outs = ["o"], cmd = "sleep 0.3; echo > $@")
    genrule(name = "{LONG}", srcs = [":short"], outs = ["{LONG}.txt"], cmd = "sleep 0.3; echo > $@")
    talk(name = "{LONG}talk")
"""
TALK = """
    import time
    from mxt.rule import Attributes

    class Attrs(Attributes):
        pass

    def actions(target):
        target.action(run=run, outputs={"o": "o"})

    def run(run):
        for step in range(6):
            run.report(stage="training", step=step, of=6, loss=2.25, tokens_per_s=12345.6, eta_s=61, note="n" * 40)
            time.sleep(0.1)
        run.outputs["o"].write_text("x")
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("output")
    workspace = Workspace(folder / "ws", folder / "home")
    workspace.write("MXTBUILD", FILES)
    workspace.write("rules/talk.py", TALK)
    workspace.run("trust")
    for name in ("NO_COLOR", "COLUMNS", "LINES", "CI"):
        workspace.env.pop(name, None)
    return workspace


def in_terminal(
    ws: Workspace, columns: int, *args: str, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and everything written to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        ws.command(*args),
        cwd=ws.root,
        env={**ws.env, "TERM": "xterm-256color", **(env or {})},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    return process.wait(), seen.decode()


def drawn(text: str) -> list[str]:
    """Every line as drawn at any moment, without control sequences."""
    return re.split(r"[\r\n]+", ESCAPE.sub("", text))


@pytest.mark.parametrize("columns", [80, 120, 40])
def test_live_lines_fit_the_terminal(ws: Workspace, columns: int) -> None:
    code, text = in_terminal(ws, columns, "build", "//...", "-j4", "--store", f"s{columns}")
    assert code == 0
    assert "\x1b[" in text
    lines = drawn(text)
    live = [line for line in lines if "of 3 actions" in line or "training" in line]
    assert live
    assert max(map(len, live)) <= columns
    assert any("0 of 3 actions" in line for line in live)
    if columns >= 80:
        assert any(re.search(r"training  \d/6", line) for line in live)
    assert digits_away(lines[-2]) == "built: 3 actions: 3 executed in T"


def test_a_null_build_in_a_terminal_is_one_line(ws: Workspace) -> None:
    in_terminal(ws, 80, "build", ":short")
    in_terminal(ws, 80, "build", ":short")
    _, text = in_terminal(ws, 80, "build", ":short")
    assert len([line for line in drawn(text) if line]) <= 2
    assert "up to date: 1 action" in text


def test_a_dumb_terminal_gets_plain_lines(ws: Workspace) -> None:
    code, text = in_terminal(ws, 80, "build", "-v", ":short", "--store", "dumb", env={"TERM": "dumb"})
    assert code == 0
    assert "\x1b" not in text
    assert "  running //:short  (never built here)\r\n" in text


def test_no_color_in_a_terminal(ws: Workspace) -> None:
    ws.write("bad/MXTBUILD", 'genrule(name = "b", outs = ["o"], cmd = "exit 1", tags = ["manual"])')
    _, plain = in_terminal(ws, 80, "build", "//bad:b", env={"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*m", plain)
    _, coloured = in_terminal(ws, 80, "build", "//bad:b")
    assert "\x1b[31merror:\x1b[0m" in coloured


def test_pipes(ws: Workspace) -> None:
    result = ws.run("build", "//...", "-j1", "--store", "pipe")
    assert "\x1b" not in result.out + result.err
    assert "\r" not in result.err
    # results on standard output, the way there on standard error
    assert digits_away(result.out).splitlines() == [
        "  mxt-out/short",
        f"  mxt-out/{LONG}",
        f"  mxt-out/{LONG}talk",
        "built: 3 actions: 3 executed in T",
    ]
    forced = ws.run("build", "//bad:b", env={"FORCE_COLOR": "1"})
    assert "\x1b[31merror:\x1b[0m" in forced.err
    both = ws.run("build", "//bad:b", env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\x1b" not in both.err


def test_colours_never_change_what_is_said(ws: Workspace) -> None:
    plain = ws.run("build", "//bad:b").err
    coloured = ws.run("build", "//bad:b", env={"FORCE_COLOR": "1"}).err
    away = re.compile(r"\S+/log\.txt|\d+\.\d+")
    assert away.sub("", ESCAPE.sub("", coloured)) == away.sub("", plain)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_eighty_columns(ws: Workspace, verb: str) -> None:
    _, text = in_terminal(ws, 80, *([verb] if verb else []), "--help")
    assert [line for line in drawn(text) if len(line) > 80] == []


def test_control_characters_of_a_log_do_not_reach_the_terminal(ws: Workspace) -> None:
    ws.write(
        "ctl/MXTBUILD",
        'genrule(name = "c", outs = ["o"], cmd = "printf \'\\\\033]0;title\\\\007\\\\033[2J\\\\033[31mred\'; exit 1", tags = ["manual"])',
    )
    _, text = in_terminal(ws, 80, "build", "//ctl:c", env={"NO_COLOR": "1"})
    assert "red" in text
    assert "\x1b]0;" not in text
    assert "\x1b[2J" not in text
