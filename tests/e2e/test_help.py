"""Help is found, has examples, and every example parses."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module

import pytest

from mxt.cli.verbs import VERBS
from tests.e2e.conftest import Workspace


def mxt(tmp: Workspace, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        tmp.command(*args),
        cwd=tmp.root,
        env={**tmp.env, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples(ws: Workspace, verb: str) -> None:
    done = mxt(ws, verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: mxt {verb} ")
    assert VERBS[verb].capitalize() in done.stdout
    examples = re.findall(rf"^  mxt {verb}\b", done.stdout.partition("\nexamples:\n")[2], re.MULTILINE)
    assert len(examples) >= 1
    assert max(map(len, done.stdout.splitlines())) <= 110
    assert mxt(ws, verb, "-h").stdout == done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_examples_are_command_lines(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example is parsed and not run: one waits for changes, another reads every installed file."""
    module = import_module(f"mxt.cli.{verb}")
    parser = ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    parsed = 0
    for line in module.EXAMPLES.splitlines():
        if not line.startswith(f"  mxt {verb}"):
            continue
        command = re.split(r"\s{2,}| [|>] ", line.strip())[0]
        words = shlex.split(command)[2:]
        if getattr(module, "TAKES_ARGUMENTS", False) and "--" in words:
            words = words[: words.index("--")]
        try:
            parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{command}: {capsys.readouterr().err}")
        parsed += 1
    assert parsed >= 1


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_imports_nothing_that_takes_long(ws: Workspace, verb: str) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from mxt.cli.main import main; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *([verb] if verb else []), "--help"],
        cwd=ws.root,
        env=ws.env,
        capture_output=True,
        text=True,
    )
    slow = {"blake3", "cryptography", "html", "networkx", "pydantic", "rich", "starlark", "torch", "yaml"}
    slow |= {"mxt.cli.session", "mxt.loading.workspace"}
    assert not slow & set(done.stderr.split())


def test_no_verb_shows_help(ws: Workspace) -> None:
    bare, asked = mxt(ws), mxt(ws, "--help")
    assert (bare.returncode, asked.returncode) == (2, 0)
    assert bare.stdout == asked.stdout == mxt(ws, "help").stdout == mxt(ws, "-h").stdout
    for verb, summary in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(summary)}$", asked.stdout, re.MULTILINE)


def test_an_unknown_verb(ws: Workspace) -> None:
    done = mxt(ws, "biuld", "//x")
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: unknown verb 'biuld', did you mean 'build'?\n  hint: 'mxt --help' lists the verbs\n"
    )
    assert mxt(ws, "wibble").stderr.startswith("error: unknown verb 'wibble'\n")


def test_an_unknown_option(ws: Workspace) -> None:
    done = mxt(ws, "build", "--jbos", "3", "//x")
    assert done.returncode == 2
    assert "--jbos" in done.stderr


def test_version(ws: Workspace) -> None:
    assert re.fullmatch(r"mxt \d+\.\d+\.\d+\S*\n", mxt(ws, "--version").stdout)
