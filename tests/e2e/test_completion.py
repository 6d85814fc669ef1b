"""Shell completion: the candidates by themselves, and as real shells show them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxt.cli.complete import LABEL_VERBS, _parser, _values
from mxt.cli.verbs import VERBS
from tests.e2e.conftest import Workspace

RULE = 'genrule(name = "{0}", outs = ["{0}.txt"], cmd = "echo > $@")\n'


@pytest.fixture
def known(ws: Workspace) -> Workspace:
    """A workspace whose labels a build has seen."""
    ws.write("MXTBUILD", RULE.format("top"))
    ws.write("recipes/MXTBUILD", RULE.format("demo") + RULE.format("demo.train") + RULE.format("demo.eval"))
    ws.write("recipes/old/MXTBUILD", RULE.format("x"))
    ws.write("data/sets/MXTBUILD", RULE.format("one") + RULE.format("two"))
    assert ws.run("build", "-n", "//...").code == 0
    return ws


def offered(ws: Workspace, *words: str, cwd: str = "", **env: str) -> list[str]:
    done = ws.run("complete", *words, cwd=cwd, env=env)
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def test_verbs_and_options(known: Workspace) -> None:
    assert offered(known, "") == list(VERBS)
    assert offered(known, "doc") == ["doctor"]
    assert offered(known, "nonesuch", "") == []
    assert "complete" not in offered(known, "")
    assert offered(known, "build", "--ke") == ["--keep-going"]
    assert offered(known, "build", "--keep-going", "--ke") == []
    assert offered(known, "build", "-k", "--ke") == []
    assert offered(known, "init", "--ci", "") == ["github", "gitlab", "none"]
    assert offered(known, "init", "--ci=gi") == ["--ci=github", "--ci=gitlab"]
    assert offered(known, "init", "--data", "a", "--da") == ["--data"]
    assert offered(known, "toolchain", "") == ["lock", "check", "pin"]
    assert offered(known, "toolchain", "check", "//:t") == ["//:top"]
    assert offered(known, "build", "-j", "") == []
    assert offered(known, "build", "--events", "") == ["\tfiles"]
    assert offered(known, "build", "--store=") == ["\tfolders"]
    assert offered(known, "init", "") == ["\tfolders"]
    assert offered(known, "verify", "./x") == ["\tfiles"]


def test_every_verb_completes_options_and_those_known_take_labels_alone(known: Workspace) -> None:
    for verb in VERBS:
        assert "--help" in offered(known, verb, "--h"), verb
    for verb in LABEL_VERBS:
        places = [a for a in _parser(verb)._actions if not a.option_strings]
        assert [a.metavar for a in places] == ["LABEL"], verb
        assert places[0].choices is None


def test_labels_a_folder_at_a_time(known: Workspace) -> None:
    assert offered(known, "build", "") == ["//:", "//recipes:", "//data/", "//recipes/", "//..."]
    assert offered(known, "build", "//") == ["//:", "//recipes:", "//data/", "//recipes/", "//..."]
    assert offered(known, "build", "//rec") == ["//recipes:", "//recipes/"]
    assert offered(known, "build", "//recipes:demo.") == ["//recipes:demo.eval", "//recipes:demo.train"]
    everything = ["//recipes:demo", "//recipes:demo.eval", "//recipes:demo.train", "//recipes:all"]
    assert offered(known, "build", "//recipes:") == everything
    # one package is left: its targets at once
    assert offered(known, "build", "//data/s") == ["//data/sets:one", "//data/sets:two", "//data/sets:all"]
    assert offered(known, "build", "//recipes/.") == ["//recipes/..."]
    assert offered(known, "build", "-k", "//data/sets:o", cwd="recipes") == ["//data/sets:one"]
    assert offered(known, "build", "//x", "--", "-//data/sets:o") == ["-//data/sets:one"]
    assert offered(known, "build", "//nope:") == []


def test_labels_relative_to_a_folder(known: Workspace) -> None:
    assert offered(known, "build", ":t") == [":top"]
    assert offered(known, "build", ":demo.t", cwd="recipes") == [":demo.train"]
    assert offered(known, "build", "demo.t", cwd="recipes") == ["demo.train"]
    assert offered(known, "build", "sets:o", cwd="data") == ["sets:one"]
    assert offered(known, "build", "ol", cwd="recipes") == ["old:x"]
    assert offered(known, "build", "", cwd="data/sets") == ["//", ":one", ":two", ":all"]
    (known.home / "elsewhere").mkdir()
    away = Workspace(known.home / "elsewhere", known.home)
    assert offered(away, "build", "//") == []
    assert offered(away, "build", "//rec", MXT_WORKSPACE=str(known.root)) == ["//recipes:", "//recipes/"]


def test_what_no_build_has_seen_and_what_is_gone(known: Workspace) -> None:
    known.write(
        "fresh/MXTBUILD", '# name = "no"\nx(name = "a")\ny(\n    name = "b.c",\n    other_name = "no",\n)\n'
    )
    assert offered(known, "build", "//fr") == ["//fresh:a", "//fresh:b.c", "//fresh:all"]
    shutil.rmtree(known.root / "recipes" / "old")
    known.write("data/sets/MXTBUILD", RULE.format("three"))
    assert known.run("build", "-n", "//data/sets:three").code == 0
    assert offered(known, "build", "//recipes") == [
        "//recipes:demo",
        "//recipes:demo.eval",
        "//recipes:demo.train",
        "//recipes:all",
    ]
    assert offered(known, "build", "//data/sets:") == ["//data/sets:three"]


def test_nothing_is_loaded_and_nothing_fails(known: Workspace) -> None:
    known.write("rules/own.py", "raise SystemExit('completion must not run this')\n")
    known.write("recipes/MXTBUILD", "this is no Starlark")
    assert offered(known, "build", "//recipes:demo.t") == ["//recipes:demo.train"]
    known.write("cache/state/labels.txt", b"\xff\xfe damaged")
    assert offered(known, "build", "//data/se") == ["//data/sets:one", "//data/sets:two", "//data/sets:all"]
    (known.root / "cache" / "state" / "labels.txt").unlink()
    (known.root / "MXTBUILD").unlink()
    assert offered(known, "build", "//") == []


# words that nobody can offer without looking into files: numbers, sizes, names that an action chose
FREE = {"N", "SIZE", "log --action", "log --file"}


def test_every_word_of_every_verb_is_offered_or_known_to_be_free(
    known: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb that calls its words by a new name shows up here, rather than as a Tab that does nothing."""
    known.build(":top")
    monkeypatch.chdir(known.root)
    without = []
    for verb in VERBS:
        for action in _parser(verb)._actions:
            name = f"{verb} {max(action.option_strings, key=len, default=action.dest)}"
            if action.nargs != 0 and not FREE & {str(action.metavar), name} and not _values(action, ""):
                without.append(f"{name} {action.metavar}")
    assert without == []


def test_builds_plans_and_recipes(known: Workspace) -> None:
    known.build(":top")
    known.build("//recipes:demo")
    identity = json.loads(known.run("log", "--builds", "--json").out)["builds"][0]["build"]
    assert offered(known, "explain", "--between", "") == ["last", "last~1"]
    assert offered(known, "explain", "--between", "last", identity[:4]) == [identity]
    assert offered(known, "plan", "show", "la") == ["last", "last~1", "\tfiles"]
    assert offered(known, "plan", "pin", "//re") == ["//recipes:", "//recipes/", "\tfiles"]
    assert offered(known, "query", "//:") == ["//:top"]
    assert offered(known, "init", "--recipe", "tiny_sft_l") == ["tiny_sft_lora"]


def test_labels_of_the_workspace_that_the_line_names(known: Workspace) -> None:
    away = Workspace(known.home / "elsewhere", known.home)
    assert offered(away, "build", "--workspace", str(known.root), "//:") == ["//:top"]
    assert offered(away, "build", f"--workspace={known.root}", "//:") == ["//:top"]


# ---- real shells ------------------------------------------------------------------------------------


class Shell:
    """A shell on a terminal of its own, in which `mxt` prints the words that it was given."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        # with the terminal as its own: fish asks for job control
        self.process, self.master = pty.fork()
        if self.process == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
            os.chdir(cwd)
            os.execve(argv[0], argv, env)
        self.seen = ""

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str, seconds: float = 20) -> None:
        """Wait until `text` is shown."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")

    def settle(self, quiet: float = 0.4, seconds: float = 10) -> None:
        """Wait until nothing has been shown for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and select.select([self.master], [], [], quiet)[0]:
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.process, 0)


WORDS = 'mxt() { local w; for w in "$@"; do printf "[%s]" "$w"; done >> "$LOG"; echo >> "$LOG"; }\n'
FISH_WORDS = 'function mxt; for w in $argv; printf "[%s]" $w >> $LOG; end; echo >> $LOG; end\n'


@pytest.fixture
def shell(request: pytest.FixtureRequest, known: Workspace) -> Iterator[Shell]:
    name: str = request.param
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    script = known.run("completion", name)
    assert script.code == 0
    file = known.home / f"mxt.{name}"
    start = {
        "bash": script.out + WORDS,
        "zsh": "autoload -Uz compinit && compinit -u -D\n" + script.out + WORDS,
        "fish": script.out + FISH_WORDS,
    }[name]
    file.write_text(start)
    argv = {
        "bash": [program, "--norc", "--noprofile", "-i"],
        "zsh": [program, "-f", "-i"],
        "fish": [program, "--no-config", "-i"],
    }[name]
    env = {**known.env, "TERM": "xterm", "LOG": str(known.home / "log"), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
    one = Shell(argv, known.root, env)
    one.settle()
    # the words as typed are shown as well, what they print is not
    one.send(f"source {file}; echo READY''=\r")
    one.until("READY=")
    one.settle()
    yield one
    one.close()


def becomes(shell: Shell, known: Workspace, line: str) -> str:
    """The words of a line after a Tab and Enter, each in brackets."""
    log = known.home / "log"
    log.unlink(missing_ok=True)
    # shells complete before they read on: what is typed behind the Tab waits
    shell.send(f"{line}\t")
    shell.settle(0.1)
    shell.send("\r")
    end = time.monotonic() + 20
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < end, shell.seen
        time.sleep(0.01)
    return log.read_text().removesuffix("\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"], indirect=True)
def test_a_real_shell(shell: Shell, known: Workspace) -> None:
    assert becomes(shell, known, "mxt doct") == "[doctor]"
    assert becomes(shell, known, "mxt build //recipes:demo.tr") == "[build][//recipes:demo.train]"
    assert becomes(shell, known, "mxt build --keep-g") == "[build][--keep-going]"
    assert becomes(shell, known, "mxt build -k //data/sets:o") == "[build][-k][//data/sets:one]"
    assert becomes(shell, known, "mxt init --ci=githu") == "[init][--ci=github]"
    # no space behind what goes on
    assert becomes(shell, known, "mxt build //da") == "[build][//data/]"
    # a list: all that fit, and the line unchanged but for what they share
    shell.settle()
    shell.seen = ""
    shell.send("mxt build //recipes:d\t")
    shell.settle()
    shell.send("\t\t")
    for name in ("demo.eval", "demo.train"):
        shell.until(name)
