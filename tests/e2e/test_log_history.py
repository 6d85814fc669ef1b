"""mxt log --history, --run and --builds: what ran, when, how long, why, and how it ended."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.e2e.conftest import GATE, Workspace, at_gate, let_go, wait_for

WHEN = r"\d{4}-\d\d-\d\d \d\d:\d\d"


def tidy(text: str) -> str:
    """Times, keys and identities replaced by letters of the same width."""
    text = re.sub(rf"\b{WHEN}\b", "YYYY-MM-DD HH:MM", text)
    text = re.sub(r" +\d+\.\d+ s\b", lambda m: "T".rjust(len(m[0])), text)
    hexadecimal = r"\b(?=[0-9a-f]*\d)([0-9a-f]{8}|[0-9a-f]{12})\b|\b[a-f]{8}\b|\b[a-f]{12}\b"
    return re.sub(hexadecimal, lambda m: "H" * len(m[0]), text)


def write(ws: Workspace, cmd: str, text: str = "one\n") -> None:
    ws.write("MXTBUILD", f'genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "{cmd}")')
    ws.write("in", text)


@pytest.fixture
def ran(ws: Workspace) -> Workspace:
    """Four runs: a success, a failure, another success, and one because the result was lost."""
    write(ws, "echo first; cat $< > $@")
    ws.build(":a")
    write(ws, "echo bad; exit 3", "two\n")
    ws.build(":a", code=1)
    write(ws, "echo third; cat $< > $@", "two\n")
    ws.build(":a")
    (ws.root / "mxt-out/a/o").unlink()
    for path in (ws.root / "cache/cas").glob("*/*"):
        if path.read_bytes() == b"two\n":
            path.unlink()
    ws.build(":a")
    return ws


def test_history_at_80_columns(ran: Workspace) -> None:
    out = ran.run("log", ":a", "--history", env={"COLUMNS": "80"}).out
    assert max(map(len, out.splitlines())) <= 80
    assert tidy(out) == (
        "//:a  4 runs\n"
        " #  began                  took  status  key           why\n"
        " 4  YYYY-MM-DD HH:MM          T  ok      HHHHHHHHHHHH  its outputs were missi...\n"
        " 3  YYYY-MM-DD HH:MM          T  ok      HHHHHHHHHHHH  inputs.in, params.cmd\n"
        " 2  YYYY-MM-DD HH:MM          T  failed  HHHHHHHHHHHH  inputs.in, params.cmd\n"
        " 1  YYYY-MM-DD HH:MM          T  ok      HHHHHHHHHHHH  never built here\n"
    )


def test_history_at_120_columns(ran: Workspace) -> None:
    out = ran.run("log", ":a", "--history", env={"COLUMNS": "120"}).out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[1] == (
        " #  began                  took  status  key           sandbox     machine                   why"
    )
    assert re.fullmatch(
        rf" 4  {WHEN} +[\d.]+ s  ok      [0-9a-f]{{12}}  (bubblewrap|none)  +\S.* {{2}}its outputs wer.*",
        lines[2],
    )


def test_history_as_json(ran: Workspace) -> None:
    (action,) = json.loads(ran.run("log", ":a", "--history", "--json").out)["actions"]
    assert (action["label"], action["action"]) == ("//:a", "")
    runs = action["runs"]
    builds = json.loads(ran.run("log", "--builds", "--json").out)["builds"]
    assert [run["status"] for run in runs] == ["ok", "failed", "ok", "ok"]
    assert [run["build"] for run in runs] == [build["build"] for build in reversed(builds)]
    assert [build["success"] for build in builds] == [True, True, False, True]
    assert [change["field"] for change in runs[1]["why"]] == ["inputs.in", "params.cmd"]
    assert runs[2]["key"] == runs[3]["key"] != runs[1]["key"]
    assert all(run["wall_s"] > 0 and run["evidence"] for run in runs)
    assert runs[0]["machine"]["cores"] >= 1


def test_one_run(ran: Workspace) -> None:
    assert [ran.run("log", ":a", "--run", str(n)).out for n in (1, 2, 3, 4)] == [
        "first\n",
        "bad\n",
        "third\n",
        "third\n",
    ]
    err = ran.run("log", ":a", "--run", "2").err
    assert re.match(
        rf"//:a: run 2 of 4, {WHEN}, failed, [\d.]+ s\n  key [0-9a-f]{{12}}, build [0-9a-f]{{8}}\n", err
    )
    assert "  why it ran:\n    inputs.in: file " in err
    assert ran.run("log", ":a", "--run", "2", "--list").out == "       4 B  log.txt\n"
    assert json.loads(ran.run("log", ":a", "--run", "1", "--json").out)["text"] == "first\n"
    beyond = ran.run("log", ":a", "--run", "5")
    assert (beyond.code, beyond.err) == (
        1,
        "error: '//:a' has 4 runs, not 5\n  hint: --history lists them\n",
    )
    assert "not a whole number above 0" in ran.run("log", ":a", "--run", "0").err


def test_builds(ran: Workspace) -> None:
    out = ran.run("log", "--builds", env={"COLUMNS": "80"}).out
    assert tidy(out) == (
        "build     began                  took  result           ran  targets\n"
        "HHHHHHHH  YYYY-MM-DD HH:MM          T  ok               1/1  :a\n"
        "HHHHHHHH  YYYY-MM-DD HH:MM          T  ok               1/1  :a\n"
        "HHHHHHHH  YYYY-MM-DD HH:MM          T  failed           1/1  :a\n"
        "HHHHHHHH  YYYY-MM-DD HH:MM          T  ok               1/1  :a\n"
    )
    ran.write("MXTBUILD", 'genrule(name = "b", outs = ["o"], cmd = "touch $@")')
    ran.build(":b")
    assert len(ran.run("log", "--builds").out.splitlines()) == 6
    assert len(ran.run("log", ":b", "--builds").out.splitlines()) == 2
    (newest, *_) = sorted((ran.root / "cache/state/builds").iterdir(), reverse=True)
    newest.write_text("{")
    assert ran.run("log", "--builds").out.endswith(
        "1 record cannot be read: 'mxt cache repair' removes them\n"
    )
    assert ran.run("cache", "repair").code == 0
    assert len(ran.run("log", "--builds").out.splitlines()) == 5


def test_a_run_that_goes_on_and_one_that_was_interrupted(ws: Workspace) -> None:
    write(ws, GATE + "; cat $< > $@")
    process = ws.start("build", ":a")
    wait_for(lambda: at_gate(ws))
    assert tidy(ws.run("log", ":a", "--history").out).splitlines()[2] == (
        " 1  YYYY-MM-DD HH:MM             running  HHHHHHHHHHHH  never built here"
    )
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 8
    process = ws.start("build", ":a")
    wait_for(lambda: at_gate(ws))
    let_go(ws)
    process.communicate(timeout=60)
    (action,) = json.loads(ws.run("log", ":a", "--history", "--json").out)["actions"]
    assert [run["status"] for run in action["runs"]] == ["interrupted", "ok"]


def test_what_has_no_history(ws: Workspace) -> None:
    write(ws, "cat $< > $@")
    none = ws.run("log", ":a", "--history")
    assert (none.code, none.out) == (1, "")
    assert none.err.startswith("error: ':a' has not run here\n")
    assert "no build is recorded in this store" in ws.run("log", "--builds").err
    assert ws.run("log").err == "error: no target is named\n  hint: mxt log LABEL, or mxt log --builds\n"
    assert ws.run("log", ":a", "--history", "--run", "1").code == 2
    assert ws.run("log", ":a", "--history", "--list").code == 2
