"""mxt init: a workspace that builds, and a wrapper that fetches the mxt it names."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from mxt.scaffold.origin import origin, portable
from mxt.scaffold.workspace_files import target_name
from tests.e2e.conftest import REPOSITORY, Workspace, wait_for
from tests.e2e.pipeline import row

FILES = {
    ".ci/run",
    ".github/workflows/mxt.yml",
    ".gitignore",
    "MXTBUILD",
    "README.md",
    "mxtw",
    "recipes/MXTBUILD",
    "recipes/demo.yaml",
    "recipes/tiny/corpus.txt",
    "recipes/tiny/talo.jsonl",
    "recipes/tiny/talo.yaml",
    "recipes/tiny/train-00.jsonl",
    "recipes/tiny/train-01.jsonl",
    "recipes/tiny/train-02.jsonl",
    "toolchains/cpu-py311.lock.json",
}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """An empty folder that is no workspace."""
    return Workspace(tmp_path / "an empty folder", tmp_path / "home")


def files_in(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def inside(place: Workspace, name: str) -> Workspace:
    """The new workspace, used as a user does."""
    return Workspace(place.root / name, place.home)


def test_a_new_workspace_is_whole_and_names_no_place_of_this_machine(place: Workspace) -> None:
    done = place.run("init", "demo")
    assert done.code == 0
    assert done.out.startswith("made //recipes:demo in demo: 15 files\n\nnext:\n  cd demo\n")
    assert "  ./mxtw build //recipes:demo   # train, evaluate, sign the receipt\n" in done.out
    assert files_in(place.root / "demo") == FILES
    for path in FILES:
        data = (place.root / "demo" / path).read_bytes()
        assert os.fsencode(REPOSITORY) not in data, path
        assert os.fsencode(place.root) not in data, path
    for path in ("mxtw", ".ci/run"):
        assert os.access(place.root / "demo" / path, os.X_OK)
        subprocess.run(["bash", "-n", place.root / "demo" / path], check=True)
    workflow = yaml.safe_load((place.root / "demo/.github/workflows/mxt.yml").read_text())
    assert any(step.get("run") == ".ci/run" for step in workflow["jobs"]["build"]["steps"])


def test_every_stage_of_it_is_there(place: Workspace) -> None:
    place.run("init", "demo")
    plan = inside(place, "demo").run("build", "-n", "//...")
    assert plan.code == 0, plan.err
    assert plan.out.endswith("16 actions: 5 to run, 11 after them, 0 cached\n")
    for stage in ("init_model", "pretrain", "shards[0002]", "probe", "train", "gate", "quantize"):
        assert f"//recipes:demo.{stage} " in plan.out


def test_its_wrapper_builds_with_a_checkout_from_wherever_it_is_called(place: Workspace) -> None:
    place.run("init", "demo")
    ws = inside(place, "demo")
    ws.write("hello/MXTBUILD", 'genrule(name = "hello", outs = ["o"], cmd = "echo hello > $@")\n')
    env = {**ws.env, "MXT_HOME": str(REPOSITORY)}
    run = {"env": env, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run([ws.root / "mxtw", "build", "//hello"], cwd=place.home, **run)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert ws.read("mxt-out/hello/hello/o") == "hello\n"
    again = subprocess.run(["../mxtw", "build", ":hello"], cwd=ws.root / "hello", **run)  # type: ignore[call-overload]
    assert again.returncode == 0, again.stderr
    assert "up to date: 1 action" in again.stdout


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("demo", "demo"),
        ("My Model.v2", "my_model_v2"),
        ("7b", "7b"),
        ("--", "main"),
        ("Ünïcode 名前", "ünïcode_名前"),
        ("all", "all_"),
        ("x'; $(touch y)", "x_touch_y"),
    ],
)
def test_odd_names(place: Workspace, name: str, target: str) -> None:
    assert target_name(name) == target
    done = place.run("init", "--", f"./{name}")
    assert done.code == 0, done.err
    if name not in ("demo", "--", "all"):
        plan = inside(place, name).run("build", "-n", f"//recipes:{target}.shards")
        assert plan.code == 0, plan.err
    subprocess.run(["bash", "-n", place.root / name / "mxtw"], check=True)
    assert not (place.root / name / "y").exists()


def test_nothing_is_overwritten(place: Workspace) -> None:
    place.write("demo/MXTBUILD", "# mine\n")
    place.write("demo/recipes/tiny", "a file where a folder must be\n")
    before = files_in(place.root)
    done = place.run("init", "demo")
    assert done.code == 2
    assert done.err.splitlines()[-4:] == [
        f"error: {place.root}/demo: these are in the way, and nothing is overwritten; nothing was written",
        "    MXTBUILD",
        "    recipes/tiny",
        "  hint: name another folder, or move them away",
    ]
    assert files_in(place.root) == before


def test_in_another_workspace_it_says_so(place: Workspace) -> None:
    place.write("MXTBUILD", "")
    done = place.run("init", "inner", "--ci", "none")
    assert done.code == 0
    assert (
        f"warning: the new workspace lies in another; neither sees the other's targets: {place.root}\n"
        in done.err
    )


def test_in_a_repository_readme_and_gitignore_stay(place: Workspace) -> None:
    subprocess.run(["git", "init", "-q", place.root], check=True)
    place.write("README.md", "mine\n")
    place.write(".gitignore", b"*.tmp\ncache/")
    done = place.run("init", ".")
    assert done.code == 0, done.err
    assert "\n  cd " not in done.out
    assert place.read("README.md") == "mine\n"
    assert place.read(".gitignore") == "*.tmp\ncache/\n/.mxt/\n/mxt-out/\n"
    again = place.run("init", ".")
    assert again.code == 0
    assert again.out.startswith("//recipes:an_empty_folder is there already in .: nothing to write\n")


def test_starters(place: Workspace) -> None:
    listed = place.run("init", "--list")
    lines = dict(line.split(None, 1) for line in listed.out.splitlines())
    assert next(iter(lines.items())) == (
        "tiny_sft_lora",
        "LoRA on a tiny Qwen3, made and pre-trained here, on a CPU (default)",
    )
    assert lines["tiny_sft_full"] == "full fine-tuning of a tiny Qwen3, made and pre-trained here, on a CPU"
    tiny = [name for name in lines if name.startswith("tiny_")]
    assert list(lines)[: len(tiny)] == tiny
    for name in (*tiny, "qwen3_32b_dpo"):  # the others are of the same kind
        done = place.run("init", name, "--recipe", name, "--ci", "none")
        assert done.code == 0, done.err
        assert not (place.root / name / ".ci").exists()
        plan = inside(place, name).run("build", "-n", f"//recipes:{name}")
        assert plan.code == 0, plan.err
    both = place.run("init", "--list", "x")
    assert (both.code, both.out) == (2, "")
    assert both.err.startswith("error: --list makes nothing: it goes alone\n")
    wrong = place.run("init", "x", "--recipe", "tiny_sft_lor")
    assert wrong.code == 2
    assert wrong.err == (
        "error: there is no recipe 'tiny_sft_lor' to start from, did you mean 'tiny_sft_lora'?\n"
        "  hint: 'mxt init --list' shows them\n"
    )
    assert not (place.root / "x").exists()


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("file", "'file' is there and is no folder"),
        ("file/x", "cannot write the workspace: not a directory"),
        ("", "the folder's name is empty"),
        (None, "name the new workspace's folder"),
    ],
)
def test_bad_folders(place: Workspace, folder: str | None, problem: str) -> None:
    place.write("file", "x")
    done = place.run("init", *([] if folder is None else [folder]))
    assert done.code == 2
    assert problem in done.err
    assert files_in(place.root) == {"file"}


def test_own_rows(place: Workspace) -> None:
    place.write("rows one.jsonl", "".join(row(f"what is {n}?", f"it is {n}") for n in range(20)))
    place.write("more.jsonl", row("what else?", "nothing"))
    done = place.run("init", "demo", "--data", "rows one.jsonl", "--data", "more.jsonl")
    assert done.code == 0, done.err
    assert "mxtw test" not in done.out
    ws = inside(place, "demo")
    assert ws.read("recipes/data/more.jsonl") == place.read("more.jsonl")
    recipe = yaml.safe_load(ws.read("recipes/demo.yaml"))
    assert recipe["data"]["files"] == ["data/rows one.jsonl", "data/more.jsonl"]
    assert recipe["data"]["format"] == "messages"
    assert recipe["model"]["init"]["corpus"] == ["tiny/corpus.txt", "data/corpus.txt"]
    assert "eval" not in recipe
    assert "talo" not in " ".join(files_in(ws.root))
    assert "mxtw test" not in ws.read(".ci/run") + ws.read("README.md")
    plan = ws.run("build", "-n", "//recipes:demo")
    assert plan.code == 0, plan.err
    assert "//recipes:demo.shards[0001] " in plan.out


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("", "rows.jsonl: the file has no rows"),
        ('{"messages": 3}\n', "rows.jsonl:1: "),
        ('{"a": 1, "b": 2}\n', "rows.jsonl:1: the row has none of the known forms (it has a, b)"),
        (row("a", "b") + "{]\n", "rows.jsonl:2: bad JSON"),
        ('[{"text": "x"}]\n', "rows.jsonl:1: not a JSON object"),
    ],
)
def test_bad_rows_are_named_before_anything_is_written(place: Workspace, rows: str, problem: str) -> None:
    place.write("rows.jsonl", rows.encode())
    done = place.run("init", "demo", "--data", "rows.jsonl")
    assert done.code == 2
    assert problem in done.err
    assert files_in(place.root) == {"rows.jsonl"}


def test_data_that_cannot_be(place: Workspace) -> None:
    gone = place.run("init", "demo", "--data", "gone.jsonl")
    assert (gone.code, "cannot read the data: no such file or directory" in gone.err) == (2, True)
    place.write("rows.csv", "a,b\n")
    assert (
        "'rows.csv' is no JSONL or Parquet file by its name"
        in place.run("init", "d", "--data", "rows.csv").err
    )
    place.write("a/rows.jsonl", row("a", "b"))
    place.write("b/rows.jsonl", row("a", "b"))
    twice = place.run("init", "d", "--data", "a/rows.jsonl", "--data", "b/rows.jsonl")
    assert "two files of --data are called 'rows.jsonl'" in twice.err
    place.write("text.jsonl", json.dumps({"text": "plain"}) + "\n")
    mixed = place.run("init", "d", "--data", "a/rows.jsonl", "--data", "text.jsonl")
    assert (
        "the files of --data have different forms: rows.jsonl is 'messages', text.jsonl is 'text'"
        in mixed.err
    )
    assert not (place.root / "d").exists()


# ---- where mxt comes from -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://host.example/o/r.git", "https://host.example/o/r.git"),
        ("https://user:secret@host.example/o/r.git", "https://host.example/o/r.git"),
        ("ssh://git:secret@host.example/o/r", "ssh://git@host.example/o/r"),
        ("git@host.example:o/r.git", "git@host.example:o/r.git"),
        ("/srv/git/r", ""),
        ("file:///srv/git/r", ""),
        ("../r", ""),
        ("", ""),
    ],
)
def test_only_addresses_that_others_can_reach_are_written(url: str, kept: str) -> None:
    assert portable(url) == kept


def git(folder: Path, *args: str) -> str:
    words = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x.example", *args]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository with something that answers like mxt."""
    root = tmp_path / "up stream"
    (root / "mxt").mkdir(parents=True)
    (root / "mxt" / "__main__.py").write_text("")
    (root / "mxtw").write_text('#!/bin/bash\necho "mxt $PWD ${MXT_WORKSPACE-none} $*"\n')
    (root / "mxtw").chmod(0o755)
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    return root


def test_the_origin_of_a_checkout(upstream: Path) -> None:
    assert "no 'origin' that others can reach" in origin(upstream).doubt
    git(upstream, "remote", "add", "origin", "https://me:secret@host.example/o/r.git")
    found = origin(upstream)
    assert (found.url, found.commit) == ("https://host.example/o/r.git", git(upstream, "rev-parse", "HEAD"))
    assert "seems not to be pushed" in found.doubt
    git(upstream, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert origin(upstream).doubt == ""
    (upstream / "mxtw").write_text("changed")
    assert "changes that are not committed" in origin(upstream).doubt
    assert "no git checkout" in origin(upstream / "mxt").doubt


def wrapped(place: Workspace, url: str, commit: str) -> Path:
    """A new workspace whose wrapper fetches from there."""
    place.run("init", "demo")
    mxtw = place.root / "demo" / "mxtw"
    text = mxtw.read_text()
    lines = [
        f"url='{url}'" if x.startswith("url=") else f"commit={commit}" if x.startswith("commit=") else x
        for x in text.splitlines()
    ]
    mxtw.write_text("\n".join(lines) + "\n")
    return mxtw


def start(mxtw: Path, cwd: Path, **env: str) -> subprocess.Popen[str]:
    base = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    return subprocess.Popen(
        [mxtw, "build", "//x"],
        cwd=cwd,
        env={**base, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def call(mxtw: Path, cwd: Path, **env: str) -> tuple[int, str, str]:
    process = start(mxtw, cwd, **env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_wrapper_fetches_once_and_runs_that(place: Workspace, upstream: Path) -> None:
    commit = git(upstream, "rev-parse", "HEAD")
    mxtw = wrapped(place, f"file://{upstream}", commit)
    demo = mxtw.parent
    code, out, err = call(mxtw, demo)
    assert (code, out) == (0, f"mxt {demo} none build //x\n"), err
    assert err == f"mxt: first use: fetching {commit[:12]} from file://{upstream}\n"
    shutil.rmtree(upstream)
    assert call(mxtw, demo) == (0, f"mxt {demo} none build //x\n", "")
    # from elsewhere it is still this workspace; and a link to it works
    link = place.home / "mxt"
    link.symlink_to(mxtw)
    assert call(link, place.home) == (0, f"mxt {place.home} {demo} build //x\n", "")


def test_two_wrappers_at_once(place: Workspace, upstream: Path) -> None:
    mxtw = wrapped(place, f"file://{upstream}", git(upstream, "rev-parse", "HEAD"))
    both = [start(mxtw, mxtw.parent) for _ in range(2)]
    ends = [p.communicate(timeout=60) for p in both]
    assert [out for out, _ in ends] == [f"mxt {mxtw.parent} none build //x\n"] * 2
    assert sum("fetching " in err and "first use" in err for _, err in ends) == 1


def test_an_interrupted_fetch_is_begun_again(place: Workspace, upstream: Path, tmp_path: Path) -> None:
    commit = git(upstream, "rev-parse", "HEAD")
    mxtw = wrapped(place, f"file://{upstream}", commit)
    slow = tmp_path / "bin"
    slow.mkdir()
    real = shutil.which("git")
    (slow / "git").write_text(
        f'#!/bin/bash\ncase "$*" in *fetch*) touch "{tmp_path}/begun"; sleep 60;; esac\nexec {real} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    process = start(mxtw, mxtw.parent, PATH=f"{slow}:{os.environ['PATH']}")
    wait_for((tmp_path / "begun").exists)
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (8, ""), err
    assert err.endswith("mxt: interrupted; run the same command again\n")
    assert call(mxtw, mxtw.parent)[0] == 0


@pytest.mark.parametrize("wrong", ["url", "commit", "neither", "home"])
def test_what_the_wrapper_says_when_it_cannot(place: Workspace, upstream: Path, wrong: str) -> None:
    url = f"file://{upstream}"
    commit = git(upstream, "rev-parse", "HEAD")
    if wrong == "url":
        url += "-gone"
    if wrong == "commit":
        commit = "1" * 40
    if wrong == "neither":
        url = commit = ""
    mxtw = wrapped(place, url, commit)
    code, out, err = call(mxtw, mxtw.parent, **({"MXT_HOME": "/nonesuch"} if wrong == "home" else {}))
    assert (code, out) == (2, "")
    expected = {
        "url": f"error: mxt could not be fetched from {url}\n",
        "commit": f"error: mxt could not be fetched from {url}\n",
        "neither": "error: this workspace does not say where mxt comes from\n",
        "home": "error: MXT_HOME '/nonesuch' is no checkout of mxt\n",
    }
    assert expected[wrong] in err
    assert "  hint: " in err
    assert not (mxtw.parent / ".mxt" / (commit or "x")).exists()


# ---- what stands in for machine learning in a text ----------------------------------------------------


def test_changing_a_recipe_keeps_its_comments() -> None:
    from rules.starters._recipe_text import add_field, replace_field, replace_section

    text = "# head\na:\n  x: 1 # why\n  b:\n    x: [2]\n\nc:\n  y: 1\n\n  z: 2\nd: 4\n"
    assert replace_field(text, "a.x", "9") == text.replace("x: 1 #", "x: 9 #")
    assert replace_field(text, "a.b.x", "9") == text.replace("x: [2]", "x: 9")
    assert add_field(text, "a.b", "new: 3") == text.replace("  b:\n", "  b:\n    new: 3\n")
    assert (
        replace_section(text, "c", "# none\n")
        == "# head\na:\n  x: 1 # why\n  b:\n    x: [2]\n\n# none\n\nd: 4\n"
    )
    for change in (lambda: replace_field(text, "a.nope", "1"), lambda: replace_section(text, "q", "")):
        with pytest.raises(KeyError):
            change()
