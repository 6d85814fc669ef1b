"""The event stream and the profile, exactly."""

from __future__ import annotations

import json
import re
from collections import Counter

from tests.e2e.conftest import Workspace, b3

FILES = """
    genrule(name = "a", srcs = ["in"], outs = ["a"], cmd = "cat $< > $@")
    genrule(name = "b", srcs = [":a"], outs = ["b"], cmd = "cat $< > $@")
    genrule(name = "bad", outs = ["bad"], cmd = "exit 3")
    genrule(name = "after", srcs = [":bad"], outs = ["after"], cmd = "cat $< > $@")
"""


def test_a_build_in_events(ws: Workspace) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    events = ws.build("//...", "-k", "-j1", code=1).events

    assert {frozenset(e) >= {"v", "event", "time", "build"} for e in events} == {True}
    assert {e["v"] for e in events} == {1}
    assert len({e["build"] for e in events}) == 1
    assert re.fullmatch("[0-9a-f]{16}", events[0]["build"])
    times = [e["time"] for e in events]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", t) for t in times)

    first, last = events[0], events[-1]
    assert first["event"] == "build_started"
    assert sorted(first["targets"]) == ["//:a", "//:after", "//:b", "//:bad"]
    assert last["event"] == "build_finished"
    assert last["counts"] == {"executed": 2, "failed": 1, "skipped": 1}
    assert last["success"] is False
    assert isinstance(last["wall_s"], float)

    started = {e["label"]: e for e in events if e["event"] == "action_started"}
    assert set(started) == {"//:a", "//:b", "//:bad"}
    finished = {e["label"]: e for e in events if e["event"] == "action_finished"}
    for label, event in finished.items():
        assert {"label", "action", "mnemonic", "key", "status", "wall_s", "reason"} <= set(event), label
        assert (event["action"], event["mnemonic"]) == ("", "Genrule")
    assert {label: e["status"] for label, e in finished.items()} == {
        "//:a": "executed",
        "//:b": "executed",
        "//:bad": "failed",
        "//:after": "skipped",
    }
    assert finished["//:after"]["key"] is None
    assert finished["//:bad"]["error"].startswith("//:bad: Genrule failed: exit status 3")
    form = (ws.root / "cache/cas" / finished["//:a"]["key"][:2] / finished["//:a"]["key"]).read_bytes()
    assert b3(form) == finished["//:a"]["key"]  # a key is the digest of its explanation
    assert json.loads(form)["inputs"]["in"]["digest"] == b3(b"in\n")
    assert finished["//:a"]["reason"] == [{"field": "", "old": "", "new": "never built here"}]


def test_exactly_one_end_for_every_action(ws: Workspace) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    for args in (["-k"], [], ["-j1"]):
        events = ws.build("//...", *args, code=1).events
        ends = Counter(e["label"] for e in events if e["event"] == "action_finished")
        assert ends == {"//:a": 1, "//:b": 1, "//:bad": 1, "//:after": 1}, args
    result = ws.build(":b")
    assert result.finished == {"//:a": "cached", "//:b": "cached"}
    assert [e["reason"] for e in result.events if e["event"] == "action_finished"] == [[], []]


def test_progress_of_a_stage(ws: Workspace) -> None:
    ws.write(
        "rules/talk.py",
        """
        from mxt.rule import Attributes

        class Attrs(Attributes):
            pass

        def actions(target):
            target.action(run=run, outputs={"o": "o"}, name="one")

        def run(run):
            for step in range(3):
                run.report(stage="talking", step=step, of=3, loss=0.5, words_per_s=12.5, label="forged", nested=[1])
            run.outputs["o"].write_text("x")
        """,
    )
    ws.run("trust")
    ws.write("MXTBUILD", 'talk(name = "t")\n')
    result = ws.build(":t")
    progress = [e for e in result.events if e["event"] == "action_progress"]
    assert [(e["label"], e["action"], e["step"], e["loss"], e["stage"]) for e in progress] == [
        ("//:t", "one", step, 0.5, "talking") for step in range(3)
    ]
    assert all("nested" not in e for e in progress)


def test_the_profile_is_a_chrome_trace(ws: Workspace) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    profile = ws.home / "profile.json"
    ws.build("//...", "-k", "-j2", "--profile", str(profile), code=1)
    trace = json.loads(profile.read_text())
    assert {e["name"]: e["args"]["status"] for e in trace["traceEvents"]} == {
        "//:a": "executed",
        "//:b": "executed",
        "//:bad": "failed",
        "//:after": "skipped",
    }
    for event in trace["traceEvents"]:
        assert event["ph"] == "X"
        assert event["cat"] == "Genrule"
        assert event["dur"] >= 0 <= event["ts"]
        assert event["tid"] in (0, 1)


def test_a_file_that_cannot_be_written(ws: Workspace) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    for option in ("--events", "--profile"):
        result = ws.run("build", ":a", option, "no/such/folder/file")
        assert result.code == 2, result.err
        assert "error: no/such/folder/file: cannot write the" in result.err
        assert f"hint: give {option} a file in a folder that exists and is writable" in result.err


def test_events_to_a_pipe(ws: Workspace) -> None:
    """`--events /dev/stdout | jq` is what CI does."""
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    result = ws.run("build", ":a", "--events", "/dev/stdout")
    events = [json.loads(line) for line in result.out.splitlines() if line.startswith("{")]
    assert [e["event"] for e in events] == [
        "build_started",
        "action_started",
        "action_finished",
        "build_finished",
    ]
