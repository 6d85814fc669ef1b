"""An action that fails or does what it must not: what, where, what to do; nothing is recorded, nothing lost."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace, digits_away, wait_for


def gen(name: str, cmd: str, outs: str = "", srcs: str = "") -> str:
    outs = outs or ('"o"' if name == "x" else f'"{name}.o"')
    return f'genrule(name = "{name}", srcs = [{srcs}], outs = [{outs}], cmd = """{cmd}""")\n'


def test_a_failing_command(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        gen("bad", "for i in {1..40}; do echo line $$i; done; echo oops >&2; exit 7")
        + gen("next", "cp $< $@", srcs='":bad"')
        + gen("last", "cp $< $@", srcs='":next"'),
    )
    result = ws.build(":last", code=1)
    assert result.finished == {"//:bad": "failed", "//:next": "skipped", "//:last": "skipped"}
    lines = digits_away(result.err).splitlines()
    at = lines.index("error: //:bad: Genrule failed: exit status 7")
    end = [f"  | line {i}" for i in range(22, 41)] + ["  | oops"]
    assert lines[at + 1 : at + 21] == end
    assert lines[at + 21] == "  hint: the whole log: mxt log //:bad"
    assert ws.run("log", "//:bad").out.splitlines()[0] == "line 1"
    assert lines[-1] == "failed: 1 failed, 2 skipped in T"
    assert result.out == ""
    assert not any((ws.root / "mxt-out").iterdir())
    assert ws.build(":last", code=1).finished["//:bad"] == "failed"  # a failure is not remembered


def test_keep_going(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        gen("bad", "exit 1")
        + gen("after", "cp $< $@", srcs='":bad"')
        + gen("good", "sleep 0.2; echo > $@")
        + gen("better", "cp $< $@", srcs='":good"')
        + gen("bad_too", "sleep 0.3; exit 2"),
    )
    kept = ws.build("//...", "-k", "-j1", code=1)
    assert kept.finished == {
        "//:bad": "failed",
        "//:after": "skipped",
        "//:good": "executed",
        "//:better": "executed",
        "//:bad_too": "failed",
    }
    assert kept.err.count("\nerror: ") == 2
    assert (ws.root / "mxt-out/better/better.o").exists()  # what is whole is linked


def test_without_keep_going_nothing_more_is_started(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", gen("bad", "exit 1") + "".join(gen(f"g{i}", "sleep 0.1; touch $@") for i in range(6))
    )
    result = ws.build("//...", "-j1", code=1)
    assert result.finished["//:bad"] == "failed"
    assert "skipped" in result.finished.values()
    finished = [e for e in result.events if e["event"] == "action_finished"]
    assert len(finished) == 7


@pytest.mark.parametrize(
    ("cmd", "message"),
    [
        ("true", "did not make 'o'"),
        ("mkdir $@", "made 'o' as something other than a file"),
        ("mkfifo $@", "made 'o' as something other than a file"),
        ("ln -s nowhere $@", "made 'o' a link that leads to none of its outputs"),
        ("touch $@ $(RULEDIR)/extra", "made 'extra', which it does not declare"),
        ("touch $@; mkdir $(RULEDIR)/d; touch $(RULEDIR)/d/e", "made 'd', which it does not declare"),
        ("touch $(RULEDIR)/O", "did not make 'o'; made 'O', which it does not declare"),
    ],
)
def test_outputs_that_are_not_as_declared(ws: Workspace, cmd: str, message: str) -> None:
    ws.write("MXTBUILD", gen("x", cmd))
    for options in ([], ["--no-sandbox"]):
        result = ws.build(":x", *options, code=1)
        assert (
            f"error: //:x: {message}\n  hint: declare every output, and write temporary files to $TMPDIR\n"
            in result.err
        )


def test_an_output_folder_that_is_a_file_or_holds_a_pipe(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", gen("f", "rmdir $@; touch $@", outs='"d/"') + gen("p", "mkfifo $@/pipe", outs='"d2/"')
    )
    result = ws.build("//...", "-k", code=1)
    assert "//:f: made 'd' as something other than a folder" in result.err
    assert "pipe" in result.err
    assert result.finished == {"//:f": "failed", "//:p": "failed"}


@pytest.mark.parametrize(
    "cmd",
    [
        "echo x > here; touch $@",  # the execution root
        "echo x > /etc/x; touch $@",
        "echo x > /usr/x; touch $@",
        "echo x > /x; touch $@",
        "echo x >> in; touch $@",  # an input
        "rm in; touch $@",
        "chmod 777 in; touch $@",
        "touch in; touch $@",
        "mv in in2; touch $@",
        "echo x > dir/new; touch $@",
        "rm dir/f; touch $@",
        "echo x > mxt-out/made/made.o; touch $@",  # another target's output
        "rm mxt-out/made/made.o; touch $@",
        "chmod u+w mxt-out/made/made.o; touch $@",
    ],
)
def test_writing_where_one_must_not(ws: Workspace, cmd: str) -> None:
    ws.write("MXTBUILD", gen("made", "echo made > $@") + gen("x", cmd, srcs='"in", "dir", ":made"'))
    ws.write("in", "in\n")
    ws.write("dir/f", "f\n")
    result = ws.build(":x", code=1)
    assert "error: //:x: Genrule failed: exit status 1" in result.err
    assert "Read-only file system" in result.err or "Permission denied" in result.err or "busy" in result.err
    assert (ws.read("in"), ws.read("dir/f")) == ("in\n", "f\n")
    assert sorted(os.listdir(ws.root / "dir")) == ["f"]
    ws.build(":made")
    assert ws.read("mxt-out/made/made.o") == "made\n"


def test_what_is_not_declared_is_not_there(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("x", f"cat '{ws.root}/secret' > $@") + gen("y", "cat secret > $@"))
    ws.write("secret", "secret\n")
    result = ws.build("//...", "-k", code=1)
    assert result.err.count("No such file or directory") == 2


def test_no_network_and_no_other_processes(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        gen(
            "net",
            "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' ' > $@; ! (echo > /dev/tcp/127.0.0.1/80)",
        )
        + gen("ps", "ls -d /proc/[0-9]* | wc -l > $@"),
    )
    ws.build("//...")
    assert ws.read("mxt-out/net/net.o").split() == ["lo"]
    assert int(ws.read("mxt-out/ps/ps.o")) < 6


def test_outputs_must_not_name_this_machine(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD", gen("a", "pwd > $@") + gen("b", "mkdir -p $@; cp $< $@/deep", outs='"d/"', srcs='"names"')
    )
    ws.write("names", f"made in {ws.root}/x\n")
    result = ws.build("//...", "-k", code=1)
    assert (
        result.err.count("  hint: it would differ on another machine; write paths relative to the working")
        == 2
    )
    assert "//:a: output 'a.o' contains the path '/mxt/exec'" in result.err
    assert f"//:b: output 'd/deep' contains the path '{ws.root}'" in result.err
    ws.write("names", f"made in {ws.root}x and somewhere else\n")  # another folder that begins so
    ws.build(":b")


def test_a_binary_output_that_holds_the_path(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a", "head -c 100000 /dev/zero > $@; cat $< >> $@", srcs='"names"'))
    ws.write("names", f"{ws.root}")
    assert "contains the path" in ws.build(":a", code=1).err


def test_an_input_edited_while_the_action_runs(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("x", "cat $<; sleep 0.7; cat $< > $@", srcs='"in"'))
    ws.write("in", "old\n")

    def edit() -> None:
        wait_for(lambda: list(ws.root.glob("cache/evidence/*/*/log.txt")))
        time.sleep(0.2)
        (ws.root / "in").write_text("new\n")

    editor = threading.Thread(target=edit)
    editor.start()
    result = ws.build(":x", code=1)
    editor.join()
    assert (
        "error: //:x: its input 'in' changed while it ran, so nothing was recorded\n  hint: build again"
        in result.err
    )
    assert result.finished == {"//:x": "failed"}
    assert not list(ws.root.glob("cache/ac/*/*"))
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == "new\n"


def test_an_input_edited_and_put_back_while_the_action_runs(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("x", "sleep 0.7; cat $</* > $@", srcs='"dir"'))
    ws.write("dir/in", "old\n")

    def edit() -> None:
        wait_for(lambda: list(ws.root.glob("cache/evidence/*/*/log.txt")))
        time.sleep(0.2)
        (ws.root / "dir/in").write_text("new\n")
        (ws.root / "dir/in").write_text("old\n")

    time.sleep(0.1)  # long enough after writing that its times tell
    editor = threading.Thread(target=edit)
    editor.start()
    result = ws.build(":x", code=1)
    editor.join()
    assert "changed while it ran" in result.err


def test_a_command_that_is_killed(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("term", "kill -TERM $$$$") + gen("segv", "( kill -SEGV $$BASHPID ); touch $@"))
    result = ws.build("//...", "-k", code=1)
    assert "//:term: Genrule failed: killed by SIGTERM" in result.err
    assert "//:segv: Genrule failed: killed by SIGSEGV" in result.err


def test_a_command_that_does_not_exist(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("x", "frobnicate > $@"))
    assert "frobnicate: command not found" in ws.build(":x", code=1).err


def test_a_hanging_background_process_does_not_hang_the_build(ws: Workspace) -> None:
    seconds = f"1{os.getpid()}.5"  # no other process sleeps for so long
    ws.write("MXTBUILD", gen("x", f"(sleep {seconds} &) ; touch $@"))
    began = time.monotonic()
    ws.build(":x")
    ws.build(":x", "--no-sandbox", "--store", "other")
    assert time.monotonic() - began < 20
    assert not [line for line in _command_lines() if seconds in line]


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_a_log_of_garbage(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        gen(
            "x",
            "head -c 100000 /dev/urandom; printf '\\\\x1b[31m\\\\r\\\\nlong'; head -c 50000 /dev/zero; exit 1",
        ),
    )
    result = ws.build(":x", code=1)
    assert len(result.err) < 20_000


def test_temporary_files_are_gone_afterwards(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        gen("x", "mkdir -p $$TMPDIR/a/b; chmod 0 $$TMPDIR/a; mkdir $@; chmod 0 $@; exit 1", outs='"d"'),
    )
    ws.build(":x", code=1)
    ws.build(":x", "--no-sandbox", code=1)
    assert list((ws.root / "cache/tmp").iterdir()) == []
