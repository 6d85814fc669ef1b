"""Help is found, has examples, and every example parses."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from mxt.cli.main import VERBS
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
def test_examples_are_command_lines(ws: Workspace, verb: str) -> None:
    """Each example is run in an empty workspace: it may fail, but not because of its options."""
    text = mxt(ws, verb, "--help").stdout.partition("\nexamples:\n")[2]
    for line in text.splitlines():
        if not line.startswith(f"  mxt {verb}"):
            continue
        command = re.split(r"\s{2,}", line.strip())[0].split(" | ")[0]
        done = mxt(ws, *shlex.split(command)[1:])
        assert "usage:" not in done.stderr, f"{command}: {done.stderr}"


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
