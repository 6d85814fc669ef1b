"""Several builds at once, in one workspace or in two that share a store: each action runs once."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import GATE, Result, Workspace, at_gate, kill_tree, let_go, wait_for


def start(ws: Workspace, log: str, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return ws.start("build", *args, "--events", str(ws.home / log), env=env)


def end(ws: Workspace, log: str, process: subprocess.Popen[str], code: int = 0) -> Result:
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert "mxt itself failed" not in err, err
    assert process.returncode == code, out + err
    lines = (ws.home / log).read_text().splitlines()
    return Result(code, out, err, [json.loads(line) for line in lines])


def gated(name: str, srcs: str = "", then: str = "true") -> str:
    return f"""
genrule(
    name = "{name}", srcs = [{srcs}], outs = ["{name}.txt"],
    cmd = "{GATE}; {then}; echo {name} > $@",
)
"""


def waits(ws: Workspace, log: str) -> bool:
    """Whether that build has said that it waits for another one."""
    file = ws.home / log
    return file.exists() and "action_waiting" in file.read_text()


def graph(layers: int, width: int) -> str:
    """Actions in layers, each reading all of the layer below."""
    lines = []
    for layer in range(layers):
        for i in range(width):
            srcs = ", ".join(f'":n{layer - 1}x{j}"' for j in range(width)) if layer else ""
            lines.append(
                f'genrule(name = "n{layer}x{i}", srcs = [{srcs}], outs = ["n{layer}x{i}.txt"], '
                f'cmd = "sleep 0.02; echo {layer} {i} | cat - $(SRCS) > $@")'
            )
    tops = ", ".join(f'":n{layers - 1}x{i}"' for i in range(width))
    return "\n".join([*lines, f'bundle(name = "whole", deps = [{tops}])'])


def test_the_second_waits_for_the_first(ws: Workspace) -> None:
    ws.write("MXTBUILD", gated("x"))
    first = start(ws, "1", "//:x")
    wait_for(lambda: at_gate(ws))
    second = start(ws, "2", "//:x")
    wait_for(lambda: waits(ws, "2"))
    time.sleep(0.2)
    let_go(ws)
    one, two = end(ws, "1", first), end(ws, "2", second)
    assert one.finished == {"//:x": "executed"}
    assert two.finished == {"//:x": "cached"}
    assert "waiting for another build that runs //:x" in two.err
    assert [e["event"] for e in two.events].count("action_waiting") == 1
    assert len(list((ws.root / "cache/runs").glob("*/*/*.json"))) == 1


def test_different_targets_do_not_wait(ws: Workspace) -> None:
    ws.write("MXTBUILD", gated("x") + 'genrule(name = "y", outs = ["y.txt"], cmd = "echo y > $@")\n')
    first = start(ws, "1", "//:x")
    wait_for(lambda: at_gate(ws))
    assert ws.build("//:y").finished == {"//:y": "executed"}
    assert first.poll() is None, "it runs still"
    let_go(ws)
    assert end(ws, "1", first).finished == {"//:x": "executed"}


def test_the_second_takes_over_when_the_first_is_killed(ws: Workspace) -> None:
    ws.write("MXTBUILD", gated("x"))
    first = start(ws, "1", "//:x")
    before = wait_for(lambda: at_gate(ws))
    second = start(ws, "2", "//:x")
    wait_for(lambda: waits(ws, "2"))
    kill_tree(first)
    wait_for(lambda: set(at_gate(ws)) - set(before))
    let_go(ws)
    assert end(ws, "2", second).finished == {"//:x": "executed"}
    assert ws.read("mxt-out/x/x.txt") == "x\n"


def test_the_second_takes_over_when_the_first_fails(ws: Workspace) -> None:
    """A failure is no result: whoever waited tries for himself."""
    ws.write("MXTBUILD", gated("x", then="exit 3"))
    first = start(ws, "1", "//:x")
    wait_for(lambda: at_gate(ws))
    second = start(ws, "2", "//:x")
    wait_for(lambda: waits(ws, "2"))
    let_go(ws)
    assert end(ws, "1", first, 1).finished == {"//:x": "failed"}
    wait_for(lambda: at_gate(ws))
    let_go(ws)
    two = end(ws, "2", second, 1)
    assert two.finished == {"//:x": "failed"}
    assert "exit status 3" in two.err


def test_who_waits_can_be_interrupted(ws: Workspace) -> None:
    ws.write("MXTBUILD", gated("x"))
    first = start(ws, "1", "//:x")
    wait_for(lambda: at_gate(ws))
    second = start(ws, "2", "//:x")
    wait_for(lambda: waits(ws, "2"))
    second.terminate()
    assert end(ws, "2", second, 8).finished == {"//:x": "interrupted"}
    assert first.poll() is None
    let_go(ws)
    assert end(ws, "1", first).finished == {"//:x": "executed"}


def test_four_builds_of_thirty_actions(ws: Workspace) -> None:
    ws.write("MXTBUILD", graph(6, 5))
    builds = [start(ws, str(i), "//:whole") for i in range(4)]
    results = [end(ws, str(i), build) for i, build in enumerate(builds)]
    assert all(len(r.finished) == 30 for r in results)
    executed = Counter(name for r in results for name in r.executed)
    assert sorted(executed.values()) == [1] * 30
    assert all(set(r.finished.values()) <= {"executed", "cached"} for r in results)
    assert len(list((ws.root / "cache/runs").glob("*/*/*.json"))) == 30
    assert ws.run("verify", "//:whole").code == 0
    assert ws.run("gc").code == 0
    assert not list((ws.root / "cache/tmp").iterdir())


def test_two_workspaces_share_a_store(make_ws: Callable[[str], Workspace], tmp_path: Path) -> None:
    store = str(tmp_path / "shared store")
    one, two = make_ws("one"), make_ws("two")
    two.env = {**one.env}  # one user, so one operator
    for ws in (one, two):
        own = f'genrule(name = "own", outs = ["o"], cmd = "echo {ws.root.name} > $@")'
        ws.write("MXTBUILD", f"{graph(3, 3)}\n{own}\n")
    builds = [(ws, start(ws, "1", "//...", "--store", store)) for ws in (one, two)]
    results = [end(ws, "1", build) for ws, build in builds]
    executed = Counter(name for r in results for name in r.executed)
    assert executed.pop("//:own") == 2
    assert set(executed.values()) == {1}
    assert one.read("mxt-out/own/o") == "one\n"
    assert two.read("mxt-out/own/o") == "two\n"
    for ws in (one, two):
        assert ws.run("gc", "--store", store).code == 0
    for ws in (one, two):
        assert (ws.root / "mxt-out/n2x0/n2x0.txt").is_file()
        assert ws.build("//...", "--store", store).executed == set()
        verified = ws.run("verify", "//:whole", "--store", store)
        assert verified.code == 0, verified.out + verified.err
        assert not (ws.root / "cache").exists()


def test_gc_beside_builds(ws: Workspace) -> None:
    """Nothing that a running build has found, made or is about to read goes away."""
    ws.write("MXTBUILD", graph(5, 4))
    ws.build("//:whole")
    ws.write("MXTBUILD", graph(5, 4).replace("sleep 0.02", "sleep 0.03"))
    build = start(ws, "1", "//:whole")
    collections = 0
    while build.poll() is None:
        swept = ws.run("gc")
        assert swept.code == 0, swept.err
        collections += 1
    assert collections >= 2
    assert set(end(ws, "1", build).finished.values()) == {"executed"}
    assert ws.build("//:whole").executed == set()
    assert ws.run("verify", "//:whole").code == 0


def test_gc_beside_a_build_that_finds_everything(ws: Workspace) -> None:
    """Without mxt-out nothing is a root; only the lease keeps what the build has found."""
    ws.write("MXTBUILD", graph(3, 3) + gated("z", '":n2x0"'))
    ws.build("//:whole")
    for link in (ws.root / "mxt-out").iterdir():
        if link.is_symlink():
            link.unlink()
    for folder in (ws.root / "mxt-out/whole", ws.root / "cache/state/roots"):
        for path in folder.iterdir():
            path.unlink()
    build = start(ws, "1", "//:whole", "//:z")
    wait_for(lambda: at_gate(ws))
    assert ws.run("gc").code == 0
    let_go(ws)
    result = end(ws, "1", build)
    assert result.executed == {"//:z"}
    assert ws.run("verify", "//:whole").code == 0


def test_gc_at_the_same_time_as_gc(ws: Workspace) -> None:
    ws.write("MXTBUILD", graph(3, 3))
    ws.build("//:whole")
    ws.write("MXTBUILD", graph(3, 3).replace("sleep 0.02", "true"))
    ws.build("//:whole")
    processes = [ws.start("gc") for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, out + err
    assert ws.build("//:whole").executed == set()
    assert ws.run("verify", "//:whole").code == 0


def test_many_builds_set_the_same_links(ws: Workspace) -> None:
    """Each has everything to link and nothing to run; none takes away what another is about to rename."""
    ws.write("MXTBUILD", graph(1, 8))
    ws.build("//:whole")
    for _ in range(4):
        shutil.rmtree(ws.root / "mxt-out")
        builds = [start(ws, str(i), "//:whole") for i in range(4)]
        for i, build in enumerate(builds):
            assert set(end(ws, str(i), build).finished.values()) == {"cached"}
        found = sorted(p.name for p in (ws.root / "mxt-out/whole").iterdir())
        assert found == [*(f"n0x{i}" for i in range(8)), "receipt.dsse.json", "report.html"]
    assert ws.run("verify", "//:whole").code == 0
