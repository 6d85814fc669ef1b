"""glob() finds what Bazel's would, stays inside its package, and tells what it listed."""

from __future__ import annotations

import os

import pytest

from mxt.errors import LoadError
from mxt.loading.glob import glob
from tests.loading.conftest import Space


@pytest.fixture
def tree(space: Space) -> Space:
    for path in ("a.txt", "b.txt", "c.md", ".hidden.txt", "d/e.txt", "d/f/g.txt", "d/f/h.md", "we[i]rd.txt"):
        space.write(f"p/{path}")
    for path in ("p/MXTBUILD", "p/sub/MXTBUILD", "p/sub/no.txt", "p/.venv/no.txt", "p/.git/no.txt"):
        space.write(path)
    return space


def find(space: Space, *include: str, exclude: tuple[str, ...] = (), package: str = "p") -> list[str]:
    return glob(space.workspace, package, list(include), list(exclude), allow_empty=True).result


@pytest.mark.parametrize(
    ("include", "found"),
    [
        (["*.txt"], [".hidden.txt", "a.txt", "b.txt", "we[i]rd.txt"]),
        (["a*"], ["a.txt"]),
        (["*a*t"], ["a.txt"]),
        (["d/*"], ["d/e.txt"]),
        (["d/**"], ["d/e.txt", "d/f/g.txt", "d/f/h.md"]),
        (["**/*.md"], ["c.md", "d/f/h.md"]),
        (["d/**/g.txt"], ["d/f/g.txt"]),
        (["**/f/**"], ["d/f/g.txt", "d/f/h.md"]),
        (["**/**/g.txt"], ["d/f/g.txt"]),
        (["we[i]rd.txt"], ["we[i]rd.txt"]),
        (["a.txt", "*.txt", "d/e.txt"], [".hidden.txt", "a.txt", "b.txt", "d/e.txt", "we[i]rd.txt"]),
        (["d"], []),  # folders are not files
        (["sub/no.txt"], []),  # another package
    ],
)
def test_matches(tree: Space, include: list[str], found: list[str]) -> None:
    assert find(tree, *include) == found


def test_everything_but_what_is_never_matched(tree: Space) -> None:
    assert find(tree, "**") == sorted(
        [
            "a.txt",
            "b.txt",
            "c.md",
            ".hidden.txt",
            "d/e.txt",
            "d/f/g.txt",
            "d/f/h.md",
            "we[i]rd.txt",
            "MXTBUILD",
        ]
    )


def test_exclude(tree: Space) -> None:
    assert find(tree, "**/*.txt", exclude=("*.txt", "d/f/**")) == ["d/e.txt"]


def test_store_and_outputs_are_never_matched(tree: Space) -> None:
    for path in ("cache/x.txt", "mxt-out/x.txt", "kept/cache/x.txt"):
        tree.write(path)
    assert find(tree, "**/x.txt", package="") == ["kept/cache/x.txt"]


@pytest.mark.parametrize(
    "pattern", ["/a", "../a", "a/../b", "./a", "a//b", "a/", "**a", "a**/b", "a?", "a\\b", "", "a\n"]
)
def test_bad_patterns(tree: Space, pattern: str) -> None:
    with pytest.raises(LoadError, match=r"glob pattern"):
        find(tree, pattern)


def test_no_match_is_an_error_for_each_pattern(tree: Space) -> None:
    with pytest.raises(LoadError, match=r"glob pattern '\*.nope' matches no file"):
        glob(tree.workspace, "p", ["*.txt", "*.nope"], [])
    with pytest.raises(LoadError, match=r"every match is excluded"):
        glob(tree.workspace, "p", ["*.txt"], ["**"])
    assert glob(tree.workspace, "p", [], [], allow_empty=True).result == []


def test_links(tree: Space) -> None:
    p = tree.root / "p"
    tree.write("other/file.txt")
    (p / "file-link.txt").symlink_to("a.txt")
    (p / "dir-link").symlink_to("../other")
    (p / "d/loop").symlink_to("..")
    (p / "self").symlink_to("self")
    (p / "gone.txt").symlink_to("nothing")
    assert find(tree, "**/*.txt", exclude=("*a*", "*b*")) == [
        ".hidden.txt", "d/e.txt", "d/f/g.txt", "dir-link/file.txt", "file-link.txt", "we[i]rd.txt",
    ]  # fmt: skip


def test_a_ring_of_links_ends(tree: Space) -> None:
    for here, there in (("x", "y"), ("y", "x")):
        tree.write(f"p/{here}/{here}.txt")
        (tree.root / f"p/{here}/to").symlink_to(f"../{there}")
    assert find(tree, "x/**") == ["x/to/y.txt", "x/x.txt"]


def test_a_link_out_of_the_workspace_is_refused(tree: Space) -> None:
    outside = tree.root.parent / "secret.txt"
    outside.write_text("secret")
    link = tree.root / "p/leak.txt"
    link.symlink_to(outside)
    with pytest.raises(
        LoadError, match=r"the link 'p/leak.txt' leads out of the workspace, to '.*secret.txt'"
    ):
        find(tree, "*.txt")
    assert "leak.txt" not in find(tree, "*.txt", exclude=("leak*",))
    assert find(tree, "*.md") == ["c.md"]  # not asked for
    link.unlink()
    (tree.root / "p/leaks").symlink_to("/etc")
    with pytest.raises(LoadError, match=r"leads out of the workspace"):
        find(tree, "**/*.md")
    assert find(tree, "**/*.md", exclude=("leaks/**",)) == ["c.md", "d/f/h.md"]


def test_a_link_into_the_store_is_refused(tree: Space) -> None:
    tree.write("cache/cas/x.txt")
    (tree.root / "p/x.txt").symlink_to("../cache/cas/x.txt")
    with pytest.raises(LoadError, match=r"leads into the store"):
        find(tree, "x.txt")


def test_special_files_are_no_sources(tree: Space) -> None:
    os.mkfifo(tree.root / "p/pipe.txt")
    assert "pipe.txt" not in find(tree, "*.txt")


def test_a_name_that_is_not_utf8(tree: Space) -> None:
    with open(os.fsencode(tree.root) + b"/p/\xff.txt", "wb"):
        pass
    with pytest.raises(LoadError, match=r"is not UTF-8"):
        find(tree, "*.txt")


@pytest.mark.parametrize("added", ["p/new.txt", "p/d/new.txt", "p/d/f/new.txt"])
def test_a_new_match_changes_a_folder_that_was_noted(tree: Space, added: str) -> None:
    before = glob(tree.workspace, "p", ["**/*.txt"], [])
    tree.write(added)
    after = glob(tree.workspace, "p", ["**/*.txt"], [])
    assert before.result != after.result
    assert before.directories != after.directories
    assert before.directories.keys() == after.directories.keys()


def test_a_new_package_inside_changes_a_folder_that_was_noted(tree: Space) -> None:
    before = glob(tree.workspace, "p", ["**/*.txt"], [])
    tree.write("p/d/f/MXTBUILD")
    assert before.directories["p/d/f"] != glob(tree.workspace, "p", ["**/*.txt"], []).directories["p/d/f"]


def test_folders_that_cannot_match_are_not_walked(tree: Space) -> None:
    assert set(glob(tree.workspace, "p", ["d/*.txt"], []).directories) == {"p", "p/d"}
