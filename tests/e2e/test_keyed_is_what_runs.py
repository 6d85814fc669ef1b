"""What was keyed is what an action reads and runs, also when somebody edits files meanwhile."""

from __future__ import annotations

from tests.e2e.conftest import Workspace, wait_for

STAMP = """
from mxt.rule import Attributes, Label, Run, Target

class Attrs(Attributes):
    after: Label

def actions(target: Target) -> None:
    target.action(run=stamp, inputs={"after": target.attrs.after}, outputs={"out": "out.txt"})

def stamp(run: Run) -> None:
    run.outputs["out"].write_text("OLD")
"""

WAITING = """
genrule(name = "slow", srcs = ["go"], outs = ["o"], cmd = "sleep 1.5; cp $< $@")
stamp(name = "late", after = ":slow")
"""


def test_a_rule_edited_during_the_build_runs_as_it_was_trusted(ws: Workspace) -> None:
    ws.write("MXTBUILD", WAITING)
    ws.write("go", "")
    rule = ws.write("rules/stamp.py", STAMP)
    assert ws.run("trust").code == 0
    running = ws.start("build", ":late")
    wait_for(lambda: any((ws.root / "cache/evidence").glob("*/*/log.txt")))
    rule.write_text(rule.read_text().replace("OLD", "NEW"))
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert ws.read("mxt-out/late/out.txt") == "OLD"
    refused = ws.run("build", ":late")
    assert refused.code == 2, "a null build hid that a rule changed"
    assert "mxt trust" in refused.err
    assert ws.run("trust").code == 0
    assert ws.build(":late").executed == {"//:late"}
    assert ws.read("mxt-out/late/out.txt") == "NEW"


SPLIT = """
from mxt.rule import Attributes, Label, Run, Target

class Attrs(Attributes):
    rows: Label

def actions(target: Target) -> None:
    import pathlib, time
    pieces = target.split(target.attrs.rows, lines=2)
    pathlib.Path("cut-done").touch()
    time.sleep(1.5)  # the window in which the file may change
    for i, piece in enumerate(pieces):
        target.action(run=copy, name=f"{i}", inputs={"rows": piece}, outputs={"out": "out.txt"})

def copy(run: Run) -> None:
    run.outputs["out"].write_bytes(run.inputs["rows"].read_bytes())
"""


def test_rows_edited_after_they_were_cut_are_not_taken_for_what_was_keyed(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'cut(name = "x", rows = "rows.txt")')
    rows = ws.write("rows.txt", "1\n2\n3\n4\n")
    ws.write("rules/cut.py", SPLIT)
    assert ws.run("trust").code == 0
    running = ws.start("build", ":x")
    wait_for((ws.root / "cut-done").exists)
    with rows.open("r+") as file:
        file.write("9\n8\n7\n6\n")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "its input 'rows.txt' changed during the build" in err
    rows.write_text("1\n2\n3\n4\n")
    ws.build(":x")
    assert [ws.read(f"mxt-out/x/{i}/out.txt") for i in "01"] == ["1\n2\n", "3\n4\n"]


READS = """
from pathlib import Path
from mxt.rule import Attributes, Run, Target

DATA = ("words.txt",)

class Attrs(Attributes):
    pass

def actions(target: Target) -> None:
    target.action(run=look, outputs={"out": "out.txt"})

def look(run: Run) -> None:
    here = Path(__file__).parent
    seen = sorted(p.name for p in here.iterdir() if p.name != "__pycache__")
    run.outputs["out"].write_text((here / "words.txt").read_text() + " ".join(seen))
"""


def test_a_rule_sees_its_own_files_and_no_others(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'look(name = "x")')
    ws.write("rules/look.py", READS)
    ws.write("rules/words.txt", "hello\n")
    ws.write("rules/undeclared.txt", "no")
    ws.write("rules/other.py", READS)
    assert ws.run("trust").code == 0
    ws.build(":x")
    assert ws.read("mxt-out/x/out.txt") == "hello\nlook.py words.txt"
    ws.write("rules/undeclared.txt", "changed")
    assert ws.build(":x").executed == set()
    ws.write("rules/words.txt", "bye\n")
    assert ws.build(":x").executed == {"//:x"}


THREADS = """
from mxt.rule import Attributes, Resources, Run, Target

class Attrs(Attributes):
    cpus: int

def actions(target: Target) -> None:
    target.action(run=f, outputs={"out": "out.txt"}, resources=Resources(cpus=target.attrs.cpus))

def f(run: Run) -> None:
    run.outputs["out"].write_text(str(run.threads))
"""


def test_what_an_action_occupies_cannot_change_what_it_makes(ws: Workspace) -> None:
    ws.write("rules/t.py", THREADS)
    ws.write("MXTBUILD", 't(name = "x", cpus = 1)')
    assert ws.run("trust").code == 0
    ws.build(":x")
    assert ws.read("mxt-out/x/out.txt") == "1"
    ws.write("MXTBUILD", 't(name = "x", cpus = 2)')
    assert ws.build(":x").executed == set()
    ws.write("MXTBUILD", 't(name = "x", cpus = 0)')
    assert "must be at least 1" in ws.build(":x", code=1).err


def test_revoked_trust_is_noticed_by_a_null_build(ws: Workspace) -> None:
    ws.write("rules/t.py", THREADS)
    ws.write("MXTBUILD", 't(name = "x", cpus = 1)')
    assert ws.run("trust").code == 0
    assert ws.run("build", ":x").code == 0
    assert ws.run("build", ":x").out.startswith("up to date")
    assert ws.run("trust", "--revoke").code == 0
    assert ws.run("build", ":x").code == 2


def test_an_action_cannot_release_its_key(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", outs = ["o"], cmd = "ls /proc/self/fd | tr \\"\\\\n\\" \\" \\" > $@")',
    )
    ws.build(":x")
    assert set(ws.read("mxt-out/x/o").split()) <= {"0", "1", "2", "3"}, "3 is the folder that ls reads"


def test_a_genrule_that_needs_a_gpu_says_so(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "touch $@", gpus = 64)')
    assert "needs 64 GPUs, this machine has" in ws.build(":x", code=1).err
    ws.write("MXTBUILD", 'genrule(name = "x", outs = ["o"], cmd = "touch $@", gpus = -1)')
    assert "attribute 'gpus' of genrule 'x' must be at least 0, not -1" in ws.build(":x", code=1).err


def test_a_label_does_not_reach_into_another_package(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["sub/f.txt"], outs = ["o"], cmd = "cp $< $@")')
    ws.write("sub/MXTBUILD", "")
    ws.write("sub/f.txt", "")
    err = ws.build(":x", code=1).err
    assert "'//:sub/f.txt' reaches into the package '//sub'" in err
    assert "hint: write '//sub:f.txt'" in err


def test_a_test_without_a_verdict_has_not_passed(ws: Workspace) -> None:
    head = "from mxt.rule import Attributes\nTEST = True\nclass Attrs(Attributes): pass\n"
    ws.write(
        "rules/none.py", head + "def actions(t): t.action(run=f, outputs={'o': 'o'})\ndef f(run): pass\n"
    )
    ws.write(
        "rules/bad.py",
        head
        + "def actions(t): t.action(run=f, outputs={'verdict': 'v.json'})\n"
        + "def f(run): run.outputs['verdict'].write_text('{\"passed\": 1}')\n",
    )
    assert ws.run("trust").code == 0
    ws.write("MXTBUILD", 'none(name = "x")')
    result = ws.run("test", ":x")
    assert (result.code, "declares no output 'verdict'" in result.err) == (1, True)
    ws.write("MXTBUILD", 'bad(name = "x")')
    result = ws.run("test", ":x")
    assert (result.code, "not JSON with a boolean 'passed'" in result.err) == (1, True)


def test_a_build_does_not_hide_a_negative_verdict(ws: Workspace) -> None:
    ws.write(
        "rules/worse.py",
        "from mxt.rule import Attributes\nTEST = True\nclass Attrs(Attributes): pass\n"
        "def actions(t): t.action(run=f, outputs={'verdict': 'v.json'})\n"
        "def f(run):\n    run.report(summary='3 rows left out')\n"
        '    run.outputs[\'verdict\'].write_text(\'{"passed": false, "summary": "worse by 2"}\')\n',
    )
    ws.write("MXTBUILD", 'worse(name = "x")')
    assert ws.run("trust").code == 0
    err = ws.build(":x").err
    assert "3 rows left out" in err
    assert "warning: //:x did not pass: worse by 2" in err
    assert ws.run("test", ":x").code == 3
