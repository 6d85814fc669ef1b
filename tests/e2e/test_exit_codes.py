"""0 fine, 1 build failed, 2 command line or workspace, 3 tests failed, 8 interrupted: as Bazel's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace, wait_for

VERDICT = """
    import json
    from mxt.rule import Attributes

    TEST = True

    class Attrs(Attributes):
        passed: bool
        broken: bool = False

    def actions(target):
        params = {"passed": target.attrs.passed, "broken": target.attrs.broken}
        target.action(run=run, outputs={"verdict": "verdict.json"}, params=params)

    def run(run):
        if run.params["broken"]:
            raise run.fail("the test cannot be made", hint="mend it")
        text = json.dumps({"passed": run.params["passed"], "summary": "2 of 3"})
        run.outputs["verdict"].write_text(text)
"""


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("codes")
    workspace = Workspace(folder / "ws", folder / "home")
    workspace.write("rules/verdict.py", VERDICT)
    workspace.write(
        "MXTBUILD",
        """
        genrule(name = "good", outs = ["g"], cmd = "echo > $@")
        genrule(name = "bad", outs = ["b"], cmd = "exit 1", tags = ["manual"])
        genrule(name = "slow", outs = ["s"], cmd = "sleep 60", tags = ["manual"])
        verdict(name = "yes", passed = True)
        verdict(name = "no", passed = False)
        verdict(name = "broken", passed = True, broken = True, tags = ["manual"])
        """,
    )
    workspace.run("trust")
    return workspace


@pytest.mark.parametrize(
    ("code", "args"),
    [
        (0, ["build", ":good"]),
        (0, ["build", "-n", ":bad"]),
        (0, ["build", ":no"]),  # building a test is not judging it
        (0, ["test", ":yes"]),
        (0, ["--help"]),
        (0, ["--version"]),
        (0, ["trust"]),
        (0, ["gc", "-n"]),
        (1, ["build", ":bad"]),
        (1, ["build", ":nope"]),
        (1, ["build", "//nope:x"]),
        (1, ["test", ":broken"]),
        (1, ["test", ":good"]),  # no tests there
        (1, ["log", ":good#x"]),
        (2, []),
        (2, ["bild", ":good"]),
        (2, ["build"]),
        (2, ["build", "--nonsense", ":good"]),
        (2, ["build", "-j", "0", ":good"]),
        (2, ["build", "-j", "many", ":good"]),
        (2, ["build", "/good"]),
        (2, ["build", "--workspace", "/nowhere", ":good"]),
        (2, ["build", "--store", "MXTBUILD", ":good"]),
        (2, ["build", "--store", ".", ":good"]),
        (3, ["test", ":no"]),
        (3, ["test", "//..."]),
    ],
)
def test_exit_code(ws: Workspace, code: int, args: list[str]) -> None:
    result = ws.run(*args)
    assert result.code == code, result.err
    if code in (1, 2) and args:
        assert "error: " in result.err


def test_outside_a_workspace(ws: Workspace, tmp_path: Path) -> None:
    ws2 = Workspace(tmp_path / "empty", ws.home)
    result = ws2.run("build", "//...")
    assert result.code == 2
    assert result.err == (
        f"error: no MXTBUILD in '{ws2.root}' or above it, so this is not a workspace\n"
        "  hint: make an empty one in your project's folder (touch MXTBUILD), or pass --workspace\n"
    )


def test_verdicts_are_shown_and_cached(ws: Workspace) -> None:
    result = ws.run("test", ":yes", ":no")
    assert result.out.splitlines()[-3:] == [
        "PASSED  //:yes  2 of 3",
        "FAILED  //:no  2 of 3",
        "2 tests: 1 passed, 1 failed",
    ]
    again = ws.run("test", ":yes", ":no")
    assert "running" not in again.err
    assert again.code == 3


def test_a_test_that_cannot_be_built(ws: Workspace) -> None:
    result = ws.run("test", "-k", ":broken", ":no")
    assert result.code == 1
    assert "error: //:broken: the test cannot be made\n  hint: mend it\n" in result.err
    assert result.out.splitlines() == [
        "NO RESULT  //:broken",
        "FAILED  //:no  2 of 3",
        "2 tests: 0 passed, 1 failed",
    ]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(ws: Workspace, sign: signal.Signals) -> None:
    process = ws.start("build", ":slow", "--store", f"store{sign}")
    wait_for(lambda: list(ws.root.glob(f"store{sign}/evidence/*/*/log.txt")))
    process.send_signal(sign)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 8, err
    assert out == ""
    assert err.splitlines()[-2].startswith("interrupted: 1 interrupted in ")
    assert err.splitlines()[-1] == (
        "  hint: finished actions are kept, unfinished ones resume: run the same command again"
    )


def test_output_to_a_closed_pipe(ws: Workspace) -> None:
    import subprocess

    done = subprocess.run(
        [
            "bash",
            "-c",
            'set -o pipefail; python_() { "$@"; }; python_ "$@" | head -c 1',
            "x",
            *ws.command("--help"),
        ],
        cwd=ws.root,
        env=ws.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
