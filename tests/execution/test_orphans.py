"""What an action leaves running without a sandbox: killed when it ends, and nobody else with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mxt.execution import orphans, warden
from tests.e2e.conftest import REPOSITORY, Workspace, wait_for

# what an action runs: a child leaves the session, and its parent ends before it does
LEAVE = """
setsid sh -c 'echo $$ > {file}; exec sleep 300' < /dev/null > /dev/null 2>&1 &
until [ -s {file} ] && [ -e {wait} ]; do sleep 0.02; done
"""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_in(file: Path) -> int:
    return int(wait_for(lambda: file.exists() and file.read_text().strip()))


def test_a_daemon_ends_with_its_action_and_no_other_does(tmp_path: Path) -> None:
    """Two actions at once; the daemon of the one that goes on is left alone, and so is what is not ours."""
    ws = Workspace(tmp_path / "ws", tmp_path / "home")
    ws.write("MXTBUILD", "")
    daemons = {name: ws.home / name for name in ("short", "long")}
    for name, wait_for_file in (("short", daemons["short"]), ("long", ws.home / "go")):
        ws.write(f"{name}/run.sh", LEAVE.format(file=daemons[name], wait=wait_for_file))
        ws.write(
            f"{name}/MXTBUILD",
            'genrule(name = "x", srcs = ["run.sh"], outs = ["o"], cmd = "sh $<; touch $@")',
        )
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    process = ws.start("build", "//...", "-j2", "--no-sandbox")
    try:
        long = pid_in(daemons["long"])
        short = pid_in(daemons["short"])
        wait_for(lambda: not alive(short))
        assert alive(long)
        assert alive(stranger.pid)
        assert process.poll() is None
        (ws.home / "go").touch()
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, out + err
        wait_for(lambda: not alive(long))
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def in_a_process(code: str) -> str:
    """A process of its own: it makes itself the reaper of its orphans for good."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


START = """
import os, subprocess, sys, time
from mxt.execution import orphans, warden
assert orphans.adopt()

def leave(mark, then="exec sleep 300"):
    "A grandchild whose parent has ended: it is ours now. Its number."
    env = {**os.environ, **({warden.MARK: mark} if mark else {})}
    found = subprocess.run(["sh", "-c", f"setsid sh -c '{then}' > /dev/null 2>&1 & echo $!"],
                           env=env, capture_output=True, text=True, check=True)
    pid = int(found.stdout)
    while pid not in orphans.orphans():
        time.sleep(0.005)
    return pid

def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
"""


def test_only_what_bears_the_mark_is_killed_and_all_zombies_are_buried() -> None:
    said = in_a_process(
        START
        + """
mine = leave("aa.1")
other = leave("aa.2")
longer = leave("aa.11")
plain = leave("")
zombie = leave("", "exec sleep 0.3")  # the shell that starts it must end first, or may bury it
while state(zombie) != "Z":
    time.sleep(0.005)
waited = subprocess.Popen(["sleep", "300"], env={**os.environ, warden.MARK: "aa.1"})
orphans.mine.add(waited.pid)
warden.end_orphans("aa.1")
while state(mine) == "Z":
    time.sleep(0.005)
    warden.end_orphans("aa.1")
print(state(mine), state(zombie), *(state(pid) in "SDR" for pid in (other, longer, plain, waited.pid)))
for pid in (other, longer, plain, waited.pid):
    os.kill(pid, 9)
"""
    )
    assert said == "gone gone True True True True\n"


def test_children_of_what_is_killed_are_killed_too() -> None:
    """They become ours only when their parent dies."""
    said = in_a_process(
        START
        + """
first = leave("bb.1", "sleep 300 & sleep 300 & wait")
def below():
    return [int(p) for p in open(f"/proc/{first}/task/{first}/children").read().split()]
while len(below()) < 2:
    time.sleep(0.005)
all_ = [first, *below()]
warden.end_orphans("bb.1")
deadline = time.monotonic() + 20
while any(state(pid) not in ("gone", "Z") for pid in all_) and time.monotonic() < deadline:
    time.sleep(0.005)
print(*(state(pid) in ("gone", "Z") for pid in all_))
"""
    )
    assert said == "True True True\n"


def test_where_the_kernel_has_no_reaper_all_processes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "_adopting", False)
    assert orphans.orphans() is None
    mark = f"{os.urandom(8).hex()}.1"
    marked = subprocess.Popen(["sleep", "300"], env={**os.environ, warden.MARK: mark}, start_new_session=True)
    other = subprocess.Popen(["sleep", "300"], env={**os.environ, warden.MARK: f"{mark}1"})
    try:
        wait_for(lambda: b"sleep" in Path(f"/proc/{marked.pid}/cmdline").read_bytes())
        wait_for(lambda: b"sleep" in Path(f"/proc/{other.pid}/cmdline").read_bytes())
        warden.end_orphans(mark)
        assert marked.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (marked, other):
            process.kill()
            process.wait()
