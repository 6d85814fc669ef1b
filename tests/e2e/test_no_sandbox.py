"""Without a sandbox: said once, inputs are copies, the run says so, and the key is the same."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import Workspace

WARNING = "warning: no sandbox ({}): actions run on copies\n"
FILES = """
    genrule(name = "made", outs = ["o"], cmd = "echo made > $@")
    genrule(name = "x", srcs = ["in", "dir", ":made"], outs = ["o2", "d/"], tools = ["tool.sh"],
        cmd = "./tool.sh > $(location o2); cat in dir/f mxt-out/made/o >> $(location o2); "
            + "echo spoilt > in; rm dir/f; echo spoilt > mxt-out/made/o; echo $$TZ $$LC_ALL > $(RULEDIR)/d/env")
"""


def files(ws: Workspace) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in", "in\n")
    ws.write("dir/f", "f\n")
    ws.write("tool.sh", "#!/bin/sh\necho tool\n").chmod(0o755)


def runs(ws: Workspace) -> list[dict[str, object]]:
    return [json.loads(p.read_text())["payload"] for p in Path(ws.root, "cache/runs").glob("*/*/*.json")]


def test_said_once_and_inputs_are_copies(ws: Workspace) -> None:
    files(ws)
    result = ws.build("//...", "-v", env={"MXT_SANDBOX": "none"})
    assert result.err.count(WARNING.format("MXT_SANDBOX=none")) == 1
    assert result.err.count("warning") == 1
    # what the command did to its inputs it did to copies
    assert (ws.read("in"), ws.read("dir/f"), ws.read("mxt-out/made/o")) == ("in\n", "f\n", "made\n")
    assert ws.read("mxt-out/x/o2") == "tool\nin\nf\nmade\n"
    assert ws.read("mxt-out/x/d/env") == "UTC C.UTF-8\n"
    assert {run["sandbox"] for run in runs(ws)} == {"none"}
    again = ws.build("//...", "--no-sandbox")
    assert "warning" not in again.err  # nothing ran


def test_the_option_says_it_too(ws: Workspace) -> None:
    files(ws)
    assert ws.build("//...", "--no-sandbox").err.count(WARNING.format("--no-sandbox")) == 1


def test_a_missing_bubblewrap(ws: Workspace) -> None:
    files(ws)
    fake = ws.home / "bin/bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    result = ws.build("//...", env={"PATH": f"{fake.parent}:/usr/bin:/bin"})
    assert WARNING.format("bwrap is missing or not permitted") in result.err


def test_the_key_is_the_same(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["in"], outs = ["o"], cmd = "cat $< > $@")')
    ws.write("in", "in\n")
    ws.build(":x")
    assert {run["sandbox"] for run in runs(ws)} == {"bubblewrap"}
    assert ws.build(":x", "--no-sandbox").finished == {"//:x": "cached"}
    loose = ws.build(":x", "--no-sandbox", "--store", "other")
    tight = ws.build(":x")
    assert loose.events[-2]["key"] == tight.events[-2]["key"]


def test_the_environment_is_private_too(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", outs = ["o"], cmd = "env | cut -d= -f1 | sort > $@; test -d $$HOME && test -d $$TMPDIR; case $$HOME in /tmp/home) exit 1;; esac; umask >> $@")',
    )
    ws.build(":x", "--no-sandbox", env={"SECRET": "1"})
    seen = ws.read("mxt-out/x/o").split()
    assert set(seen) - {"MXT_ACTION", "PWD", "SHLVL", "_"} == {
        "HOME", "LC_ALL", "PATH", "SOURCE_DATE_EPOCH", "TMPDIR", "TZ", "0022"
    }  # fmt: skip


def test_a_python_rule(ws: Workspace) -> None:
    ws.write(
        "rules/where.py",
        """
        from mxt.rule import Attributes, Label

        class Attrs(Attributes):
            src: Label

        def actions(target):
            target.action(run=run, inputs={"src": target.attrs.src}, outputs={"o": "o"})

        def run(run):
            text = run.inputs["src"].read_text()
            run.inputs["src"].chmod(0o644)
            run.inputs["src"].write_text("spoilt")
            run.outputs["o"].write_text(text)
        """,
    )
    ws.run("trust")
    ws.write("MXTBUILD", 'where(name = "w", src = "in")\n')
    ws.write("in", "in\n")
    ws.build(":w", "--no-sandbox")
    assert (ws.read("in"), ws.read("mxt-out/w/o")) == ("in\n", "in\n")
    result = ws.build(":w", "--store", "other", code=1)
    assert "Read-only file system" in result.err
