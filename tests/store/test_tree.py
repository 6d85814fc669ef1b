from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxt.action.canonical import dump, load
from mxt.errors import StoreError
from mxt.store import (
    Entry,
    Store,
    digest_tree,
    hash_bytes,
    materialise_tree,
    read_tree,
    store_tree,
    walk_tree,
)
from mxt.store.tree import tree_present
from mxt.store.tree_object import encode_tree, escapes, parse_tree

from .conftest import file_with, flip, overwrite


def sample(top: Path) -> Path:
    file_with(top / "b.txt", b"text")
    file_with(top / "A", b"")
    file_with(top / "a", b"lower case is another name")
    file_with(top / "bin" / "tool", b"#!/bin/sh\n", 0o755)
    file_with(top / "bin" / "dépôt ☂", b"unicode")
    (top / "empty").mkdir()
    (top / "link").symlink_to("bin/tool")
    (top / "bin" / "up").symlink_to("../b.txt")
    return top


def picture(top: Path) -> dict[str, tuple[str, object]]:
    """Everything that a folder's digest is to cover."""
    out: dict[str, tuple[str, object]] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            out[name] = ("symlink", os.readlink(path))
        elif path.is_dir():
            out[name] = ("dir", None)
        else:
            out[name] = ("file", (path.read_bytes(), bool(path.stat().st_mode & 0o100)))
    return out


def test_a_folder_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    before = picture(sample(tmp_path / "made"))
    info = store_tree(store.cas, tmp_path / "made")
    assert (info.files, info.size) == (5, 4 + 26 + 10 + 7)
    materialise_tree(store.cas, info.digest, tmp_path / "back")
    assert picture(tmp_path / "back") == before
    assert digest_tree(tmp_path / "back") == info
    assert stat.S_IMODE((tmp_path / "back" / "b.txt").stat().st_mode) == 0o444
    assert os.access(tmp_path / "back" / "bin", os.W_OK)
    assert (tmp_path / "back" / "b.txt").stat().st_ino == store.cas.path(hash_bytes(b"text")).stat().st_ino


def test_the_object_is_what_the_contract_says(store: Store, tmp_path: Path) -> None:
    file_with(tmp_path / "made" / "f", b"text")
    (tmp_path / "made" / "s").symlink_to("f")
    info = store_tree(store.cas, tmp_path / "made")
    form = {
        "entries": [
            {"name": "f", "kind": "file", "digest": hash_bytes(b"text"), "size": 4, "executable": False},
            {"name": "s", "kind": "symlink", "target": "f"},
        ]
    }
    assert load(store.cas.read(info.digest)) == form
    assert info.digest == hash_bytes(dump(form))


def test_walk_names_everything_once(store: Store, tmp_path: Path) -> None:
    sample(tmp_path / "made")
    info = store_tree(store.cas, tmp_path / "made")
    walked = [path for path, _ in walk_tree(store.cas, info.digest)]
    assert sorted(walked) == sorted(picture(tmp_path / "made"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda top: (top / "b.txt").write_bytes(b"texT"), id="content"),
        pytest.param(lambda top: (top / "b.txt").rename(top / "c.txt"), id="name"),
        pytest.param(lambda top: (top / "b.txt").chmod(0o755), id="executable bit"),
        pytest.param(lambda top: (top / "new").mkdir(), id="an empty folder more"),
        pytest.param(lambda top: (top / "empty").rmdir(), id="an empty folder less"),
        pytest.param(lambda top: (top / "bin" / "up").unlink(), id="a symlink less"),
        pytest.param(lambda top: ((top / "link").unlink(), (top / "link").symlink_to("a")), id="a target"),
        pytest.param(lambda top: file_with(top / "bin" / "more"), id="a file more below"),
    ],
)
def test_each_thing_it_covers_changes_the_digest(tmp_path: Path, change: Any) -> None:
    top = sample(tmp_path / "made")
    before = digest_tree(top).digest
    change(top)
    assert digest_tree(top).digest != before


def test_times_modes_and_place_do_not_change_the_digest(tmp_path: Path) -> None:
    top = sample(tmp_path / "made")
    before = digest_tree(top)
    os.utime(top / "b.txt", (1, 1))
    (top / "b.txt").chmod(0o600)
    top.rename(tmp_path / "moved")
    assert digest_tree(tmp_path / "moved") == before


def test_what_cannot_be_kept_is_refused(store: Store, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    os.mkfifo(made / "pipe")
    with pytest.raises(StoreError, match="'pipe' is a named pipe"):
        store_tree(store.cas, made)
    (made / "pipe").unlink()
    (made / "out").symlink_to("../../secret")
    with pytest.raises(StoreError, match=r"the symlink 'out' leads out of its folder, to '\.\./\.\./secret'"):
        store_tree(store.cas, made)
    (made / "out").unlink()
    (made / "out").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="leads out"):
        store_tree(store.cas, made)
    (made / "out").unlink()
    with open(os.fsencode(made) + b"/caf\xe9", "wb"):
        pass
    with pytest.raises(StoreError, match="is not UTF-8") as caught:
        store_tree(store.cas, made)
    str(caught.value).encode()  # and the message itself can be printed


@pytest.mark.parametrize(
    ("target", "depth", "leads_out"),
    [
        ("a", 0, False),
        ("a/b", 0, False),
        ("./a", 0, False),
        ("..", 0, True),
        ("../a", 1, False),
        ("../../a", 1, True),
        ("a/..", 0, True),  # a may be a symlink to elsewhere in the tree
        ("a/../../x", 1, True),
        ("./../x", 0, True),
        ("/", 3, True),
        ("", 0, True),
    ],
)
def test_where_symlinks_may_lead(target: str, depth: int, leads_out: bool) -> None:
    assert escapes(target, depth) is leads_out


def entry(**fields: object) -> dict[str, object]:
    return {"name": "f", "kind": "file", "digest": hash_bytes(b""), "size": 0, "executable": False} | fields


def without(form: dict[str, object], *names: str) -> dict[str, object]:
    return {key: value for key, value in form.items() if key not in names}


@pytest.mark.parametrize(
    "form",
    [
        [],
        {},
        {"entries": {}},
        {"entries": [], "more": 1},
        {"entries": ["f"]},
        {"entries": [entry(name="..")]},
        {"entries": [entry(name=".")]},
        {"entries": [entry(name="")]},
        {"entries": [entry(name="a/b")]},
        {"entries": [entry(name="/etc")]},
        {"entries": [entry(name="a\0")]},
        {"entries": [entry(name=7)]},
        {"entries": [entry(kind="device")]},
        {"entries": [entry(kind=["file"])]},
        {"entries": [entry(size=-1)]},
        {"entries": [entry(size=True)]},
        {"entries": [entry(size="0")]},
        {"entries": [entry(executable=0)]},
        {"entries": [entry(digest="../../etc/passwd")]},
        {"entries": [entry(digest=None)]},
        {"entries": [entry(extra=1)]},
        {"entries": [without(entry(), "size")]},
        {"entries": [entry(name="b"), entry(name="a")]},
        {"entries": [entry(), entry()]},
        {"entries": [{"name": "s", "kind": "symlink", "target": 7}]},
    ],
)
def test_a_hostile_object_is_no_folder(store: Store, form: object) -> None:
    digest = store.cas.put_bytes(dump(form))
    with pytest.raises(StoreError, match="is no folder"):
        read_tree(store.cas, digest)
    assert not tree_present(store.cas, digest)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"entries": []}',
        b'{"entries":[],"entries":[]}',
        b"[" * 100_000,
        b'{"entries":[{"kind":"symlink","name":"\\ud800","target":"x"}]}',
    ],
)
def test_bytes_that_are_no_canonical_object_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_tree(data)


def test_a_strangers_symlink_cannot_lead_out(store: Store, tmp_path: Path) -> None:
    inner = store.cas.put_bytes(encode_tree([Entry("s", "symlink", target="../../outside")]))
    outer = store.cas.put_bytes(encode_tree([Entry("d", "dir", inner)]))
    with pytest.raises(StoreError, match="the symlink 'd/s' leads out"):
        materialise_tree(store.cas, outer, tmp_path / "back")


def test_a_folder_with_a_damaged_part_is_not_present(store: Store, tmp_path: Path) -> None:
    info = store_tree(store.cas, sample(tmp_path / "made"))
    assert tree_present(store.cas, info.digest)
    overwrite(store.cas.path(hash_bytes(b"unicode")), flip)
    assert not tree_present(store.cas, info.digest)
    store.cas.put_bytes(b"unicode")
    assert tree_present(store.cas, info.digest)
    overwrite(store.cas.path(info.digest), flip)
    assert not tree_present(store.cas, info.digest)


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 100)
folders = st.recursive(
    st.tuples(st.binary(max_size=20), st.booleans()),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
contents = st.dictionaries(names, folders, max_size=5)


def write(top: Path, content: dict[str, Any]) -> None:
    top.mkdir()
    for name, item in content.items():
        if isinstance(item, dict):
            write(top / name, item)
        else:
            file_with(top / name, item[0], 0o755 if item[1] else 0o644)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=contents, other=contents)
def test_equal_digests_mean_equal_folders(
    store: Store, tmp_path_factory: pytest.TempPathFactory, one: dict[str, Any], other: dict[str, Any]
) -> None:
    top = tmp_path_factory.mktemp("tree")
    write(top / "one", one)
    write(top / "other", other)
    first, second = picture(top / "one"), picture(top / "other")
    mine, theirs = digest_tree(top / "one"), digest_tree(top / "other")
    assert (mine.digest == theirs.digest) == (first == second)
    stored = store_tree(store.cas, top / "one")
    assert stored == mine
    materialise_tree(store.cas, stored.digest, top / "back")
    assert picture(top / "back") == first
    assert sum(found.kind == "file" for _, found in walk_tree(store.cas, stored.digest)) == stored.files


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda name, data, size, bit: Entry(name, "file", hash_bytes(data), size, bit),
                names,
                st.binary(),
                st.integers(0, 2**53),
                st.booleans(),
            ),
            st.builds(lambda name, target: Entry(name, "symlink", target=target), names, names),
        ),
        unique_by=lambda found: found.name,
        max_size=8,
    )
)
def test_an_object_parses_to_what_was_encoded(entries: list[Entry]) -> None:
    data = encode_tree(entries)
    parsed = parse_tree(data)
    assert sorted(parsed) == sorted(entries)
    assert encode_tree(parsed) == data
