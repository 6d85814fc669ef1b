"""mxt build -n: what would run and under which keys; nothing is run or made."""

from __future__ import annotations

import re

from tests.e2e.conftest import Workspace


def test_dry_run(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", srcs = ["in.txt"], outs = ["a.txt"], cmd = "cat $< > $@")
        genrule(name = "b", srcs = [":a"], outs = ["b.txt"], cmd = "cat $< > $@")
        genrule(name = "c", outs = ["c.txt"], cmd = "echo c > $@")
        """,
    )
    ws.write("in.txt", "one\n")
    first = ws.run("build", "-n", "//...")
    assert re.sub("[0-9a-f]{12}", "K", first.out) == (
        "  run       K  //:a  (never built here)\n"
        "  later    ~K  //:b  (reads //:a)\n"
        "  run       K  //:c  (never built here)\n"
        "~: known when the inputs are made; shown is a digest of all they are made from\n"
        "3 actions: 2 to run, 1 after them, 0 cached\n"
    )
    assert (first.code, first.err) == (0, "")
    assert not any((ws.root / "mxt-out").iterdir())
    keys = re.findall(" ([0-9a-f]{12})", first.out)

    built = ws.build("//...")
    made = {e["label"]: e["key"][:12] for e in built.events if e["event"] == "action_finished"}
    assert keys == [made["//:a"], made["//:c"]]
    assert ws.run("build", "--dry-run", "//...").out == (
        f"  cached    {made['//:a']}  //:a\n"
        f"  cached    {made['//:b']}  //:b\n"
        f"  cached    {made['//:c']}  //:c\n"
        "3 actions: 0 to run, 0 after them, 3 cached\n"
    )
    ws.write("in.txt", "two\n")
    second = ws.run("build", "-n", ":b").out
    assert "  run     " in second
    assert "(inputs.in.txt: file " in second
    assert ws.read("mxt-out/b/b.txt") == "one\n"


def test_dry_run_of_an_impossible_graph_fails_like_a_build(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", srcs = ["gone"], outs = ["o"], cmd = "")')
    assert ws.run("build", "-n", ":a").code == 1


def test_what_stands_for_a_key_changes_with_what_is_read(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", srcs = ["in.txt"], outs = ["a.txt"], cmd = "cat $< > $@")
        genrule(name = "b", srcs = [":a"], outs = ["b.txt"], cmd = "cat $< > $@")
        """,
    )

    def likeness(text: str) -> str:
        ws.write("in.txt", text)
        (found,) = re.findall("~([0-9a-f]{12})", ws.run("build", "-n", ":b").out)
        return str(found)

    one = likeness("one\n")
    assert likeness("two\n") != one
    assert likeness("one\n") == one


def test_what_waits_for_something_refused_cannot_run_either(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        half(name = "x")
        genrule(name = "a", outs = ["a.txt"], cmd = "echo > $@")
        genrule(name = "b", srcs = [":a"], outs = ["b.txt"], cmd = "cat $< > $@")
        genrule(name = "y", srcs = [":b", ":x"], outs = ["y.txt"], cmd = "echo > $@")
        genrule(name = "z", srcs = [":y"], outs = ["z.txt"], cmd = "cat $< > $@")
        """,
    )
    ws.write(
        "rules/half.py",
        """
        from mxt.rule import Attributes, Run, Target, not_yet
        class Attrs(Attributes):
            pass
        def actions(target: Target) -> None:
            target.action(run=half, outputs={"o": "o.txt"}, refuse=not_yet("the other half"))
        def half(run: Run) -> None:
            pass
        """,
    )
    assert ws.run("trust").code == 0
    assert re.sub("[0-9a-f]{12}", "K", ws.run("build", "-n", "//:z").out) == (
        "  run       K  //:a  (never built here)\n"
        "  later    ~K  //:b  (reads //:a)\n"
        "  absent    K  //:x  (not implemented yet: the other half)\n"
        "  blocked  ~K  //:y  (needs //:x)\n"
        "  blocked  ~K  //:z  (needs //:x)\n"
        "~: known when the inputs are made; shown is a digest of all they are made from\n"
        "5 actions: 1 to run, 1 after them, 0 cached, 1 that cannot run, 2 behind those\n"
    )
    explained = ws.run("explain", "//:z").out
    assert "//:z cannot run: needs //:x\n" in explained
    assert explained.endswith("2 of 5 actions would run, 3 cannot\n")
    looked = ws.run("doctor", "//:z", env={"COLUMNS": "120"}).out
    assert "5 actions: 2 to run, 1 that cannot run, 2 behind those, 0 cached" in looked


def test_actions_of_one_key_are_run_once_and_counted_so(ws: Workspace) -> None:
    ws.write("MXTBUILD", '[same(name = name) for name in ("a", "b", "c")]\n')
    ws.write(
        "rules/same.py",
        """
        from mxt.rule import Attributes, Run, Target
        class Attrs(Attributes):
            pass
        def actions(target: Target) -> None:
            target.action(run=same, outputs={"o": "o.txt"})
        def same(run: Run) -> None:
            run.outputs["o"].write_text("one")
        """,
    )
    assert ws.run("trust").code == 0
    done = ws.run("build", "-n", "//...")
    assert done.out.endswith("\n3 actions: 1 to run (2 more with a key of theirs), 0 after them, 0 cached\n")
    assert list(ws.build("//...").finished.values()).count("executed") == 1


def test_a_refused_action_has_a_key_and_its_reason(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'half(name = "x")\nrest(name = "y", data = ":x")\n')
    ws.write(
        "rules/half.py",
        """
        from mxt.rule import Attributes, Refusal, Run, Target, not_yet
        class Attrs(Attributes):
            pass
        def actions(target: Target) -> None:
            target.action(run=half, outputs={"o": "o.txt"}, refuse=not_yet("the other half", hint="wait"))
        def half(run: Run) -> None:
            pass
        """,
    )
    ws.write(
        "rules/rest.py",
        """
        from mxt.rule import Attributes, Label, Refusal, Run, Target
        class Attrs(Attributes):
            data: Label
        def actions(target: Target) -> None:
            loose = Refusal("unpinned", "it is loose", "pin it")
            target.action(run=rest, inputs={"i": target.attrs.data}, outputs={"o": "o.txt"}, refuse=loose)
        def rest(run: Run) -> None:
            pass
        """,
    )
    assert ws.run("trust").code == 0
    assert re.sub("[0-9a-f]{12}", "K", ws.run("build", "-n", "//...").out) == (
        "  absent    K  //:x  (not implemented yet: the other half)\n"
        "  unpinned ~K  //:y  (it is loose)\n"
        "~: known when the inputs are made; shown is a digest of all they are made from\n"
        "2 actions: 0 to run, 0 after them, 0 cached, 2 that cannot run\n"
    )
    both = ws.build("//...", code=1)
    assert both.finished == {}
    assert both.err.splitlines()[:-1] == [
        "error: //:x: not implemented yet: the other half",
        "  hint: wait",
        "error: //:y: it is loose",
        "  hint: pin it",
    ]
    # what was asked for comes first
    assert ws.build("//:y", code=1).err.startswith("error: //:y: it is loose\n")
    kept = ws.build("-k", "//...", code=1)
    assert kept.finished == {"//:x": "failed", "//:y": "skipped"}
