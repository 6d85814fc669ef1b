"""What a receipt states, and that it states the same of the same thing."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from mxt.action.action import ActionId
from mxt.errors import StoreError
from mxt.receipt.names import stage_names
from mxt.receipt.receipt import read_envelope, read_receipt, subject_digests
from mxt.receipt.sha256 import Sha256Memory
from mxt.receipt.statement import Invocation
from mxt.store.digest import hash_bytes
from tests.receipt.conftest import TARGET, World, make_world

LATER = Invocation("build-2", "2026-12-24T00:00:00Z", "2026-12-24T00:00:01Z")


def test_subjects_are_all_files_of_all_outputs(world: World) -> None:
    subjects = read_receipt(world.receipt).statement.subjects
    assert sorted(subjects) == [
        "pack/deep/packed.bin",
        "shards/0000/rows.jsonl",
        "shards/0001/rows.jsonl",
        "train/adapter/sub/run.sh",
        "train/adapter/weights.bin",
        "train/nothing/",
    ]
    weights = b"weights" * 1000
    assert subjects["train/adapter/weights.bin"] == (hash_bytes(weights), hashlib.sha256(weights).hexdigest())


def test_the_receipt_is_named_by_its_payload(world: World) -> None:
    written = world.write()
    assert (
        written.digest
        == hash_bytes(read_envelope(world.receipt).payload)
        == read_receipt(world.receipt).digest
    )


def test_two_workspaces_agree_on_everything_but_the_run(world: World, tmp_path: Path) -> None:
    other = make_world(tmp_path / "elsewhere")
    other.write(LATER)
    assert subject_digests(other.receipt) == subject_digests(world.receipt)
    mine, theirs = (json.loads(read_envelope(w.receipt).payload) for w in (world, other))
    assert mine["predicate"]["runDetails"]["metadata"] != theirs["predicate"]["runDetails"]["metadata"]
    for statement in (mine, theirs):
        del statement["predicate"]["runDetails"]["metadata"]
    assert mine == theirs


def test_a_build_that_changed_nothing_leaves_the_file(world: World) -> None:
    before = world.receipt.stat()
    assert not world.write(LATER).changed
    assert (world.receipt.stat().st_mtime_ns, world.receipt.stat().st_ino) == (
        before.st_mtime_ns,
        before.st_ino,
    )


@pytest.mark.parametrize("forget", [False, True])
def test_a_damaged_receipt_is_written_anew(world: World, forget: bool) -> None:
    data = bytearray(world.receipt.read_bytes())
    at = data.index(b'"sig":"') + 10
    data[at] = ord("A") if data[at] != ord("A") else ord("B")
    world.receipt.write_bytes(bytes(data))
    if forget:  # what was seen whole is only a shortcut
        for path in (world.store.layout.state / "receipts").iterdir():
            path.unlink()
    assert world.write(LATER).changed
    assert world.verify().mismatches == []


def test_a_receipt_is_kept_without_the_shortcut_too(world: World) -> None:
    for path in (world.store.layout.state / "receipts").iterdir():
        path.unlink()
    assert not world.write(LATER).changed


def test_a_changed_recipe_or_action_gives_a_new_receipt(world: World) -> None:
    world.results.pop(ActionId(f"{TARGET}.train"))
    assert world.write(LATER).changed
    assert "train" not in {name.split("/")[0] for name in subject_digests(world.receipt)}


def test_another_operator_writes_his_own(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.store.key
    monkeypatch.setenv("MXT_KEY_FILE", str(tmp_path / "other"))
    del world.store.key
    for identity, (action, _) in world.results.items():
        found = world.store.actions.lookup(action.key)
        assert found is not None
        assert found.operator == first.keyid
        world.results[identity] = (replace(action, realisation=found), found)
    assert world.write(LATER).changed
    # he signs the receipt; the results that it quotes are signed by another, whom he must know
    assert {m.kind for m in world.verify().mismatches} == {"realisation", "run"}
    keys = tmp_path / "keys"
    keys.write_text(f"# colleagues\n\nann:{base64.b64encode(first.public).decode()}\n")
    assert world.verify(keys).mismatches == []


def test_a_source_that_changed_meanwhile_is_refused(world: World) -> None:
    world.results.pop(ActionId(f"{TARGET}.train"))  # so that the receipt must be written anew
    world.source("recipes/rows.jsonl", b'{"text":"uno"}\n{"text":"two"}\n')
    (world.store.layout.state / "sha256.sqlite").unlink()
    with pytest.raises(StoreError, match="changed during the build"):
        world.write(LATER)
    assert world.verify().exit_code == 0  # the old one is still there


def test_a_damaged_memory_of_sha256_is_no_obstacle(world: World) -> None:
    memory = world.store.layout.state / "sha256.sqlite"
    assert memory.is_file()
    memory.write_bytes(b"garbage" * 1000)
    world.receipt.unlink()
    assert world.write().changed
    assert world.verify().mismatches == []


def test_verify_believes_no_remembered_sha256(world: World) -> None:
    with Sha256Memory(world.store.cas) as memory:
        memory.note(hash_bytes(b"weights" * 1000), "ab" * 32)
    world.receipt.unlink()
    world.write()
    (only,) = world.verify().mismatches
    assert (only.where, only.expected) == ("receipt: subject train/adapter/weights.bin", "ab" * 32)


def test_no_float_is_in_a_receipt(world: World) -> None:
    def refuse(text: str) -> float:
        raise AssertionError(f"a float: {text}")

    json.loads(read_envelope(world.receipt).payload, parse_float=refuse)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["//r:x.train", "//r:x.eval"], ["train", "eval"]),
        (["//r:x", "//r:gen"], ["x", "gen"]),
        (["//a:gen", "//b:gen"], ["a/gen", "b/gen"]),
        (["//r:x.gen", "//r:gen", "//a:other"], ["x.gen", "gen", "other"]),
        (["//:gen", "//a:gen"], ["gen", "a/gen"]),
        (["@mxt//a:gen", "//a:gen"], ["@mxt//a:gen", "//a:gen"]),
        (["//r:x.", "//r:x.a/b"], ["x.", "a/b"]),
    ],
)
def test_stage_names_are_short_and_distinct(labels: list[str], names: list[str]) -> None:
    assert stage_names("//r:x", labels) == dict(zip(labels, names, strict=True))
