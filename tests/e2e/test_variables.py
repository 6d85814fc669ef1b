"""Variables of an action: what is in the key is what the process sees, and nobody but the process."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.e2e.conftest import Workspace

RULE = """
    from mxt.rule import Attributes, Run, Target
    class Attrs(Attributes):
        variables: dict[str, str]
    def actions(target: Target) -> None:
        target.action(
            run=look,
            outputs={"o": "o.txt"},
            network=True,
            passthrough=("BOTH", "HOST_ONLY"),
            environment=target.attrs.variables,
        )
    def look(run: Run) -> None:
        import os
        names = ("BOTH", "HOST_ONLY", "http_proxy", "https_proxy")
        run.outputs["o"].write_text(" ".join(str(os.environ.get(n)) for n in names))
"""


@pytest.mark.parametrize("options", [(), ("--no-sandbox",)])
def test_what_is_keyed_wins_over_the_host(ws: Workspace, options: tuple[str, ...]) -> None:
    ws.write("rules/look.py", RULE)
    ws.write("MXTBUILD", 'look(name = "x", variables = {"BOTH": "keyed", "http_proxy": "keyed too"})\n')
    assert ws.run("trust").code == 0
    host = {"BOTH": "host", "HOST_ONLY": "a token", "http_proxy": "host", "https_proxy": "a proxy"}
    ws.build(":x", *options, env=host)
    assert ws.read("mxt-out/x/o.txt") == "keyed a token keyed too a proxy"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs the sandbox")
def test_a_library_to_load_is_the_actions_and_not_the_sandboxs(ws: Workspace) -> None:
    """bubblewrap runs on the host: what it cannot load there it says, in the action's log."""
    ws.write(
        "MXTBUILD",
        f"""
        platform(name = "p", arch = "{os.uname().machine}", env = {{"LD_DEBUG": "files", "LONG": "x" * 20000}})
        genrule(
            name = "x",
            platform = ":p",
            outs = ["o"],
            cmd = "unset LD_DEBUG; echo $${{#LONG}} > $@",
        )
        """,
    )
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == "20000\n"
    (log,) = (ws.root / "cache/evidence").glob("*/*/log.txt")
    loaded = log.read_text(encoding="utf-8")
    assert "file=libc.so.6" in loaded  # for the action's own shell
    assert "bwrap" not in loaded


PROBLEMS = {
    "": "the variable '' has a name that not every process can be given",
    "A=B": "the variable 'A=B' has a name that not every process can be given",
    "S*": "the variable 'S*' has a name that not every process can be given",
    "1ST": "the variable '1ST' has a name that not every process can be given",
    "MXT_REPORT_FD": "the variable 'MXT_REPORT_FD' is mxt's own",
    "NUL": "the variable 'NUL' holds a NUL, which no variable can",
    "LONG": "the variable 'LONG' takes 40004 bytes, at most 32768 can be passed everywhere",
}


def test_variables_that_cannot_be_passed_are_refused_at_analysis(ws: Workspace) -> None:
    values = {"NUL": '"a\\0b"', "LONG": '"x" * 40000'}
    ws.write("rules/look.py", RULE)
    ws.write("MXTBUILD", "")
    assert ws.run("trust").code == 0
    for number, (name, message) in enumerate(PROBLEMS.items()):
        variables = f'{{"{name}": ' + values.get(name, '"v"') + "}"
        ws.write(f"p{number}/MXTBUILD", f'platform(name = "p", arch = "any", env = {variables})\n')
        ws.write(f"a{number}/MXTBUILD", f'look(name = "x", variables = {variables})\n')
        of_platform = ws.build(f"//p{number}:p", "-n", code=1).err
        assert of_platform.splitlines()[0] == f"error: p{number}/MXTBUILD:1:1: platform 'p': {message}"
        of_action = ws.build(f"//a{number}:x", "-n", code=1).err
        assert (
            of_action.splitlines()[0] == f"error: a{number}/MXTBUILD:1:1: action '//a{number}:x': {message}"
        )
