"""A workspace may be moved, copied and reached by another path: nothing runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.e2e.conftest import Workspace

FILES = """
    genrule(name = "a", srcs = ["in.txt"], outs = ["a.txt"], cmd = "cat $< > $@")
    genrule(name = "b", srcs = [":a"], outs = ["d/", "x.sh"], executable = True,
            cmd = "cp $< $(RULEDIR)/d/f; ln -s f $(RULEDIR)/d/l; echo '#!/bin/sh' > $(RULEDIR)/x.sh")
    bundle(name = "all", deps = [":a", ":b"], receipt = False)
"""


def built(ws: Workspace) -> Workspace:
    ws.write("MXTBUILD", FILES.replace('outs = ["d/", "x.sh"], executable = True', 'outs = ["d/", "x.sh"]'))
    ws.write("in.txt", "in\n")
    ws.build("//...")
    return ws


def links(root: Path) -> list[Path]:
    return [
        Path(p, n) for p, ds, fs in os.walk(root / "mxt-out") for n in [*ds, *fs] if Path(p, n).is_symlink()
    ]


def test_moved(ws: Workspace, tmp_path: Path) -> None:
    built(ws)
    ws.root = ws.root.rename(tmp_path / "elsewhere")
    assert all(link.exists() and not os.readlink(link).startswith("/") for link in links(ws.root))
    assert "up to date: 2 actions" in ws.run("build", "//...").out
    assert ws.build("//...").finished == {"//:a": "cached", "//:b": "cached"}


def test_copied(ws: Workspace, tmp_path: Path) -> None:
    built(ws)
    subprocess.run(["cp", "-a", str(ws.root), str(tmp_path / "copy")], check=True)
    shutil.rmtree(ws.root)
    ws.root = tmp_path / "copy"
    assert ws.build("//...").finished == {"//:a": "cached", "//:b": "cached"}
    assert ws.read("mxt-out/b/d/l") == "in\n"


def test_copied_carelessly(ws: Workspace, tmp_path: Path) -> None:
    """`cp -r`: other times, other inodes, hard links torn apart."""
    built(ws)
    subprocess.run(["cp", "-r", str(ws.root), str(tmp_path / "copy")], check=True)
    shutil.rmtree(ws.root)
    ws.root = tmp_path / "copy"
    assert ws.build("//...").executed == set()
    assert ws.read("mxt-out/b/d/l") == "in\n"


def test_through_a_symbolic_link(ws: Workspace, tmp_path: Path) -> None:
    built(ws)
    (tmp_path / "link").symlink_to(ws.root)
    ws.root = tmp_path / "link"
    assert ws.build("//...").executed == set()


def test_another_place_makes_the_same_keys(make_ws) -> None:  # type: ignore[no-untyped-def]
    one, other = built(make_ws("one")), built(make_ws("other place"))
    keys = [
        {e["label"]: e["key"] for e in w.build("//...").events if e["event"] == "action_finished"}
        for w in (one, other)
    ]
    assert keys[0] == keys[1]


def test_a_store_elsewhere(ws: Workspace, tmp_path: Path) -> None:
    ws.write("MXTBUILD", FILES)
    ws.write("in.txt", "in\n")
    store = str(tmp_path / "my store")
    ws.build("//...", "--store", store)
    assert not (ws.root / "cache").exists()
    assert ws.build("//...", env={"MXT_STORE": store}).executed == set()
    assert ws.read("mxt-out/a/a.txt") == "in\n"
    # one store serves two workspaces
    other = Workspace(tmp_path / "second", ws.home)
    other.write("MXTBUILD", FILES)
    other.write("in.txt", "in\n")
    assert other.build("//...", "--store", store).executed == set()
