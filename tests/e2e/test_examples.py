"""The examples in docs/ do what the pages beside them say."""

from __future__ import annotations

import shutil

from tests.e2e.conftest import REPOSITORY, Workspace


def test_own_rule(ws: Workspace) -> None:
    """docs/write-a-rule.md"""
    shutil.copytree(REPOSITORY / "docs/examples/own_rule", ws.root, dirs_exist_ok=True)
    refused = ws.run("build", "//...")
    assert refused.code == 2
    assert "mxt trust" in refused.err
    assert ws.run("trust").code == 0
    assert ws.build("//...").executed == {"//:counts", "//:shout"}
    assert ws.read("mxt-out/counts/counts.txt") == "4 a\n4 rose\n3 is\n"
    assert ws.read("mxt-out/shout/shout.txt") == "4 A\n4 ROSE\n3 IS\n"
    ws.write("poem.txt", "")
    failed = ws.build("//...", code=1)
    assert "error: poem.txt: the text has no words\n  hint: write something into it" in failed.err
