from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.store import MissingBlob, Output, Realisation, Store, hash_bytes, store_tree

from .conftest import file_with, flip, overwrite

KEY = hash_bytes(b"an action")


@pytest.fixture
def made(store: Store, tmp_path: Path) -> Realisation:
    file_with(tmp_path / "made" / "config.json", b"{}")
    file_with(tmp_path / "made" / "deep" / "weights", b"w" * 100)
    (tmp_path / "made" / "deep" / "link").symlink_to("weights")
    info = store_tree(store.cas, tmp_path / "made")
    tool = store.cas.store_file(file_with(tmp_path / "tool", b"#!/bin/sh\n", 0o755))
    outputs = {
        "model": Output("dir", info.digest, "model", info.size),
        "tool": Output("file", tool.digest, "bin/tool", tool.size, executable=True),
    }
    return Realisation(KEY, outputs)


def names(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())


EXPECTED = ["bin/tool", "model/config.json", "model/deep/link", "model/deep/weights"]


def test_outputs_are_links_into_the_store(store: Store, made: Realisation) -> None:
    out = store.outputs.materialise(made)
    assert out == store.layout.out(KEY)
    assert names(out) == EXPECTED
    assert (out / "model/deep/weights").stat().st_ino == store.cas.path(hash_bytes(b"w" * 100)).stat().st_ino
    assert os.access(out / "bin/tool", os.X_OK)
    assert store.outputs.intact(made)
    assert os.listdir(store.layout.tmp) == []


def test_again_changes_nothing(store: Store, made: Realisation) -> None:
    out = store.outputs.materialise(made)
    before = {path: path.lstat().st_ctime_ns for path in out.rglob("*")}
    store.outputs.materialise(made)
    assert {path: path.lstat().st_ctime_ns for path in out.rglob("*")} == before


def bend(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc")


def file_for_folder(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def folder_for_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


def behind_a_symlink(out: Path) -> None:
    out.rename(out.with_name("gone"))
    out.symlink_to("gone")


def replace(path: Path) -> None:
    path.unlink()
    path.write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda out: (out / "bin/tool").unlink(), id="a file missing"),
        pytest.param(lambda out: (out / "model/deep").rename(out / "model/moved"), id="a folder renamed"),
        pytest.param(lambda out: file_with(out / "model/extra", b"mine"), id="a file more"),
        pytest.param(lambda out: file_with(out / "model/more/extra", b"mine"), id="a folder more"),
        pytest.param(lambda out: (out / "bin/tool").chmod(0o444), id="not executable any more"),
        pytest.param(lambda out: bend(out / "model/deep/link"), id="a symlink bent"),
        pytest.param(lambda out: file_for_folder(out / "bin"), id="a file for a folder"),
        pytest.param(lambda out: file_for_folder(out / "model/deep"), id="a file for a folder in a folder"),
        pytest.param(lambda out: folder_for_file(out / "bin/tool"), id="a folder for a file"),
        pytest.param(behind_a_symlink, id="all behind a symlink"),
        pytest.param(file_for_folder, id="a file in its place"),
        pytest.param(lambda out: replace(out / "model/config.json"), id="replaced"),
    ],
)
def test_what_was_tampered_with_is_mended(
    store: Store, made: Realisation, damage: Callable[[Path], object]
) -> None:
    out = store.outputs.materialise(made)
    damage(out)
    assert not store.outputs.intact(made)
    assert store.actions.outputs_present(made)
    store.outputs.materialise(made)
    assert names(out) == EXPECTED
    assert not out.is_symlink()
    assert store.outputs.intact(made)


def test_an_output_edited_in_place_is_noticed_as_it_is_the_blob(store: Store, made: Realisation) -> None:
    out = store.outputs.materialise(made)
    overwrite(out / "model/config.json", flip)
    assert not store.outputs.intact(made)
    assert not store.actions.outputs_present(made)
    with pytest.raises(MissingBlob):
        store.outputs.materialise(made)
    store.cas.put_bytes(b"{}")  # as the action does when it runs again
    store.outputs.materialise(made)
    assert store.outputs.intact(made)
    assert (out / "model/config.json").read_bytes() == b"{}"


def test_a_missing_blob_leaves_nothing_half_made(store: Store, made: Realisation) -> None:
    store.cas.path(hash_bytes(b"w" * 100)).unlink()
    with pytest.raises(MissingBlob):
        store.outputs.materialise(made)
    assert not store.layout.out(KEY).exists()
    assert os.listdir(store.layout.tmp) == []


def test_links_are_relative_and_replaced(store: Store, made: Realisation, tmp_path: Path) -> None:
    out = store.outputs.materialise(made)
    link = tmp_path / "mxt-out" / "pkg" / "target"
    store.outputs.link_target(link, out)
    assert os.readlink(link) == f"../../cache/out/{KEY}"
    (store.root / "out" / "next").mkdir()
    store.outputs.link_target(link, store.root / "out" / "next")
    assert os.readlink(link) == "../../cache/out/next"
    link.unlink()
    file_with(link / "0001" / "f")  # the target was a folder of several actions
    store.outputs.link_target(link, out)
    assert os.readlink(link) == f"../../cache/out/{KEY}"
    file_with(tmp_path / "mxt-out" / "plain")
    store.outputs.link_target(tmp_path / "mxt-out" / "plain", out)
    assert (tmp_path / "mxt-out" / "plain").resolve() == out
    assert sorted(os.listdir(tmp_path / "mxt-out" / "pkg")) == ["target"]


def test_a_link_is_right_also_through_a_symlinked_store(tmp_path: Path) -> None:
    (tmp_path / "big" / "disk").mkdir(parents=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "cache").symlink_to(tmp_path / "big" / "disk")
    store = Store(tmp_path / "w" / "cache").create()
    out = store.outputs.materialise(Realisation(KEY, {}))
    store.outputs.link_target(tmp_path / "w" / "mxt-out" / "t", out)
    assert (tmp_path / "w" / "mxt-out" / "t").is_dir()
