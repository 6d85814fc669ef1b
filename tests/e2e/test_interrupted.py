"""Ctrl-C, SIGTERM and SIGKILL while actions run: nobody goes on writing, nothing finished is lost, and
unfinished work resumes to the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import REPOSITORY, Result, Workspace, kill_tree, wait_for

COUNT = '''
"""Counts in steps, each step's state made from the one before, with a checkpoint every five."""

import hashlib
import os
import time

from mxt.rule import Attributes, Checkpoints, Run, Target


class Attrs(Attributes):
    to: int


def actions(target: Target) -> None:
    target.action(
        run=count, mnemonic="Count", outputs={"sum": "sum.txt"}, params={"to": target.attrs.to}, progress=True
    )


def count(run: Run) -> None:
    saved = Checkpoints(run.progress)
    last = saved.newest()
    step, state = 0, "nothing"
    if last is not None:
        step, state = (last.path / "state").read_text().split()
        step = int(step)
    (run.evidence / "from").write_text(str(step))
    while step < run.params["to"]:
        step += 1
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
        time.sleep(0.01)
        run.report(step=step, of=run.params["to"], pid=os.getpid())
        if step % 5 == 0:
            saved.save(f"step-{step}", lambda folder: (folder / "state").write_text(f"{step} {state}"))
            saved.prune(keep=2)
    run.outputs["sum"].write_text(state)
'''

# Three writers: the command, one in the background, and one that has left its session and its group.
WRITERS = """
    genrule(
        name = "writers",
        outs = ["done.txt"],
        cmd = \"\"\"
            echo a > $(RULEDIR)/1; echo a > $(RULEDIR)/2; echo a > $(RULEDIR)/3
            write() { while :; do echo $$1 >> $(RULEDIR)/$$1; sleep 0.01; done; }
            export -f write
            write 1 &
            setsid nohup bash -c 'write 2' > /dev/null 2>&1 &
            write 3
        \"\"\",
    )
    genrule(name = "quick", outs = ["quick.txt"], cmd = "echo quick > $@")
"""


@pytest.fixture
def counting(ws: Workspace) -> Workspace:
    ws.write("rules/count.py", COUNT)
    ws.write("MXTBUILD", 'count(name = "n", to = 60)\n')
    assert ws.run("trust").code == 0
    return ws


@pytest.fixture(params=["bubblewrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment that chooses a sandbox."""
    return {"MXT_SANDBOX": "none"} if request.param == "none" else {}


def ended(process: subprocess.Popen[str], seconds: float = 20) -> Result:
    """Wait for a build; whatever it was struck by, no traceback."""
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err, err
    assert "mxt itself failed" not in err, err
    return Result(process.returncode, out, err)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def growing(ws: Workspace) -> dict[Path, int]:
    """The files that the three writers write, with their sizes."""
    found = {}
    for place, _, names in os.walk(ws.root / "cache" / "tmp"):
        for name in {"1", "2", "3"}.intersection(names):
            with contextlib.suppress(FileNotFoundError):  # mxt is cleaning up
                found[Path(place, name)] = Path(place, name).stat().st_size
    return found


def all_write(ws: Workspace) -> bool:
    return [p.name for p, size in sorted(growing(ws).items()) if size > 20] == ["1", "2", "3"]


def bystanders(word: str) -> list[str]:
    """Command lines of processes that name `word`."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                line = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(line.replace(b"\0", b" ").decode())
    return found


def stopped(ws: Workspace) -> None:
    """Asserts that soon nobody writes any more."""

    def still() -> bool:
        before = growing(ws)
        time.sleep(0.15)
        return growing(ws) == before

    wait_for(still, 5)
    before = growing(ws)
    time.sleep(0.3)
    assert growing(ws) == before
    assert not bystanders(str(ws.root / "cache" / "tmp"))


def test_ctrl_c(ws: Workspace, sandbox: dict[str, str]) -> None:
    ws.write("MXTBUILD", WRITERS)
    log = ws.home / "events"
    process = ws.start("build", "//...", "-j4", "--events", str(log), env=sandbox)
    wait_for(lambda: all_write(ws) and '"executed"' in log.read_text())
    process.send_signal(signal.SIGINT)
    result = ended(process, 6)
    assert result.code == 8
    assert "stopping; press Ctrl-C again to kill at once" in result.err
    assert "interrupted: 1 executed, 1 interrupted" in result.err
    assert "finished actions are kept, unfinished ones resume: run the same command again" in result.err
    stopped(ws)
    assert not growing(ws), "temporary files are left"
    assert Result(8, "", "", events(log)).finished == {"//:quick": "executed", "//:writers": "interrupted"}
    assert events(log)[-1]["event"] == "build_finished"
    assert not events(log)[-1]["success"]
    assert ws.build("//:quick").finished == {"//:quick": "cached"}


def test_a_second_ctrl_c_kills_what_ignores_the_first(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(
            name = "deaf",
            outs = ["x"],
            cmd = "trap '' TERM INT; while :; do echo a >> $(RULEDIR)/1; sleep 0.01; done",
        )
        """,
    )
    process = ws.start("build", "//:deaf", env={"MXT_SANDBOX": "none"})
    wait_for(lambda: any(size > 10 for size in growing(ws).values()))
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "SIGTERM is ignored, and three seconds of grace are not over"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    result = ended(process)
    assert time.monotonic() - began < 2.3, "the second Ctrl-C does not wait for the rest of the grace"
    assert result.code == 8
    stopped(ws)


def test_an_action_that_ignores_ctrl_c_has_three_seconds(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", """genrule(name = "deaf", outs = ["x"], cmd = "trap '' TERM INT; sleep 50; sleep 51")"""
    )
    process = ws.start("build", "//:deaf", env={"MXT_SANDBOX": "none"})
    wait_for(lambda: bystanders("sleep\0" + "50"))
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert ended(process).code == 8
    assert 1.0 < time.monotonic() - began < 30.0
    assert not bystanders("sleep\0" + "50")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_hangup_stop_a_build_in_order(ws: Workspace, number: signal.Signals) -> None:
    ws.write("MXTBUILD", WRITERS)
    process = ws.start("build", "//:writers")
    wait_for(lambda: all_write(ws))
    process.send_signal(number)
    assert ended(process).code == 8
    stopped(ws)
    assert not growing(ws)


def test_nobody_goes_on_writing_after_sigkill(ws: Workspace, sandbox: dict[str, str]) -> None:
    ws.write("MXTBUILD", WRITERS)
    process = ws.start("build", "//:writers", env=sandbox)
    wait_for(lambda: all_write(ws))
    kill_tree(process)
    stopped(ws)
    ws.write("MXTBUILD", """genrule(name = "writers", outs = ["done.txt"], cmd = "echo done > $@")""")
    assert ws.build("//:writers").executed == {"//:writers"}
    assert ws.run("gc").code == 0
    assert not list((ws.root / "cache" / "tmp").iterdir())


def test_nobody_goes_on_writing_after_an_action_without_sandbox(ws: Workspace) -> None:
    """A process left behind could write into the output that was just taken into the store."""
    ws.write(
        "MXTBUILD",
        """
        genrule(
            name = "leaves",
            outs = ["x.txt"],
            cmd = "echo x > $@; setsid bash -c 'while sleep 0.01; do echo more; done' >> $@ &",
        )
        """,
    )
    ws.build("//:leaves", env={"MXT_SANDBOX": "none"})
    first = ws.read("mxt-out/leaves/x.txt")
    time.sleep(0.3)
    assert ws.read("mxt-out/leaves/x.txt") == first
    assert ws.build("//:leaves").finished == {"//:leaves": "cached"}


def test_killed_stage_says_so_and_keeps_its_progress(counting: Workspace, sandbox: dict[str, str]) -> None:
    log = counting.home / "events"
    process = counting.start("build", "//:n", "--events", str(log), env=sandbox)
    wait_for(lambda: list((counting.root / "cache/progress").glob("*/000002")))
    child = next(
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and _is_stage(p, counting.root / "cache", bool(sandbox))
    )
    os.kill(child, signal.SIGKILL)
    result = ended(process)
    assert result.code == 1
    assert "Count failed: killed by SIGKILL" in result.err
    assert "checkpoints are kept; the next build resumes" in result.err
    again = counting.build("//:n", env=sandbox)
    assert _resumed(again.events)
    assert int(_evidence(counting, "from")) >= 5


def _is_stage(place: Path, store: Path, bare: bool) -> bool:
    """Whether a process of /proc is the stage's own interpreter in this store's build."""
    try:
        line = (place / "cmdline").read_bytes().split(b"\0")
        if not line[0].endswith((b"python3.11", b"python3.12", b"python3.13")):
            return False
        if not any(part.endswith(b"execution/inside.py") for part in line):
            return False
        mounts = (place / "mountinfo").read_text()
        return (bare and str(store) in line[-2].decode()) or f"{store}".replace(" ", "\\040") in mounts
    except (OSError, IndexError):
        return False


def _resumed(found: list[dict[str, Any]]) -> bool:
    (started,) = [e for e in found if e["event"] == "action_started"]
    return bool(started["resumed"])


def _evidence(ws: Workspace, name: str) -> str:
    """A file that the newest run which got so far left as evidence."""
    found = (ws.root / "cache/evidence").glob(f"*/*/{name}")
    return max(found, key=lambda f: f.parent.name).read_text()


def uninterrupted(make_ws: Callable[[str], Workspace]) -> bytes:
    calm = make_ws("calm")
    calm.write("rules/count.py", COUNT)
    calm.write("MXTBUILD", 'count(name = "n", to = 60)\n')
    calm.run("trust")
    calm.build("//:n")
    return (calm.output("n") / "sum.txt").read_bytes()


@pytest.mark.slow
def test_resumes_to_the_same_bytes_wherever_it_is_killed(
    counting: Workspace, make_ws: Callable[[str], Workspace]
) -> None:
    expected = uninterrupted(make_ws)
    dice = random.Random(20)
    for round_number in range(6):
        log = counting.home / f"events-{round_number}"
        if round_number:
            counting.write("MXTBUILD", f'count(name = "n", to = {60 + round_number})\n')
        process = counting.start("build", "//:n", "--events", str(log))
        wait_for(lambda log=log: log.exists() and '"action_progress"' in log.read_text(), 20)
        time.sleep(dice.random() * 0.5)
        kept = _steps_kept(counting)
        kill_tree(process)
        result = counting.build("//:n")
        resumed_from = int(_evidence(counting, "from"))
        assert resumed_from >= kept
        if result.executed:
            assert _resumed(result.events) == (resumed_from > 0)
    counting.write("MXTBUILD", 'count(name = "n", to = 60)\n')
    assert counting.build("//:n").finished == {"//:n": "cached"}
    assert (counting.output("n") / "sum.txt").read_bytes() == expected
    assert not list((counting.root / "cache/progress").iterdir()), "progress of finished actions is left"


def _steps_kept(ws: Workspace) -> int:
    """The last step whose checkpoint is whole, as far as can be seen from outside."""
    names = [p.name for p in (ws.root / "cache/progress").glob("*/0*/step-*")]
    return max((int(n.removeprefix("step-")) for n in names), default=0)


def test_killed_many_times_in_a_row(counting: Workspace, make_ws: Callable[[str], Workspace]) -> None:
    expected = uninterrupted(make_ws)
    for _ in range(4):
        log = counting.home / "events"
        log.unlink(missing_ok=True)
        process = counting.start("build", "//:n", "--events", str(log))
        already = _steps_kept(counting)
        wait_for(lambda already=already: _steps_kept(counting) > already, 20)
        kill_tree(process)
    result = counting.build("//:n")
    assert _resumed(result.events)
    assert int(_evidence(counting, "from")) >= 20
    assert (counting.output("n") / "sum.txt").read_bytes() == expected


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "manifest"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    counting: Workspace, make_ws: Callable[[str], Workspace], damage: str
) -> None:
    process = counting.start("build", "//:n")
    wait_for(lambda: list((counting.root / "cache/progress").glob("*/000003")))
    kill_tree(process)
    before, newest = sorted((counting.root / "cache/progress").glob("*/0*"))[-2:]
    (step,) = [int(p.name.removeprefix("step-")) for p in before.iterdir() if p.is_dir()]
    (state,) = newest.glob("*/state")
    if damage == "flip":
        data = bytearray(state.read_bytes())
        data[-1] ^= 1
        state.write_bytes(data)
    elif damage == "truncate":
        state.write_bytes(state.read_bytes()[:-5])
    elif damage == "delete":
        state.unlink()
    else:
        (newest / "manifest.json").write_bytes(b"{")
    result = counting.build("//:n")
    assert _resumed(result.events)
    assert int(_evidence(counting, "from")) == step
    assert (counting.output("n") / "sum.txt").read_bytes() == uninterrupted(make_ws)


def test_a_kill_before_the_first_checkpoint_resumes_nothing(counting: Workspace) -> None:
    log = counting.home / "events"
    process = counting.start("build", "//:n", "--events", str(log))
    wait_for(lambda: log.exists() and '"action_started"' in log.read_text())
    kill_tree(process)
    for left in (counting.root / "cache/progress").glob("*/0*"):  # it was faster than we
        os.rename(left, left.with_name(f".{left.name}.left"))
    assert not _resumed(counting.build("//:n").events)


def test_ctrl_c_at_any_moment_shows_no_traceback(ws: Workspace) -> None:
    """Also while mxt starts, reads files and writes the last of it. The whole group, as a terminal does."""
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["x"], cmd = "sleep 0.05; echo x > $@")\n')
    dice = random.Random(7)
    codes = set()
    for _ in range(14):
        # as mxtw starts it: `python -m` and `site` would answer an interruption in their own way
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REPOSITORY / "mxt/__main__.py"), "build", "//:x"],
            cwd=ws.root,
            env=ws.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(0.02 + dice.random() * 0.3)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=20)
        if "Python runtime state:" in err or "_get_module_lock" in err:
            continue  # Python itself was interrupted: before it was up, or in a callback of its importer
        assert "Traceback" not in err, err
        codes.add(process.returncode)
    assert 8 in codes
    assert codes <= {0, 8, -signal.SIGINT}, codes
    ws.build("//:x")
