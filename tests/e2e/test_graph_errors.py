"""Targets that do not fit together are told so before anything runs: what, where, what to do."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace


def gen(name: str, srcs: str = "", outs: str = "") -> str:
    outs = outs or f'"{name}.txt"'
    return f'genrule(name = "{name}", srcs = [{srcs}], outs = [{outs}], cmd = "touch $(OUTS)")\n'


def refused(ws: Workspace, *labels: str, code: int = 1) -> str:
    """What mxt says; nothing was run."""
    result = ws.run("build", *(labels or ("//...",)))
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("error: ")
    assert "running" not in result.err
    first, *rest = result.err.removeprefix("error: ").splitlines(keepends=True)
    if re.match(r"\S+:\d+:\d+: ", first):  # a place comes with its line and a caret
        assert re.fullmatch(r" +\^\n", rest[1])
        del rest[:2]
    return first + "".join(rest)


def test_cycle(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a", '":b"') + gen("b", '"//p:c"'))
    ws.write("p/MXTBUILD", gen("c", '"//:a"'))
    assert refused(ws) == (
        "MXTBUILD:1:1: cycle: //:a -> //:b -> //p:c -> //:a\n  hint: remove one of these dependencies\n"
    )
    ws.write("MXTBUILD", gen("a", '"a.txt"'))
    assert refused(ws, "//:a").startswith("MXTBUILD:1:1: cycle: //:a -> //:a\n")


def test_a_long_chain_is_no_cycle(ws: Workspace) -> None:
    ws.write("MXTBUILD", "".join(gen(f"t{i}", f'":t{i - 1}"' if i else "") for i in range(3000)))
    assert ws.run("build", "-n", "//:t2999").out.endswith(
        "3000 actions: 1 to run, 2999 after them, 0 cached\n"
    )


def test_missing_labels(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("first") + gen("a", '":frist"'))
    assert refused(ws) == (
        "MXTBUILD:2:1: no target or file '//:frist', did you mean 'first'?\n"
        "  hint: targets of //: a, a.txt, first, first.txt\n"
    )
    ws.write("MXTBUILD", gen("a", '"//nope:x"'))
    assert "no package '//nope'" in refused(ws)
    ws.write("MXTBUILD", gen("a", '"sub/f.txt"'))
    assert refused(ws).startswith("MXTBUILD:1:1: no target or file '//:sub/f.txt'")


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ("../x", "label '../x': goes up with '..'"),
        ("//../x:y", "label '//../x:y': goes up with '..'"),
        ("/etc/passwd", "label '/etc/passwd': is an absolute path"),
        ("//:/etc/passwd", "the target's name is an absolute path"),
        ("a//b", "has an empty segment"),
        ("./a", "has a '.' segment"),
        ("", "is empty"),
        ("@other//a:b", "unknown repository '@other'"),
        ("a\\nb", "must not hold"),
    ],
)
def test_bad_sources(ws: Workspace, src: str, message: str) -> None:
    ws.write("MXTBUILD", gen("a", f'"{src}"'))
    error = refused(ws)
    assert error.startswith("MXTBUILD:1:1: ")
    assert message in error


@pytest.mark.parametrize("out", ["../x", "/tmp/x", "a/../../x", "a//b", "./a", "", "..", "/"])
def test_bad_outputs(ws: Workspace, out: str) -> None:
    ws.write("MXTBUILD", gen("a", outs=f'"{out}"'))
    assert refused(ws) == (
        f"MXTBUILD:1:1: output path '{out}' is not a plain relative path\n"
        "  hint: name a file below the target's own folder, without '..'\n"
    )


def test_no_outputs(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = [], cmd = "")')
    assert refused(ws) == "MXTBUILD:1:1: genrule 'a' declares no outs\n"


def test_colliding_outputs_of_one_target(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a", outs='"x", "x"'))
    assert refused(ws) == "MXTBUILD:1:1: genrule 'a' declares the output 'x' twice\n"
    ws.write("MXTBUILD", gen("a", outs='"d/", "d/f"'))
    assert refused(ws).startswith(
        "MXTBUILD:1:1: genrule 'a' declares the output 'd/f' inside its output 'd'\n"
    )
    ws.write("MXTBUILD", gen("a", outs='"d/e/f", "d"'))
    assert refused(ws).startswith(
        "MXTBUILD:1:1: genrule 'a' declares the output 'd/e/f' inside its output 'd'\n"
    )


def test_two_targets_that_make_one_file(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a", outs='"x"') + gen("b", outs='"x"'))
    assert (
        refused(ws)
        == "MXTBUILD:2:1: '//:a' and '//:b' both make 'x'\n  hint: rename one of the two outputs\n"
    )
    ws.write("MXTBUILD", gen("a") + gen("b", outs='"a"'))
    assert refused(ws).startswith("MXTBUILD:2:1: '//:b' makes 'a', which is also the name of a target\n")


def test_duplicate_names(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a") + gen("a"))
    assert refused(ws).startswith("MXTBUILD:2:1: target 'a' is already defined at MXTBUILD:1:1\n")


def test_places_in_mxt_out_that_collide(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("p"))
    ws.write("p/MXTBUILD", gen("x"))
    assert refused(ws) == (
        "p/MXTBUILD:1:1: the results of '//p:x' would lie inside those of '//:p'\n"
        "  hint: rename one of the two, or the package: both would be at 'mxt-out/p/x'\n"
    )
    # one at a time: the second is told, and the first's result stays
    ws.build("//:p")
    result = ws.build("//p:x", code=1)
    assert result.err.splitlines()[-3:-1] == [
        "error: the results of '//p:x' would lie in 'mxt-out/p', another target's",
        "  hint: rename the target or the package; or delete that link, if its target is gone",
    ]
    assert (ws.root / "mxt-out/p/p.txt").exists()
    (ws.root / "mxt-out/p").unlink()
    ws.build("//p:x")
    assert (
        "error: 'mxt-out/p' is a folder, where a link to a result must be\n" in ws.build("//:p", code=1).err
    )
    assert (ws.root / "mxt-out/p/x/x.txt").exists()


def test_a_target_inside_anothers_name(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a") + gen("a/b", outs='"c"'))
    assert "the results of '//:a/b' would lie inside those of '//:a'" in refused(ws)


def test_a_bundle_and_a_package_of_one_name(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("x") + 'bundle(name = "p", deps = [":x"], receipt = False)\n')
    ws.write("p/MXTBUILD", gen("y"))
    assert "the results of '//p:y' would lie inside those of '//:p'" in refused(ws)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_out_of_the_workspace(ws: Workspace, tmp_path: Path, what: str) -> None:
    outside = tmp_path / "outside"
    if what == "file":
        outside.write_text("secret\n")
    else:
        outside.mkdir()
        (outside / "f").write_text("secret\n")
    (ws.root / "link").symlink_to(outside)
    ws.write("MXTBUILD", gen("a", '"link"'))
    assert refused(ws) == (
        "MXTBUILD:1:1: 'link' is a link that leads out of the workspace\n  hint: copy the file into the workspace\n"
    )
    ws.write("MXTBUILD", 'filegroup(name = "a", srcs = glob(["link/**", "link"]))')
    assert "out of the workspace" in refused(ws)


def test_a_link_out_of_the_workspace_inside_a_source_folder(ws: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    ws.write("d/f", "")
    (ws.root / "d/l").symlink_to(tmp_path / "secret")
    ws.write("MXTBUILD", gen("a", '"d"'))
    result = ws.run("build", "//:a")
    assert result.code == 1
    assert "the symlink 'l' leads out of its folder" in result.err


def test_a_dangling_link(ws: Workspace) -> None:
    (ws.root / "link").symlink_to("nowhere")
    ws.write("MXTBUILD", gen("a", '"link"'))
    assert refused(ws).startswith("MXTBUILD:1:1: no target or file '//:link'")


def test_a_pipe_as_a_source(ws: Workspace) -> None:
    os.mkfifo(ws.root / "pipe")
    ws.write("MXTBUILD", gen("a", '"pipe"'))
    result = ws.run("build", "//:a", timeout=20)
    assert result.code == 1
    assert "pipe" in result.err


def test_an_unreadable_source(ws: Workspace) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    ws.write("f", "").chmod(0)
    ws.write("MXTBUILD", gen("a", '"f"'))
    assert "Permission denied" in refused(ws)


def test_wrong_kinds_of_labels(ws: Workspace) -> None:
    ws.write("MXTBUILD", gen("a") + gen("b").replace("cmd", 'platform = ":a", cmd'))
    assert (
        refused(ws) == "MXTBUILD:2:1: '//:a' is no platform\n  hint: declare it with platform(name = ...)\n"
    )
    ws.write("MXTBUILD", gen("two", outs='"1", "2"') + gen("b", '":two#3"'))
    assert refused(ws) == "MXTBUILD:2:1: ':two' has no output '3'\n  hint: its outputs: 1, 2\n"


def test_a_bundle_of_two_targets_of_one_name(ws: Workspace) -> None:
    ws.write("p/MXTBUILD", gen("x"))
    ws.write("q/MXTBUILD", gen("x"))
    ws.write("MXTBUILD", 'bundle(name = "all", deps = ["//p:x", "//q:x"])')
    assert "bundles two targets called 'x'" in ws.run("build", "//:all").err


def test_a_bundles_recipe_is_a_file_and_may_be_a_label(ws: Workspace) -> None:
    ws.write("p/MXTBUILD", "")
    recipe = ws.write("p/x.yaml", "seed: 1\n")
    ws.write("q/own.yaml", "seed: 2\n")
    bundle = 'bundle(name = "y", deps = [":a"], recipe = "{0}")\n'
    for written, path in (
        ("//p:x.yaml", "p/x.yaml"),
        (":own.yaml", "q/own.yaml"),
        ("own.yaml", "q/own.yaml"),
    ):
        ws.write("q/MXTBUILD", gen("a") + bundle.format(written))
        ws.build("//q:y")
        receipt = json.loads(ws.read("mxt-out/q/y/receipt.dsse.json"))
        statement = json.loads(base64.b64decode(receipt["payload"]))
        asked = statement["predicate"]["buildDefinition"]["externalParameters"]
        assert asked["recipe"]["path"] == path
    ws.write("q/MXTBUILD", gen("a") + bundle.format("@mxt//p:x.yaml"))
    assert refused(ws) == (
        "q/MXTBUILD:2:1: bundle 'y': its recipe '@mxt//p:x.yaml' is no file of the workspace\n"
    )
    # when it goes, a build that had nothing to do is told so, too
    ws.write("q/MXTBUILD", gen("a") + bundle.format("//p:x.yaml"))
    ws.build("//q:y")
    recipe.unlink()
    assert refused(ws) == (
        "q/MXTBUILD:2:1: bundle 'y': there is no file 'p/x.yaml', which it names as its recipe\n"
        "  hint: name a file relative to the package, or by a label: '//package:file.yaml'\n"
    )
