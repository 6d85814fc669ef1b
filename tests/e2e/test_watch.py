"""--watch: builds again after each change that matters, through errors, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import STARTED, Workspace, at_gate, digits_away, wait_for
from tests.e2e.terminal import in_terminal

CAT = 'genrule(name = "cat", srcs = glob(["data/*.txt"]), outs = ["o"], cmd = "cat $(SRCS) > $@")\n'


class Watch:
    """A watch that runs; what it says since it was last asked."""

    def __init__(self, ws: Workspace, *args: str) -> None:
        self._file = ws.home / "said"
        self._read = 0
        with self._file.open("wb") as said:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                ws.command(*args),
                cwd=ws.root,
                env={**ws.env, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
            )
        STARTED.append(self.process)

    def said(self) -> str:
        """All until it waits again, times as T."""
        wait_for(lambda: b"Ctrl-C ends\n" in self._file.read_bytes()[self._read :])
        text = self._file.read_bytes()[self._read :].decode()
        self._read += len(text.encode())
        return digits_away(text)

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        return code, self._file.read_bytes()[self._read :].decode()


@pytest.fixture
def cat(ws: Workspace) -> Workspace:
    ws.write("MXTBUILD", CAT)
    ws.write("data/a.txt", "a\n")
    return ws


@pytest.fixture
def watch(cat: Workspace) -> Callable[..., Watch]:
    return lambda *args: Watch(cat, *args)


def built(change: str, paths: int) -> str:
    return f"changed: {change}\n{BUILT}watching {paths} paths; Ctrl-C ends\n"


BUILT = "  ok //:cat  T\n  mxt-out/cat\nbuilt: 1 action: 1 executed in T\n"


def test_each_change_is_built(ws: Workspace, watch: Callable[..., Watch]) -> None:
    told = watch("build", "//:cat", "--watch")
    assert sorted(told.said().splitlines()) == sorted((BUILT + "watching 7 paths; Ctrl-C ends").splitlines())

    ws.write("data/a.txt", "b\n")
    assert sorted(told.said().splitlines()) == sorted(built("data/a.txt", 7).splitlines())
    assert ws.read("mxt-out/cat/o") == "b\n"

    # same size, and the time put back
    file = ws.root / "data/a.txt"
    before = file.stat()
    file.write_text("c\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    told.said()
    assert ws.read("mxt-out/cat/o") == "c\n"

    ws.write("data/b.txt", "new\n")
    assert "changed: data/b.txt (new)\n" in told.said()
    assert ws.read("mxt-out/cat/o") == "c\nnew\n"
    (ws.root / "data/b.txt").unlink()
    assert "changed: data/b.txt (gone)\n" in told.said()
    assert ws.read("mxt-out/cat/o") == "c\n"

    (ws.root / "mxt-out/cat").unlink()
    assert "changed: mxt-out/cat (output)\n" in told.said()
    assert ws.read("mxt-out/cat/o") == "c\n"
    assert told.end() == (0, "stopped watching\n")


def test_errors_wait_for_the_next_change(ws: Workspace, watch: Callable[..., Watch]) -> None:
    told = watch("build", "//:cat", "--watch")
    told.said()
    ws.write("MXTBUILD", CAT + "genrule(\n")
    assert "error: MXTBUILD:2:8: '(' is never closed\n" in told.said()
    ws.write("MXTBUILD", CAT.replace("data/", "other/"))
    assert "error: " in told.said()  # nothing matches
    ws.write("other/x.txt", "other\n")
    said = told.said()
    assert said.startswith("changed: ")
    assert ws.read("mxt-out/cat/o") == "other\n"
    ws.write("MXTBUILD", CAT.replace("cat $(SRCS)", "exit 3; cat $(SRCS)"))
    assert "failed //:cat" in told.said()
    ws.write("MXTBUILD", CAT)
    assert "1 action: 1 cached" in told.said()
    assert told.end()[0] == 0


def test_half_written_and_renamed_over(ws: Workspace, watch: Callable[..., Watch]) -> None:
    """The ways in which editors save: anew and renamed, in two halves, gone and back."""
    told = watch("build", "//:cat", "--watch")
    told.said()
    file = ws.root / "data/a.txt"
    (ws.root / "data/.a.txt.swp").write_text("an editor's own")
    aside = ws.root / "data/a.txt~"
    aside.write_text("renamed\n")
    aside.replace(file)
    assert sorted(told.said().splitlines()) == sorted(built("data/a.txt", 7).splitlines())
    assert ws.read("mxt-out/cat/o") == "renamed\n"

    with file.open("w") as out:
        out.write("first half, ")
        out.flush()
        time.sleep(0.05)
        out.write("second half\n")
    assert told.said().count("changed: data/a.txt\n") == 1
    assert ws.read("mxt-out/cat/o") == "first half, second half\n"

    file.unlink()
    time.sleep(0.3)
    file.write_text("back\n")
    assert "changed: data/a.txt\n" in told.said()
    assert ws.read("mxt-out/cat/o") == "back\n"

    # what only editors care about builds nothing
    (ws.root / "data/.a.txt.swp").unlink()
    (ws.root / "data/#a.txt#").touch()
    time.sleep(0.6)
    assert told.end() == (0, "stopped watching\n")


def test_a_wrong_command_line_ends_at_once(ws: Workspace) -> None:
    result = ws.run("build", "//:a:b", "--watch")
    assert result.code == 2
    assert "watching" not in result.err
    assert ws.run("run", "//:a", "--watch").code == 2


def test_interrupted_in_the_middle_of_a_build(ws: Workspace, watch: Callable[..., Watch]) -> None:
    from tests.e2e.conftest import GATE

    ws.write("MXTBUILD", f'genrule(name = "g", outs = ["o"], cmd = "{GATE}; echo > $@")\n')
    told = watch("build", "//:g", "--watch", "--no-sandbox")
    wait_for(lambda: at_gate(ws))
    # a terminal's Ctrl-C goes to all; the build is a child of the watch
    (child,) = Path(f"/proc/{told.process.pid}/task/{told.process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGINT)
    assert told.process.wait(20) == 8


def test_terminated_it_takes_the_build_with_it(ws: Workspace, watch: Callable[..., Watch]) -> None:
    from tests.e2e.conftest import GATE

    ws.write("MXTBUILD", f'genrule(name = "g", outs = ["o"], cmd = "{GATE}; echo > $@")\n')
    told = watch("build", "//:g", "--watch")
    wait_for(lambda: at_gate(ws))
    told.process.terminate()
    assert told.process.wait(20) == 8


def test_the_verdict_of_a_test_is_watched(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'judge(name = "j", src = "x.txt")\n')
    ws.write("x.txt", "good")
    ws.write(
        "rules/judge.py",
        """
        import json
        from mxt.rule import Attributes, Label

        TEST = True

        class Attrs(Attributes):
            src: Label

        def actions(target):
            target.action(run=judge, inputs={"src": target.attrs.src}, outputs={"verdict": "v.json"})

        def judge(run):
            text = run.inputs["src"].read_text()
            run.outputs["verdict"].write_text(json.dumps({"passed": text == "good", "summary": text}))
        """,
    )
    assert ws.run("trust").code == 0
    told = Watch(ws, "test", "//:j", "--watch")
    assert "PASSED  //:j  good\n" in told.said()
    ws.write("x.txt", "bad")
    assert "FAILED  //:j  bad\n" in told.said()
    ws.write("x.txt", "good")
    assert "PASSED  //:j  good\n" in told.said()
    assert told.end()[0] == 0


def test_a_terminal_says_that_it_watches_and_leaves_no_trace(cat: Workspace) -> None:
    done = in_terminal(cat, 80, "build", "//:cat", "--watch", until="Ctrl-C ends", then=b"\x03")
    assert done.code == 0
    assert any("watching 7 paths; Ctrl-C ends" in "\n".join(screen) for screen in done.screens)
    assert [digits_away(line) for line in done.terminal.lines()] == [
        "  ok //:cat  T",
        "  mxt-out/cat",
        "built: 1 action: 1 executed in T",
        "stopped watching",
    ]
