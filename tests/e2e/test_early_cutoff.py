"""A key holds the digests of its inputs, not how they came about: same bytes, nothing further runs."""

from __future__ import annotations

from tests.e2e.conftest import Workspace


def test_the_same_bytes_end_the_rebuild(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "strip", srcs = ["in.txt"], outs = ["s"], cmd = "grep -v '^#' $< > $@")
        genrule(name = "use", srcs = [":strip"], outs = ["u"], cmd = "wc -l < $< > $@")
        genrule(name = "last", srcs = [":use"], outs = ["l"], cmd = "cp $< $@")
        """,
    )
    ws.write("in.txt", "# one\na\n")
    ws.build("//...")
    ws.write("in.txt", "# another comment\na\n")
    assert ws.build("//...").finished == {"//:strip": "executed", "//:use": "cached", "//:last": "cached"}
    # one step further: the first two run, the third is cut off
    ws.write("in.txt", "# another comment\nb\n")
    assert ws.build("//...").finished == {"//:strip": "executed", "//:use": "executed", "//:last": "cached"}


def test_two_targets_that_make_the_same_bytes_share_them(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", outs = ["o"], cmd = "seq 100 > $@")
        genrule(name = "b", outs = ["o2"], cmd = "seq 1 100 > $@")
        """,
    )
    ws.build("//...")
    assert (ws.root / "mxt-out/a/o").stat().st_ino == (ws.root / "mxt-out/b/o2").stat().st_ino


def test_only_the_output_that_changed_counts(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(
            name = "split", srcs = ["in.txt"], outs = ["head", "tail"],
            cmd = "head -n 1 $< > $(location head); tail -n 1 $< > $(location tail)",
        )
        genrule(name = "h", srcs = ["head"], outs = ["h.txt"], cmd = "cp $< $@")
        genrule(name = "t", srcs = [":split#tail"], outs = ["t.txt"], cmd = "cp $< $@")
        """,
    )
    ws.write("in.txt", "1\n2\n")
    ws.build("//...")
    ws.write("in.txt", "1\n3\n")
    assert ws.build("//...").finished == {"//:split": "executed", "//:h": "cached", "//:t": "executed"}
    assert ws.read("mxt-out/t/t.txt") == "3\n"


def test_a_rebuild_after_early_cutoff_explains_nothing(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "strip", srcs = ["in.txt"], outs = ["s"], cmd = "grep -v '^#' $< > $@")
        genrule(name = "use", srcs = [":strip"], outs = ["u"], cmd = "wc -l < $< > $@")
        """,
    )
    ws.write("in.txt", "# one\na\n")
    ws.build("//...")
    ws.write("in.txt", "# two\na\n")
    explained = ws.run("explain", ":use")
    assert "inputs.mxt-out/strip/s: made again by //:strip, unless it makes the same bytes" in explained.out
    ws.build("//...")
    assert ws.run("explain", ":use").out == "up to date: none of 2 actions would run\n"
