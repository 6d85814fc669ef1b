"""Which folder is the workspace, where its store is, and which packages it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxt.errors import UsageError
from mxt.loading.root import begins_workspace
from mxt.loading.workspace import discover, find_workspace


def make(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_the_highest_build_file_is_the_root(tmp_path: Path) -> None:
    make(tmp_path, "w/MXTBUILD", "w/a/MXTBUILD", "w/a/b/c/x")
    assert find_workspace(tmp_path / "w/a/b/c", environ={}).root == tmp_path / "w"


def test_not_past_a_git_folder(tmp_path: Path) -> None:
    make(tmp_path, "MXTBUILD", "repo/.git/HEAD", "repo/MXTBUILD", "repo/a/MXTBUILD")
    assert find_workspace(tmp_path / "repo/a", environ={}).root == tmp_path / "repo"


def test_a_git_worktree_has_a_git_file(tmp_path: Path) -> None:
    make(tmp_path, "MXTBUILD", "repo/.git", "repo/a/MXTBUILD")
    assert find_workspace(tmp_path / "repo/a", environ={}).root == tmp_path / "repo/a"


def test_not_past_a_workspace_call(tmp_path: Path) -> None:
    make(tmp_path, "MXTBUILD", "w/a/MXTBUILD")
    (tmp_path / "w/MXTBUILD").write_text("# ours\n\nworkspace(name = 'w')\n")
    assert find_workspace(tmp_path / "w/a", environ={}).root == tmp_path / "w"


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file to somebody else takes root")
def test_not_into_another_owners_folder(tmp_path: Path) -> None:
    make(tmp_path, "w/MXTBUILD", "w/mine/MXTBUILD", "w/other/MXTBUILD")
    os.chown(tmp_path / "w", 12345, -1)
    assert find_workspace(tmp_path / "w/mine", environ={}).root == tmp_path / "w/mine"
    os.chown(tmp_path / "w", 0, -1)
    os.chown(tmp_path / "w/MXTBUILD", 12345, -1)  # laid down by somebody in a shared folder
    assert find_workspace(tmp_path / "w/mine", environ={}).root == tmp_path / "w/mine"


def test_none(tmp_path: Path) -> None:
    make(tmp_path, "repo/.git/HEAD", "repo/a/x")
    with pytest.raises(UsageError, match=r"no MXTBUILD in .* or above it") as caught:
        find_workspace(tmp_path / "repo/a", environ={})
    assert caught.value.exit_code == 2


def test_option_before_variable_before_search(tmp_path: Path) -> None:
    make(tmp_path, "one/MXTBUILD", "two/MXTBUILD", "three/MXTBUILD", "empty/x")
    env = {"MXT_WORKSPACE": str(tmp_path / "two")}
    assert find_workspace(tmp_path / "three", environ=env).root == tmp_path / "two"
    assert find_workspace(tmp_path / "three", root="../one", environ=env).root == tmp_path / "one"
    with pytest.raises(UsageError, match=r"--workspace .* has no MXTBUILD"):
        find_workspace(tmp_path, root="empty", environ={})
    with pytest.raises(UsageError, match=r"--workspace .* is not a folder"):
        find_workspace(tmp_path, root="nowhere", environ={})


def test_a_linked_workspace_has_its_real_path(tmp_path: Path) -> None:
    make(tmp_path, "w/MXTBUILD")
    (tmp_path / "link").symlink_to("w")
    assert find_workspace(tmp_path / "link", environ={}).root == tmp_path / "w"


def test_store(tmp_path: Path) -> None:
    make(tmp_path, "w/MXTBUILD", "file")
    at = tmp_path / "w"
    assert find_workspace(at, environ={}).store == at / "cache"
    assert find_workspace(at, environ={"MXT_STORE": "s"}).store == at / "s"
    assert find_workspace(at, store="/abs", environ={"MXT_STORE": "s"}).store == Path("/abs")
    with pytest.raises(UsageError, match=r"is not a folder"):
        find_workspace(at, store="../file", environ={})
    with pytest.raises(UsageError, match=r"is the workspace itself"):
        find_workspace(at, store=".", environ={})


def test_discover(tmp_path: Path) -> None:
    make(
        tmp_path, "MXTBUILD", "a/MXTBUILD", "a/x/b/MXTBUILD", "cache/MXTBUILD", "mxt-out/a/MXTBUILD",
        ".git/MXTBUILD", "a/.venv/MXTBUILD", "store/MXTBUILD", "a/cache/MXTBUILD", "nested/deep/MXTBUILD",
    )  # fmt: skip
    (tmp_path / "nested/MXTBUILD").write_text('workspace(name = "n")\n')
    (tmp_path / "loop").symlink_to(".")
    workspace = find_workspace(tmp_path, store="store", environ={})
    found = discover(workspace)
    assert found.packages == ["", "a", "a/cache", "a/x/b"]
    assert {".", "a", "a/x", "a/x/b"} <= set(found.directories)
    assert "cache" not in found.directories
    assert "nested/MXTBUILD" in found.files  # it decides that nested/ is another workspace
    assert discover(workspace, "a/x").packages == ["a/x/b"]


def test_discover_shows_every_folder_that_a_new_package_changes(tmp_path: Path) -> None:
    make(tmp_path, "MXTBUILD", "a/b/x")
    workspace = find_workspace(tmp_path, environ={})
    before = discover(workspace)
    make(tmp_path, "a/b/MXTBUILD")
    after = discover(workspace)
    changed = {path for path in before.directories if before.directories[path] != after.directories[path]}
    assert changed == {"a/b"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("workspace(name = 'x')", True),
        ("# a\n\n  # b\nworkspace (\n", True),
        ("workspaces(1)", False),
        ("x = 1\nworkspace()", False),
        ("", False),
    ],
)
def test_begins_workspace(tmp_path: Path, text: str, answer: bool) -> None:
    file = tmp_path / "MXTBUILD"
    file.write_text(text)
    assert begins_workspace(file) is answer
