"""How many actions run at once, and in which order."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.e2e.conftest import Workspace

RULE = 'genrule(name = "{0}", outs = ["{0}"], cpus = {1}, srcs = [{2}], cmd = "sleep 0.25; touch $@")\n'


def profile(ws: Workspace, *args: str) -> dict[str, Any]:
    """Slices of the build's Chrome trace by name."""
    file = ws.home / "profile.json"
    ws.build(*args, "--profile", str(file))
    return {s["name"]: s for s in json.loads(file.read_text())["traceEvents"]}


def most_at_once(slices: dict[str, Any]) -> int:
    edges = sorted(
        [(s["ts"], 1) for s in slices.values()] + [(s["ts"] + s["dur"], -1) for s in slices.values()],
        key=lambda e: (e[0], e[1]),
    )
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def test_jobs(ws: Workspace) -> None:
    ws.write("MXTBUILD", "".join(RULE.format(f"t{i}", 1, "") for i in range(4)))
    assert most_at_once(profile(ws, "//...", "-j1")) == 1
    assert most_at_once(profile(ws, "//...", "-j4", "--store", "other")) == 4
    assert most_at_once(profile(ws, "//...", "--store", "third")) <= len(os.sched_getaffinity(0))


def test_declared_cpus(ws: Workspace) -> None:
    ws.write("MXTBUILD", "".join(RULE.format(f"t{i}", 2, "") for i in range(3)))
    assert most_at_once(profile(ws, "//...", "-j4")) == min(2, max(4, len(os.sched_getaffinity(0))) // 2)


def test_a_need_beyond_this_machine_runs_alone(ws: Workspace) -> None:
    ws.write("MXTBUILD", RULE.format("huge", 10_000, "") + RULE.format("small", 1, ""))
    assert most_at_once(profile(ws, "//...", "-j2")) == 1


def test_the_critical_path_goes_first(ws: Workspace) -> None:
    """A chain of three begins before its shorter neighbours, although it stands last in the file."""
    chain = RULE.format("c1", 1, "") + RULE.format("c2", 1, '":c1"') + RULE.format("c3", 1, '":c2"')
    ws.write("MXTBUILD", "".join(RULE.format(f"a{i}", 1, "") for i in range(3)) + chain)
    slices = profile(ws, "//...", "-j2")
    order = sorted(slices, key=lambda name: slices[name]["ts"])
    assert order.index("//:c1") < 2
    assert order.index("//:c2") < 4


def test_what_took_long_last_time_goes_first(ws: Workspace) -> None:
    rule = 'genrule(name = "{0}", srcs = ["in"], outs = ["{0}"], cmd = "sleep {1}; cat $< > $@")\n'
    ws.write("MXTBUILD", rule.format("a", 0) + rule.format("b", 0) + rule.format("slow", 0.6))
    ws.write("in", "1")
    ws.build("//...", "-j1")
    ws.write("in", "2")
    slices = profile(ws, "//...", "-j1")
    assert min(slices, key=lambda name: slices[name]["ts"]) == "//:slow"


def test_exclusive_actions_run_alone(ws: Workspace) -> None:
    ws.write(
        "rules/alone.py",
        """
        import time
        from mxt.rule import Attributes, Resources

        class Attrs(Attributes):
            exclusive: bool

        def actions(target):
            resources = Resources(exclusive=target.attrs.exclusive)
            target.action(run=run, outputs={"o": "o"}, params={"name": target.name}, resources=resources)

        def run(run):
            time.sleep(0.3)
            run.outputs["o"].write_text("x")
        """,
    )
    ws.run("trust")
    ws.write("MXTBUILD", '[alone(name = "t%d" % i, exclusive = i == 1) for i in range(4)]\n')
    slices = profile(ws, "//...", "-j4")
    alone = slices.pop("//:t1")
    for other in slices.values():
        assert other["ts"] >= alone["ts"] + alone["dur"] or other["ts"] + other["dur"] <= alone["ts"]
    assert most_at_once(slices) >= 2


def test_more_jobs_make_the_same(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        "".join(
            f'genrule(name = "t{i}", srcs = [{", ".join(repr(f":t{j}") for j in range(max(0, i - 3), i))}], '
            f'outs = ["t{i}"], cmd = "echo {i} $(SRCS) > $@")\n'
            for i in range(12)
        ),
    )
    keys = []
    for jobs in ("1", "8"):
        result = ws.build("//...", "-j", jobs, "--store", f"store{jobs}")
        keys.append({e["label"]: e["key"] for e in result.events if e["event"] == "action_finished"})
    assert keys[0] == keys[1]


def test_actions_with_one_key_run_once(ws: Workspace) -> None:
    """Two targets that would do the very same are one action: the second waits and takes its result."""
    ws.write("MXTBUILD", "")
    for package in ("p", "q"):
        ws.write(f"{package}/MXTBUILD", 'once(name = "x")\n')
    ws.write(
        "rules/once.py",
        """
        import time
        from mxt.rule import Attributes

        class Attrs(Attributes):
            pass

        def actions(target):
            target.action(run=run, outputs={"o": "o"})

        def run(run):
            time.sleep(0.3)
            run.outputs["o"].write_text("x")
        """,
    )
    ws.run("trust")
    assert sorted(ws.build("//...", "-j2").finished.values()) == ["cached", "executed"]
