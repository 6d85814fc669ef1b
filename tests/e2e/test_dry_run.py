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
        "  run     K  //:a  (never built here)\n"
        "  later   ------------  //:b  (reads //:a)\n"
        "  run     K  //:c  (never built here)\n"
        "3 actions: 2 to run, 1 after them, 0 cached\n"
    )
    assert (first.code, first.err) == (0, "")
    assert not any((ws.root / "mxt-out").iterdir())
    keys = re.findall("[0-9a-f]{12}", first.out)

    built = ws.build("//...")
    made = {e["label"]: e["key"][:12] for e in built.events if e["event"] == "action_finished"}
    assert keys == [made["//:a"], made["//:c"]]
    assert ws.run("build", "--dry-run", "//...").out == (
        f"  cached  {made['//:a']}  //:a\n"
        f"  cached  {made['//:b']}  //:b\n"
        f"  cached  {made['//:c']}  //:c\n"
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
