"""What actions leave as outputs: links, special files, modes, depth, size. Kept whole or refused by name."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Result, Workspace


def make(ws: Workspace, cmd: str, outs: str = '"x"', *, code: int = 0, **env: str) -> Result:
    """Build a genrule :it with a command of several lines."""
    lines = "\n".join(f"        {line.strip()}" for line in cmd.strip().splitlines())
    text = f'genrule(\n    name = "it",\n    outs = [{outs}],\n    cmd = r"""\n{lines}\n    """,\n)\n'
    ws.write("MXTBUILD", text)
    result = ws.build("//:it", code=code, env=env)
    if code:
        assert not list((ws.root / "cache/ac").glob("*/*/*.json")), "a refused output was recorded"
        assert not list((ws.root / "cache/tmp").iterdir()), "temporary files are left"
        assert not (ws.root / "mxt-out/it").exists()
    else:
        assert ws.build("//:it", env=env).executed == set()
    return result


@pytest.fixture(params=["bubblewrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"MXT_SANDBOX": "none"} if request.param == "none" else {}


def out(ws: Workspace, path: str) -> Path:
    return ws.root / "mxt-out/it" / path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# ---- links ------------------------------------------------------------------------------------------------


def test_a_link_to_another_output_counts_as_the_file(ws: Workspace) -> None:
    make(ws, "cd $(RULEDIR); echo real > real; chmod +x real; ln -s real x", '"x", "real"')
    assert not out(ws, "x").is_symlink()
    assert out(ws, "x").read_text() == "real\n"
    assert mode(out(ws, "x")) == 0o555


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../../etc/passwd", "x", "nowhere"])
def test_a_link_to_elsewhere_is_refused(ws: Workspace, target: str, sandbox: dict[str, str]) -> None:
    """Followed from outside of the sandbox, it would show a file of this machine."""
    result = make(ws, f"ln -s {target} $@", code=1, **sandbox)
    assert "made 'x' a link that leads to none of its outputs" in result.err


def test_a_link_to_the_key_is_refused(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "first", outs = ["y"], cmd = "echo y > $@")\n')
    ws.build("//:first")
    (key,) = (ws.home / ".config/mxt").glob("key*")
    shutil.rmtree(ws.root / "cache")
    result = make(ws, f"ln -s '{key}' $@", code=1)
    assert "made 'x' a link" in result.err


def test_a_folder_on_the_way_replaced_by_a_link_is_refused(ws: Workspace, tmp_path: Path) -> None:
    """The file behind it is not the action's: not to be read, moved into the store or made read-only."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").write_text("somebody's")
    (elsewhere / "l").symlink_to("f")
    for name in ("f", "l"):
        result = make(ws, f"cd $(RULEDIR); rmdir d; ln -s '{elsewhere}' d", f'"d/{name}"', code=1)
        assert "made 'd' a link, where a folder of its own must be" in result.err
    assert (elsewhere / "l").is_symlink()
    assert (elsewhere / "f").read_text() == "somebody's"
    assert mode(elsewhere / "f") & 0o200
    assert (elsewhere / "f").stat().st_nlink == 1


def test_links_inside_an_output_folder_stay_links(ws: Workspace) -> None:
    make(ws, "cd $@; mkdir a; echo f > a/f; ln -s a/f one; ln -s ../one a/two; ln -s gone three", '"x/"')
    assert os.readlink(out(ws, "x/one")) == "a/f"
    assert os.readlink(out(ws, "x/a/two")) == "../one"
    assert os.readlink(out(ws, "x/three")) == "gone"
    assert out(ws, "x/a/two").read_text() == "f\n"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_links_out_of_an_output_folder_are_refused(ws: Workspace, target: str) -> None:
    result = make(ws, f"ln -s {target} $@/link", '"x/"', code=1)
    assert "the symlink 'link' leads out of its folder" in result.err
    assert "copy the file" in result.err


def test_an_output_folder_that_is_a_link_is_refused(ws: Workspace) -> None:
    result = make(ws, "rmdir $@; ln -s /etc $@", '"x/"', code=1)
    assert "made 'x' as something other than a folder" in result.err


def test_hard_links_between_outputs(ws: Workspace) -> None:
    make(ws, "cd $(RULEDIR); echo one > x; ln x y; mkdir -p d; ln x d/z", '"x", "y", "d/"')
    for path in ("x", "y", "d/z"):
        assert out(ws, path).read_text() == "one\n"
        assert mode(out(ws, path)) == 0o444


# ---- special files ----------------------------------------------------------------------------------------

SOCKET = "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => shift, Listen => 1) or die'"


@pytest.mark.parametrize(("command", "kind"), [("mkfifo", "a named pipe"), (SOCKET, "a socket")])
def test_special_files_are_refused_and_hang_nothing(
    ws: Workspace, command: str, kind: str, sandbox: dict[str, str]
) -> None:
    result = make(ws, f"cd $(RULEDIR); {command} x", code=1, **sandbox)
    assert "made 'x' as something other than a file" in result.err
    result = make(ws, f"cd $@; echo f > f; {command} special", '"x/"', code=1, **sandbox)
    assert f"'special' is {kind}" in result.err
    assert "only files, folders and symlinks are kept" in result.err


def test_the_wrong_kind(ws: Workspace) -> None:
    assert "made 'x' as something other than a file" in make(ws, "mkdir $@", code=1).err
    result = make(ws, "rmdir $@; echo > $@", '"x/"', code=1)
    assert "made 'x' as something other than a folder" in result.err


def test_undeclared_files_are_named_and_hidden_ones_too(ws: Workspace) -> None:
    result = make(
        ws, "cd $(RULEDIR); touch x .hidden 'with space'; mkdir -p .cache/deep d/e", '"x", "d/y"', code=1
    )
    for name in (".hidden", "with space", ".cache", "d/e"):
        assert f"made '{name}', which it does not declare" in result.err
    assert "did not make 'd/y'" in result.err
    assert "write temporary files to $TMPDIR" in result.err


def test_an_undeclared_name_that_is_not_utf8(ws: Workspace) -> None:
    result = make(ws, r"cd $(RULEDIR); touch x $$'caf\xe9'", code=1)
    assert "which it does not declare" in result.err
    result = make(ws, r"touch $@/$$'caf\xe9'", '"x/"', code=1)
    assert "is not UTF-8" in result.err


# ---- modes ------------------------------------------------------------------------------------------------


def test_modes_are_reduced_to_the_executable_bit(ws: Workspace, sandbox: dict[str, str]) -> None:
    cmd = """
        cd $@
        for m in 4755 2755 1755 0777 0700 0100; do echo $$m > x$$m; chmod $$m x$$m; done
        for m in 0666 0600 0444 0400 0200 0000 0066 4644; do echo $$m > f$$m; chmod $$m f$$m; done
        mkdir closed sticky; echo in > closed/file; chmod 0000 closed; chmod 7777 sticky
    """
    make(ws, cmd, '"x/"', **sandbox)
    for path in out(ws, "x").iterdir():
        if path.is_file():
            assert mode(path) == (0o555 if path.name.startswith("x") else 0o444), path.name
            assert path.read_text() == f"{path.name[1:]}\n"
        else:
            assert mode(path) == 0o755, path.name
    assert out(ws, "x/closed/file").read_text() == "in\n"


def test_unreadable_outputs_of_an_ordinary_user(ws: Workspace) -> None:
    """Root reads everything; so this runs as nobody: what an action closed is its user's to open."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    ws.write(
        "MXTBUILD",
        """
        genrule(
            name = "it", outs = ["x/", "y"],
            cmd = "cd $(RULEDIR); mkdir -p x/a/b; touch y x/a/b/f; chmod 0 y x/a/b/f x/a/b x/a x",
        )
        genrule(
            name = "fails", outs = ["z"],
            cmd = "cd $(RULEDIR); mkdir -p a/b/c; touch a/b/c/f; chmod 0 a/b/c a/b a; exit 1",
        )
        """,
    )
    place = ws.root
    while place != Path("/"):
        place.chmod(mode(place) | 0o055)
        place = place.parent
    for folder in (ws.root, ws.home):
        os.chown(folder, 65534, 65534)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    env = {**ws.env, "MXT_SANDBOX": "none"}
    for label, code in (("//:it", 0), ("//:fails", 1)):
        command = [*as_nobody, *ws.command("build", label, "--workspace", str(ws.root))]
        done = subprocess.run(
            command, env=env, cwd=ws.root, capture_output=True, text=True, check=False, timeout=60
        )
        if "Permission denied" in done.stderr and "python" in done.stderr:
            pytest.skip("the interpreter is not readable for others here")
        assert "Traceback" not in done.stderr
        assert "mxt itself failed" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        assert not list((ws.root / "cache/tmp").iterdir())
    assert out(ws, "x/a/b/f").read_bytes() == b""
    assert mode(out(ws, "y")) == 0o444


def test_a_read_only_output_folder(ws: Workspace, sandbox: dict[str, str]) -> None:
    make(ws, "cd $@; mkdir d; echo f > d/f; echo f > g; chmod 0555 d .", '"x/"', **sandbox)
    assert out(ws, "x/d/f").read_text() == "f\n"
    assert mode(out(ws, "x/d")) == 0o755


# ---- shapes -----------------------------------------------------------------------------------------------


def test_empty_files_and_folders(ws: Workspace) -> None:
    make(
        ws,
        "touch $(RULEDIR)/empty; mkdir -p $(RULEDIR)/d/a/b; touch $(RULEDIR)/d/a/f",
        '"empty", "d/", "none/"',
    )
    assert out(ws, "empty").read_bytes() == b""
    assert out(ws, "d/a/b").is_dir()
    assert list(out(ws, "none").iterdir()) == []


def test_a_hundred_levels(ws: Workspace) -> None:
    make(ws, "cd $@; for i in $$(seq 100); do mkdir d; cd d; done; echo deep > f", '"x/"')
    assert out(ws, "x/" + "d/" * 100 + "f").read_text() == "deep\n"


@pytest.mark.parametrize("levels", [250, 1100])
def test_far_too_many_levels_are_refused(ws: Workspace, levels: int) -> None:
    """Deeper than Python recurses, and than a path may be long: refused, and cleaned up all the same."""
    deep = f"""perl -e 'for (1..{levels}) {{ mkdir "deep"; chdir "deep" or die }}'"""
    result = make(ws, f"cd $@; {deep}", '"x/"', code=1)
    assert "made folders that are nested more than 200 deep" in result.err
    left = ws.root / "cache/tmp/999999-left-1"  # what a killed build would leave
    left.mkdir()
    subprocess.run(["bash", "-c", deep], cwd=left, check=True)
    assert ws.run("gc").code == 0
    assert not left.exists()


def test_a_huge_folder(ws: Workspace) -> None:
    make(ws, "cd $@; for i in {1..3000}; do echo $$i > $$i; done", '"x/"')
    assert len(list(out(ws, "x").iterdir())) == 3000


def test_sparse_files(ws: Workspace) -> None:
    make(ws, "truncate -s 200M $@; echo end >> $@")
    facts = out(ws, "x").stat()
    assert facts.st_size == 200 * 2**20 + 4
    assert facts.st_blocks * 512 < 2**20, "a hole was filled"


def test_long_names(ws: Workspace) -> None:
    name = "n" * 255
    make(ws, f"echo long > $(RULEDIR)/{name}", f'"{name}"')
    assert out(ws, name).read_text() == "long\n"
    out(ws, name).unlink()
    ws.build("//:it")
    assert out(ws, name).read_text() == "long\n"


def test_an_output_that_is_written_to_still(ws: Workspace, sandbox: dict[str, str]) -> None:
    """A process in the background holds the output open; it ends with its action."""
    make(ws, "(for i in {1..50}; do sleep 0.02; echo more; done) > $@ & sleep 0.1", **sandbox)
    first = out(ws, "x").read_bytes()
    assert ws.run("build", "//:it").code == 0
    assert out(ws, "x").read_bytes() == first


def test_a_log_that_is_no_file_any_more(ws: Workspace) -> None:
    """The evidence folder is the action's to write, also where its log lies."""
    ws.write(
        "rules/odd.py",
        '''
        """Replaces its log by a pipe and leaves a link and a badly named file as evidence."""
        import os

        from mxt.rule import Attributes, Run, Target


        class Attrs(Attributes):
            fail: bool


        def actions(target: Target) -> None:
            target.action(run=odd, outputs={"x": "x"}, params={"fail": target.attrs.fail})


        def odd(run: Run) -> None:
            (run.evidence / "log.txt").unlink()
            os.mkfifo(run.evidence / "log.txt")
            os.symlink("/etc/passwd", run.evidence / "link")
            open(os.fsencode(run.evidence) + b"/caf\\xe9", "wb").close()
            (run.evidence / "closed").write_text("closed")
            (run.evidence / "closed").chmod(0)
            run.outputs["x"].write_text("x")
            if run.params["fail"]:
                raise SystemExit(1)
        ''',
    )
    ws.write("MXTBUILD", 'odd(name = "good", fail = False)\nodd(name = "bad", fail = True)\n')
    ws.run("trust")
    ws.build("//:good", timeout=30)
    result = ws.build("//:bad", code=1, timeout=30)
    assert "failed" in result.err
    assert "root:" not in result.err
    for label in ("//:good", "//:bad"):
        assert "root:" not in ws.run("log", label, timeout=20).out
        listed = ws.run("log", label, "--list", timeout=20)
        assert listed.code == 0, listed.err


@pytest.fixture
def tiny(ws: Workspace) -> Iterator[Workspace]:
    """A workspace whose store has room for 2 MiB."""
    store = ws.root / "cache"
    store.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield ws
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def test_an_output_larger_than_the_disk(tiny: Workspace) -> None:
    result = make(tiny, "head -c 9000000 /dev/zero > $@", code=1)
    assert "No space left on device" in result.err or "the disk is full" in result.err
    make(tiny, "head -c 900000 /dev/zero > $@")
    assert out(tiny, "x").stat().st_size == 900000
