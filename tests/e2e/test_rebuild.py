"""A changed source: what it concerns is built without loading and analysing the rest, and comes out the same.

Whether a build took that shortcut is seen by what it left: only one that went the whole way keeps a graph
anew, under a new name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.execution.build_record import BuildRecord, find_record
from tests.e2e.conftest import GATE, Result, Workspace, at_gate, digits_away, kill_tree, let_go, wait_for

NULL = "up to date: 5 actions in T\n"
LAYERS = """
    genrule(name = "low", srcs = ["src/one"], outs = ["low.txt"], cmd = "CHECK sort -u $< > $@")
    genrule(name = "mid", srcs = [":low", "src/two"], outs = ["mid.txt"], cmd = "cat $(SRCS) > $@")
    genrule(name = "left", srcs = [":mid"], outs = ["left.txt"], cmd = "wc -c < $< > $@; cat $< >> $@")
    genrule(
        name = "top",
        srcs = [":left", ":low", "src/three"],
        outs = ["top.txt", "modes.txt"],
        cmd = "cat $(SRCS) > $(RULEDIR)/top.txt; test -x src/three && echo x > $(RULEDIR)/modes.txt || echo - > $(RULEDIR)/modes.txt",
    )
    genrule(name = "apart", srcs = glob(["src/f*"]), outs = ["apart.txt"], cmd = "cat $(SRCS) > $@")
"""
FAILS = "if grep -q bad $<; then exit 1; fi;"
ALL = {"//:low", "//:mid", "//:left", "//:top", "//:apart"}
ABOVE_LOW = ALL - {"//:apart"}


def fill(ws: Workspace, check: str = FAILS) -> Workspace:
    """A workspace whose last build saw everything long after it had changed."""
    ws.write("MXTBUILD", LAYERS.replace("CHECK", check))
    for number, name in enumerate(("one", "two", "three", "four", "five")):
        ws.write(f"src/{name}", f"{number}\n")
    return ws


def settle(ws: Workspace, *labels: str) -> None:
    """Build twice, so that no file is "changed just now" any more; the second time from a snapshot or not."""
    assert ws.run("build", *labels).code == 0
    time.sleep(0.03)
    ran = ws.run("build", *labels)
    assert (ran.code, ran.err) == (0, "")
    assert digits_away(ws.run("build", *labels).out).startswith("up to date: "), "a null build"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("rebuild")
    ws = fill(Workspace(folder / "work space", folder / "home"))
    settle(ws, "//...")
    return ws


@pytest.fixture
def layers(template: Workspace, tmp_path: Path) -> Workspace:
    """Five targets in four layers, built; no file is older than the copy, so it is built once more."""
    ws = Workspace(tmp_path / "a work space", tmp_path / "home")
    ws.root.rmdir()
    subprocess.run(["cp", "-a", str(template.root), str(ws.root)], check=True)
    shutil.copytree(template.home, ws.home, dirs_exist_ok=True)
    shutil.rmtree(ws.root / "cache/state/snapshots")  # of the other workspace
    settle(ws, "//...")
    return ws


def kept(ws: Workspace) -> set[str]:
    return {path.name for path in (ws.root / "cache/state/snapshots").glob("*.graph")}


def last(ws: Workspace, back: int = 0) -> BuildRecord:
    return find_record(ws.root / "cache/state", f"last~{back}")


def ran(record: BuildRecord) -> set[str]:
    return {step.label for step in record.steps if step.status == "executed"}


def outputs(ws: Workspace) -> dict[str, str]:
    """Every file below mxt-out but receipts and reports, which say when."""
    return {
        os.path.relpath(os.path.join(folder, name), ws.root / "mxt-out"): Path(folder, name).read_text()
        for folder, _, names in os.walk(ws.root / "mxt-out", followlinks=True)
        for name in names
        if name not in ("receipt.dsse.json", "report.html")
    }


def clean(ws: Workspace, *labels: str) -> tuple[Result, dict[str, str]]:
    """The same sources built from nothing, in another workspace and store."""
    other = Workspace(ws.root.parent / "clean", ws.home)
    shutil.rmtree(other.root)
    ignored = shutil.ignore_patterns("cache", "mxt-out")
    shutil.copytree(ws.root, other.root, symlinks=True, ignore=ignored)
    result = other.run("build", *labels)
    return result, outputs(other)


def rebuilt(ws: Workspace, executed: set[str], *, shortcut: bool = True) -> Result:
    """Build after a change: on the way that is expected, exactly these run, and all is as if made anew."""
    before = kept(ws)
    result = ws.run("build", "//...")
    assert (result.code, result.err.count("error:")) == (0, 0), result.err
    assert (kept(ws) == before) == shortcut
    record = last(ws)
    assert ran(record) == executed
    assert {step.label for step in record.steps} == ALL
    assert len(record.steps) == len(ALL)
    fresh, made = clean(ws, "//...")
    assert fresh.code == 0
    assert outputs(ws) == made
    assert digits_away(ws.run("build", "//...").out) == NULL
    return result


# ---- what runs, and what it makes ----------------------------------------------------------------


def test_only_what_reads_it_runs(layers: Workspace) -> None:
    layers.write("src/one", "new\n")
    result = rebuilt(layers, ABOVE_LOW)
    assert digits_away(result.out) == (
        "  mxt-out/low\n  mxt-out/mid\n  mxt-out/left\n  mxt-out/top\n  mxt-out/apart\n"
        "built: 5 actions: 4 executed, 1 cached in T\n"
    )
    layers.write("src/three", "new\n")
    rebuilt(layers, {"//:top"})
    layers.write("src/one", "0\n")
    layers.write("src/three", "2\n")
    rebuilt(layers, set())


def test_it_stops_where_the_bytes_are_the_same(layers: Workspace) -> None:
    layers.write("src/one", "0\n0\n")
    rebuilt(layers, {"//:low"})


def test_nothing_of_loading_is_imported(layers: Workspace) -> None:
    """What the shortcut is for: no Starlark, no analysis."""
    layers.write("src/one", "new\n")
    code = (
        "import sys; from mxt.cli.main import main; status = main(['build', '//...']);"
        "heavy = {'starlark', 'mxt.loading.loader', 'mxt.graph.analysis', 'pydantic', 'yaml'};"
        "print(status, sorted(heavy & sys.modules.keys()))"
    )
    for expected in ("0 []", "0 []"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=layers.root,
            env=layers.env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == expected
    assert ran(last(layers)) == ABOVE_LOW
    layers.write("MXTBUILD", layers.read("MXTBUILD") + "\n")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=layers.root,
        env=layers.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "mxt.graph.analysis" in done.stdout.splitlines()[-1], "this test sees no imports"


def test_an_editor_that_writes_aside_and_renames(layers: Workspace) -> None:
    """The folder was written to, by which the glob could have changed, and has not."""
    layers.write("src/four.new", "new\n").replace(layers.root / "src/four")
    rebuilt(layers, {"//:apart"})


def test_the_same_from_another_folder(layers: Workspace) -> None:
    """What is relative to where the user is, is of no consequence."""
    for number in range(2):
        assert layers.run("build", "//...", cwd="src").code == 0
        assert digits_away(layers.run("build", "//...", cwd="src").out) == NULL
        before = kept(layers)
        layers.write("src/four.new", f"new {number}\n").replace(layers.root / "src/four")
        assert layers.run("build", "//...", cwd="src").code == 0
        assert kept(layers) == before
        assert ran(last(layers)) == {"//:apart"}


def test_an_editor_that_leaves_its_backup_under_the_glob(layers: Workspace) -> None:
    layers.write("src/four~", "backup\n")
    layers.write("src/four", "new\n")
    rebuilt(layers, {"//:apart"}, shortcut=False)
    assert layers.read("mxt-out/apart/apart.txt") == "4\nnew\nbackup\n"


def test_same_size_and_time_put_back(layers: Workspace) -> None:
    file = layers.root / "src/two"
    before = file.stat()
    file.write_text("9\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    rebuilt(layers, {"//:mid", "//:left", "//:top"})


def test_an_executable_bit(layers: Workspace) -> None:
    (layers.root / "src/three").chmod(0o755)
    rebuilt(layers, {"//:top"})
    assert layers.read("mxt-out/top/modes.txt") == "x\n"


def test_a_touched_source_runs_nothing(layers: Workspace) -> None:
    (layers.root / "src/two").touch()
    assert digits_away(rebuilt(layers, set()).out).endswith("up to date: 5 actions: 5 cached in T\n")


def test_a_source_that_becomes_a_link(layers: Workspace) -> None:
    layers.write("elsewhere", "far\n")
    (layers.root / "src/two").unlink()
    (layers.root / "src/two").symlink_to("../elsewhere")
    rebuilt(layers, {"//:mid", "//:left", "//:top"}, shortcut=False)
    layers.write("elsewhere", "farther\n")
    rebuilt(layers, {"//:mid", "//:left", "//:top"}, shortcut=False)
    assert "farther" in layers.read("mxt-out/top/top.txt")


def becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("f\n")


@pytest.mark.parametrize("change", [becomes_a_folder, Path.unlink], ids=["a folder", "nothing"])
def test_a_source_that_becomes_something_else(layers: Workspace, change: Callable[[Path], None]) -> None:
    """Whatever that means, it means the same as in a build from nothing."""
    before = outputs(layers)
    change(layers.root / "src/two")
    result = layers.run("build", "//...")
    fresh, _ = clean(layers, "//...")
    assert result.code == fresh.code == 1
    assert [line for line in result.err.splitlines() if line.startswith("error:")] == [
        line for line in fresh.err.splitlines() if line.startswith("error:")
    ]
    assert outputs(layers) == before
    assert layers.run("build", "//...").code == 1, "nothing is remembered of it"
    if (path := layers.root / "src/two").is_dir():
        shutil.rmtree(path)
    layers.write("src/two", "back\n")
    assert layers.run("build", "//...").code == 0
    assert outputs(layers) == clean(layers, "//...")[1]


@pytest.mark.parametrize(("number", "shortcut"), [(64, True), (65, False)])
def test_many_sources_at_once(ws: Workspace, number: int, shortcut: bool) -> None:
    ws.write(
        "MXTBUILD", 'genrule(name = "a", srcs = glob(["s/*"]), outs = ["a.txt"], cmd = "cat $(SRCS) > $@")'
    )
    for i in range(number):
        ws.write(f"s/{i:02}", f"{i}\n")
    settle(ws, "//...")
    before = kept(ws)
    for i in range(number):
        ws.write(f"s/{i:02}", f"new {i}\n")
    assert digits_away(ws.run("build", "//...").out).endswith("built: 1 action: 1 executed in T\n")
    assert (kept(ws) == before) == shortcut
    assert ws.read("mxt-out/a/a.txt") == "".join(f"new {i}\n" for i in range(number))


# ---- where the whole way must be gone ------------------------------------------------------------


def test_what_is_no_plain_command_over_files(ws: Workspace) -> None:
    """A source folder, a folder among outputs, a file that is also read by loading."""
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "folder", srcs = ["in"], outs = ["n.txt"], cmd = "cat $</* > $@")
        genrule(name = "makes", srcs = ["one"], outs = ["d/"], cmd = "cp $< $@/copy")
        genrule(name = "reads", srcs = [":makes"], outs = ["r.txt"], cmd = "cat $</copy > $@")
        genrule(name = "self", srcs = ["MXTBUILD"], outs = ["self.txt"], cmd = "wc -l < $< > $@")
        genrule(name = "plain", srcs = ["two"], outs = ["p.txt"], cmd = "cat $< > $@")
        """,
    )
    for name in ("in/f", "one", "two"):
        ws.write(name, "1\n")
    settle(ws, "//...")
    for path, executed in [
        ("in/f", {"//:folder"}),
        ("one", {"//:makes", "//:reads"}),
        ("in/g", {"//:folder"}),
        ("two", {"//:plain"}),
    ]:
        before = kept(ws)
        ws.write(path, "new\n")
        assert ws.run("build", "//...").code == 0
        assert ran(last(ws)) == executed
        assert (kept(ws) == before) == (path == "two")
        assert outputs(ws) == clean(ws, "//...")[1]
    ws.write("MXTBUILD", ws.read("MXTBUILD") + "\n\n")
    assert ws.run("build", "//...").code == 0
    assert ran(last(ws)) == {"//:self"}
    assert outputs(ws) == clean(ws, "//...")[1]


def test_a_bundle_above_it_gets_a_new_receipt(layers: Workspace) -> None:
    layers.write("MXTBUILD", layers.read("MXTBUILD") + 'bundle(name = "all", deps = [":left", ":apart"])\n')
    settle(layers, "//...")

    receipt = layers.root / "mxt-out/all/receipt.dsse.json"
    first = receipt.read_bytes()
    before = kept(layers)
    layers.write("src/three", "new\n")  # of :top alone, which is in no bundle
    assert layers.run("build", "//...").code == 0
    assert kept(layers) == before
    assert receipt.read_bytes() == first
    layers.write("src/one", "new\n")
    assert layers.run("build", "//...").code == 0
    assert kept(layers) != before
    assert receipt.read_bytes() != first
    assert layers.run("verify", "//:all").code == 0
    assert outputs(layers) == clean(layers, "//...")[1]


@pytest.mark.parametrize("option", ["-n", "--events", "--profile", "-v"])
def test_options_that_show_all_go_the_whole_way(layers: Workspace, option: str) -> None:
    layers.write("src/one", "new\n")
    before = outputs(layers)
    file = layers.home / "file"
    args = [option, str(file)] if option in ("--events", "--profile") else [option]
    result = layers.run("build", "//...", *args)
    assert result.code == 0
    shown = file.read_text() if file.exists() else result.out + result.err
    assert all(label in shown for label in ALL)
    if option == "-n":
        assert outputs(layers) == before
        rebuilt(layers, ABOVE_LOW)
    else:
        assert ran(last(layers)) == ABOVE_LOW
        assert outputs(layers) == clean(layers, "//...")[1]


def test_the_result_of_an_input_was_deleted(layers: Workspace) -> None:
    """:mid reads :low, which the change does not concern and whose result nobody looked at."""
    settle(layers, ":top")
    before = kept(layers)
    low = Path(os.path.realpath(layers.root / "mxt-out/low"))
    shutil.rmtree(low)
    shutil.rmtree(layers.root / "cache/ac" / low.name[:2] / low.name)
    layers.write("src/two", "new\n")
    assert layers.run("build", ":top").code == 0
    assert kept(layers) != before
    assert ran(last(layers)) == ABOVE_LOW
    settle(layers, "//...")
    assert outputs(layers) == clean(layers, "//...")[1]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" * (len(data) // 2))


@pytest.mark.parametrize("damage", [empty, garbage, torn, Path.unlink, becomes_a_folder])
def test_a_damaged_graph_is_none(layers: Workspace, damage: Callable[[Path], None]) -> None:
    (name,) = kept(layers)
    folder = layers.root / "cache/state/snapshots"
    for suffix in ("-wal", "-shm"):
        Path(f"{folder / name}{suffix}").unlink(missing_ok=True)
    damage(folder / name)
    layers.write("src/one", "new\n")
    rebuilt(layers, ABOVE_LOW, shortcut=False)
    layers.write("src/two", "new\n")
    rebuilt(layers, {"//:mid", "//:left", "//:top"})


# ---- failures, kills, and others at the same time ------------------------------------------------


def test_a_failing_action_and_its_mending(layers: Workspace) -> None:
    before = outputs(layers)
    layers.write("src/one", "bad\n")
    for _ in range(2):
        result = layers.run("build", "//...")
        assert result.code == 1
        assert result.err.count("error: ") == 1
        assert {step.label: step.status for step in last(layers).steps} == {
            "//:low": "failed",
            "//:mid": "skipped",
            "//:left": "skipped",
            "//:top": "skipped",
            "//:apart": "cached",
        }
        assert outputs(layers) == before
    layers.write("src/one", "good\n")
    rebuilt(layers, ABOVE_LOW)
    layers.write("src/one", "bad\n")
    assert layers.run("build", "//...").code == 1
    layers.write("src/one", "0\n")
    rebuilt(layers, set())


def test_keep_going(layers: Workspace) -> None:
    layers.write("src/one", "bad\n")
    layers.write("src/four", "new\n")
    result = layers.run("build", "//...", "-k")
    assert result.code == 1
    assert ran(last(layers)) == {"//:apart"}
    assert layers.read("mxt-out/apart/apart.txt") == "4\nnew\n"
    layers.write("src/one", "good\n")  # of what went well mxt-out has the new results, the snapshot has not
    rebuilt(layers, ABOVE_LOW, shortcut=False)


def gated(ws: Workspace) -> Workspace:
    """With :low at a gate."""
    ws.write("MXTBUILD", LAYERS.replace("CHECK", GATE + ";"))
    for number, name in enumerate(("one", "two", "three", "four", "five")):
        ws.write(f"src/{name}", f"{number}\n")
    through(ws)
    time.sleep(0.03)
    assert ws.run("build", "//...").code == 0
    assert digits_away(ws.run("build", "//...").out) == NULL
    return ws


def through(ws: Workspace, *, code: int = 0, meanwhile: Callable[[], object] = lambda: None) -> str:
    """Build, opening every gate; what it said of errors. meanwhile: is done when the first gate is reached."""
    process = ws.start("build", "//...")
    try:
        wait_for(lambda: at_gate(ws) or process.poll() is not None)
        meanwhile()
        wait_for(lambda: [let_go(ws), process.poll() is not None][-1])
        out, err = process.communicate(timeout=20)
    finally:
        kill_tree(process)
    assert "Traceback" not in err, err
    assert process.returncode == code, out + err
    return err


def test_killed_on_the_way(ws: Workspace) -> None:
    gated(ws)
    before = kept(ws)
    ws.write("src/one", "new\n")
    process = ws.start("build", "//...")
    wait_for(lambda: at_gate(ws))
    kill_tree(process)
    wait_for(lambda: ws.run("build", "//...", "-n").code == 0)
    through(ws)
    assert kept(ws) == before
    assert ran(last(ws)) == ABOVE_LOW
    assert "new\n" in ws.read("mxt-out/top/top.txt")
    assert digits_away(ws.run("build", "//...").out) == NULL


@pytest.mark.parametrize(
    "where",
    ["kept_graph.KeptGraph.update", "snapshot.mend", "snapshot._replace", "kept_graph.KeptGraph.close"],
)
def test_killed_while_it_takes_note(layers: Workspace, where: str) -> None:
    """Between the last action and the next build, at each step of what is written down."""
    module, _, name = where.partition(".")
    code = (
        "import os, sys; import mxt.graph.kept_graph, mxt.graph.snapshot; from mxt.cli.main import main;"
        f"import mxt.graph.{module} as m;"
        "def_ = lambda *a, **k: os.kill(os.getpid(), 9);"
        f"holder = {'m.' + name.rpartition('.')[0] if '.' in name else 'm'};"
        f"setattr(holder, {name.rpartition('.')[2]!r}, def_);"
        "main(['build', '//...'])"
    )
    layers.write("src/one", "new\n")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=layers.root, env=layers.env, capture_output=True, check=False
    )
    assert done.returncode == -9
    assert ran(last(layers)) == ABOVE_LOW
    if where == "kept_graph.KeptGraph.close":  # all had been noted
        assert digits_away(layers.run("build", "//...").out) == NULL
    else:  # mxt-out leads to new results, of which the snapshot does not know
        rebuilt(layers, set(), shortcut=False)
    layers.write("src/three", "newer\n")
    rebuilt(layers, {"//:top"})


def test_edited_while_its_action_runs(ws: Workspace) -> None:
    gated(ws)
    ws.write("src/one", "new\n")
    err = through(ws, code=1, meanwhile=lambda: ws.write("src/one", "newer\n"))
    assert "src/one" in err
    assert "newer" not in ws.read("mxt-out/top/top.txt")
    through(ws)
    assert ran(last(ws)) == ABOVE_LOW
    assert "newer\n" in ws.read("mxt-out/top/top.txt")


@pytest.mark.parametrize("path", ["src/four", "MXTBUILD"])
def test_something_else_is_edited_meanwhile(ws: Workspace, path: str) -> None:
    gated(ws)
    ws.write("src/one", "new\n")
    through(ws, meanwhile=lambda: ws.write(path, ws.read(path).replace("3", "more\n") + "\n"))
    assert ran(last(ws)) == ABOVE_LOW
    assert digits_away(ws.run("build", "//...").out) != NULL
    assert digits_away(ws.run("build", "//...").out) == NULL
    assert "more\n" in ws.read("mxt-out/apart/apart.txt") or path == "MXTBUILD"


def test_two_at_once(ws: Workspace) -> None:
    gated(ws)
    ws.write("src/one", "new\n")
    first = ws.start("build", "//...")
    wait_for(lambda: at_gate(ws))
    ws.write("src/four", "new\n")
    second = ws.start("build", "//...")
    wait_for(lambda: any("new" in p.read_text() for p in ws.root.glob("cache/out/*/apart.txt")))
    wait_for(lambda: [let_go(ws), first.poll() is not None and second.poll() is not None][-1])
    for process in (first, second):
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, out + err
        assert "Traceback" not in err
    assert "new\n" in ws.read("mxt-out/top/top.txt")
    assert ran(last(ws)) | ran(last(ws, 1)) == ALL
    assert not ran(last(ws)) & ran(last(ws, 1)), "each action ran once"
    ws.run("build", "//...")
    assert digits_away(ws.run("build", "//...").out) == NULL


def test_the_graph_is_edited_and_built_by_another_meanwhile(ws: Workspace) -> None:
    """The first build ends last, with results of what the MXTBUILD said before: nobody takes those for new."""
    gated(ws)
    ws.write("src/one", "new\n")
    first = ws.start("build", "//...")
    wait_for(lambda: at_gate(ws))
    mine = "sort -u $< > $@"
    ws.write("MXTBUILD", LAYERS.replace("CHECK", "").replace(mine, f"{mine}; echo mine >> $@"))
    assert ws.run("build", "//...").code == 0
    new = outputs(ws)
    assert new["low/low.txt"] == "new\nmine\n"
    let_go(ws)
    out, err = first.communicate(timeout=20)
    assert first.returncode == 0, out + err
    assert outputs(ws)["low/low.txt"] == "new\n"
    assert ws.run("build", "//...").code == 0
    assert outputs(ws) == new
