"""One byte anywhere, and verify names the place: store, outputs, records, evidence, links, receipt."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mxt.action.canonical import dump
from mxt.errors import UsageError
from mxt.receipt.dsse import encode, seal
from mxt.receipt.findings import Mismatch
from mxt.receipt.receipt import read_envelope
from mxt.receipt.trust import load_trusted_keys
from mxt.receipt.verify import verify_receipt
from mxt.store.digest import hash_bytes
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.records import RUN_TYPE, sign_record
from mxt.store.signing import load_or_create_key
from mxt.store.tree_object import Entry, encode_tree
from tests.receipt.conftest import World


def flip(path: Path) -> None:
    """Change one bit in the middle, leaving size, mode and times: only the bytes tell."""
    facts = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    path.chmod(facts.st_mode & 0o777)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def unlink_copy(path: Path) -> Path:
    """Give path an inode of its own, so that a change stays there."""
    data, mode = path.read_bytes(), path.stat().st_mode & 0o777
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)
    return path


def found(world: World) -> list[tuple[str, str]]:
    result = world.verify()
    assert result.exit_code == (1 if result.mismatches else 0)
    assert all(m.what and m.expected and m.found for m in result.mismatches)
    return sorted((m.kind, m.where) for m in result.mismatches)


def test_what_was_built_verifies(world: World) -> None:
    result = world.verify()
    assert (result.mismatches, result.notes, result.exit_code) == ([], [], 0)
    assert (result.target, result.actions, result.files) == ("//recipes:x", 4, 6)
    assert result.signer is not None
    assert (result.signer.name, result.signer.keyid) == ("you", world.store.key.keyid)
    assert result.bytes == 15 + 15 + 256 * 64 + 7000 + 10


def test_verify_changes_nothing(world: World) -> None:
    flip(Path(world.store.layout.blob(world.realisation("pack").outputs["packed"].digest)))

    def everything() -> dict[str, tuple[int, int, int]]:
        return {
            str(p): (p.lstat().st_ino, p.lstat().st_mtime_ns, p.lstat().st_ctime_ns)
            for p in world.root.rglob("*")
        }

    before = everything()
    world.verify()
    assert everything() == before


# ---- one byte ---------------------------------------------------------------------------------------


def test_a_flipped_blob_is_seen_with_every_link_to_it(world: World) -> None:
    weights = hash_bytes(b"weights" * 1000)
    flip(world.store.cas.path(weights))
    key = world.key_of("train")
    assert found(world) == [
        ("blob", f"cache/cas/{weights[:2]}/{weights}"),
        ("output", f"cache/out/{key}/adapter/weights.bin"),
    ]


def test_a_flipped_output_with_an_inode_of_its_own(world: World) -> None:
    key = world.key_of("pack")
    flip(unlink_copy(world.store.layout.out(key) / "deep/packed.bin"))
    assert found(world) == [("output", f"cache/out/{key}/deep/packed.bin")]


@pytest.mark.parametrize("form", ["", ".x"])
def test_each_form_of_a_blob_is_read(world: World, form: str) -> None:
    digest = hash_bytes(b"#!/bin/sh\n")
    place = world.root / f"cache/cas/{digest[:2]}/{digest}{form}"
    if not form:
        world.store.cas.put(digest, b"#!/bin/sh\n")
    flip(unlink_copy(place))
    assert found(world) == [("blob", str(place.relative_to(world.root)))]


def test_a_flipped_tree_object(world: World) -> None:
    digest = world.realisation("train").outputs["adapter"].digest
    flip(world.store.cas.path(digest))
    assert found(world) == [("tree", f"cache/cas/{digest[:2]}/{digest}")]


def test_a_flipped_action_form(world: World) -> None:
    key = world.key_of("shards", "0001")
    flip(world.store.cas.path(key))
    assert found(world) == [("form", f"cache/cas/{key[:2]}/{key}")]


def test_a_flipped_realisation(world: World) -> None:
    key = world.key_of("pack")
    place = world.store.layout.action(key) / f"{world.store.key.keyid}.json"
    flip(place)
    assert found(world) == [("realisation", str(place.relative_to(world.root)))]


def test_a_flipped_run(world: World) -> None:
    place = next(world.store.layout.runs(world.key_of("pack")).iterdir())
    flip(place)
    assert found(world) == [("run", str(place.relative_to(world.root)))]


def test_flipped_evidence(world: World) -> None:
    place = next(world.store.layout.evidence(world.key_of("train")).rglob("log.txt"))
    flip(place)
    assert found(world) == [("evidence", str(place.relative_to(world.root)))]


def test_a_flipped_receipt(world: World) -> None:
    form = json.loads(world.receipt.read_bytes())
    payload = base64.b64decode(form["payload"])
    at = payload.index(b'"key":"') + 10
    changed = payload[:at] + (b"0" if payload[at : at + 1] != b"0" else b"1") + payload[at + 1 :]
    form["payload"] = base64.b64encode(changed).decode()
    world.receipt.write_bytes(dump(form))
    places = dict(found(world))
    assert places["signature"] == "receipt: signatures[0].sig"
    assert places["key"].endswith("internalParameters.actions[0].key")


# ---- what is missing, what is too much --------------------------------------------------------------


def test_a_missing_blob(world: World) -> None:
    digest = world.realisation("shards", "0000").outputs["rows"].digest
    world.store.cas.path(digest).unlink()
    assert found(world) == [("blob", f"cache/cas/{digest[:2]}/{digest}")]


def test_missing_things_are_all_named(world: World) -> None:
    key = world.key_of("train")
    tree = world.realisation("train").outputs["adapter"].digest
    (world.store.layout.out(key) / "adapter/latest").unlink()
    world.store.cas.path(key).unlink()
    next(world.store.layout.runs(key).iterdir()).unlink()
    next(world.store.layout.evidence(key).rglob("log.txt")).unlink()
    next(world.store.layout.action(key).iterdir()).unlink()
    assert [kind for kind, _ in found(world)] == ["evidence", "form", "output", "realisation", "run"]
    world.store.cas.path(tree).unlink()
    assert "tree" in dict(found(world))


def test_too_much(world: World) -> None:
    out = world.store.layout.out(world.key_of("train"))
    (out / "adapter/extra.bin").write_bytes(b"x")
    (out / "other").mkdir()
    (next(world.store.layout.evidence(world.key_of("pack")).iterdir()) / "more.txt").write_text("x")
    (world.receipt.parent / "notes.txt").write_text("x")
    assert [kind for kind, _ in found(world)] == ["evidence", "link", "output", "output"]


def test_what_is_something_else(world: World) -> None:
    out = world.store.layout.out(world.key_of("train"))
    (out / "adapter/sub/run.sh").chmod(0o444)  # the blob's own inode: two places would be one too many
    unlink_copy(out / "adapter/weights.bin").chmod(0o755)
    (out / "adapter/latest").unlink()
    (out / "adapter/latest").symlink_to("sub")
    (out / "nothing/inner").rmdir()
    (out / "nothing/inner").write_text("a file")
    places = [where.partition("/adapter/")[2] or where[-13:] for _, where in found(world)]
    assert sorted(places) == ["latest", "nothing/inner", "sub/run.sh", "weights.bin"]


def test_outputs_that_are_not_materialised_are_only_noted(world: World) -> None:
    out = world.store.layout.out(world.key_of("pack"))
    out.rename(world.root / "away")
    (world.receipt.parent / "pack").unlink()
    result = world.verify()
    assert result.mismatches == []
    assert [n.where for n in result.notes] == [str(out.relative_to(world.root))]


@pytest.mark.parametrize("to", ["train", "nowhere", "workspace"])
def test_a_link_that_leads_elsewhere(world: World, to: str) -> None:
    link = world.receipt.parent / "pack"
    link.unlink()
    targets = {"train": world.store.layout.out(world.key_of("train")), "workspace": world.root / "recipes"}
    link.symlink_to(targets.get(to, world.root / "gone"))
    assert found(world) == [("link", "mxt-out/recipes/x/pack")]


def test_a_link_below_a_member_of_several_actions(world: World) -> None:
    link = world.root / "mxt-out/recipes/x.shards/0000"
    link.unlink()
    link.symlink_to(world.store.layout.out(world.key_of("shards", "0001")))
    assert found(world) == [("link", "mxt-out/recipes/x.shards/0000")]


def test_the_report_beside_is_no_stranger_unless_it_is_a_link(world: World) -> None:
    report = world.receipt.parent / "report.html"
    report.write_text("a page")
    assert found(world) == []
    report.unlink()
    report.symlink_to(world.root / "recipes")
    assert found(world) == [("link", "mxt-out/recipes/x/report.html")]


def test_a_newer_result_is_only_noted(world: World) -> None:
    newer = world.store.layout.out("ab" * 32)
    newer.mkdir()
    link = world.receipt.parent / "pack"
    link.unlink()
    link.symlink_to(newer)
    result = world.verify()
    assert (result.mismatches, [n.where for n in result.notes]) == ([], ["mxt-out/recipes/x/pack"])


def test_sources_that_changed_or_went_are_only_noted(world: World) -> None:
    flip(world.root / "recipes/rows.jsonl")
    flip(world.root / "recipes/tokenizer/deep/merges.txt")
    flip(world.root / "toolchains/cpu.lock")
    (world.root / "recipes/x.yaml").unlink()
    result = world.verify()
    assert result.mismatches == []
    noted = {n.where: n.text for n in result.notes}
    assert sorted(noted) == [
        "recipes/rows.jsonl#bytes=15-30",
        "recipes/tokenizer",
        "recipes/x.yaml",
        "toolchains/cpu.lock",
    ]
    assert "missing" in noted["recipes/x.yaml"]
    assert "changed" in noted["recipes/tokenizer"]


# ---- who signed --------------------------------------------------------------------------------------


@pytest.fixture
def stranger(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader is somebody else now; the line by which he could trust the operator."""
    public = base64.b64encode(world.store.key.public).decode()
    monkeypatch.setenv("MXT_KEY_FILE", str(tmp_path / "nobody"))
    return f"ann:{public}\n"


def test_an_unknown_signer_is_reported_as_what_he_is(world: World, stranger: str) -> None:
    result = world.verify()
    assert result.exit_code == 1
    assert result.signer is not None
    assert result.signer.name == ""
    assert [m.kind for m in result.mismatches] == ["signer"]
    assert stranger.split(":")[1].strip() in result.mismatches[0].found
    assert not Path(os.environ["MXT_KEY_FILE"]).exists()  # verifying makes no key


def test_a_trusted_signer_is_called_by_his_name(world: World, stranger: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(stranger)
    result = world.verify(keys)
    assert result.mismatches == []
    assert result.signer is not None
    assert result.signer.name == "ann"


@pytest.mark.parametrize("line", ["ann", "ann:", ":AAAA", "ann:AAAA", "ann:!!!!"])
def test_a_malformed_trusted_key(tmp_path: Path, line: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"# comment\n{line}\n")
    with pytest.raises(UsageError, match="name:base64") as caught:
        load_trusted_keys(keys)
    assert caught.value.where == f"{keys}:2"


def test_a_receipt_signed_again_by_a_stranger(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = read_envelope(world.receipt).payload
    own = os.environ["MXT_KEY_FILE"]
    monkeypatch.setenv("MXT_KEY_FILE", str(tmp_path / "thief"))
    world.receipt.write_bytes(encode(seal(payload, load_or_create_key())))
    monkeypatch.setenv("MXT_KEY_FILE", own)
    assert [kind for kind, _ in found(world)] == ["signature", "signature"]


# ---- a signature over lies -----------------------------------------------------------------------------

Json = Any
Lie = Callable[[Json], None]


def lie(world: World, change: Lie) -> list[Mismatch]:
    """Change the statement and sign it properly; what verify says."""
    statement = json.loads(read_envelope(world.receipt).payload)
    change(statement)
    world.receipt.write_bytes(encode(seal(dump(statement), world.store.key)))
    result = world.verify()
    assert not any(m.kind == "signature" for m in result.mismatches)
    return result.mismatches


def actions(statement: Json) -> Json:
    return statement["predicate"]["buildDefinition"]["internalParameters"]["actions"]


def dependencies(statement: Json) -> Json:
    return statement["predicate"]["buildDefinition"]["resolvedDependencies"]


def byproducts(statement: Json) -> Json:
    return statement["predicate"]["runDetails"]["byproducts"]


def set_key(statement: Json) -> None:
    actions(statement)[2]["key"] = "ab" * 32


def set_parameter(statement: Json) -> None:
    actions(statement)[2]["form"]["params"]["rate"] = {"$float": "0.5"}


def other_producer(statement: Json) -> None:
    actions(statement)[2]["inputs_from"]["rows/0"]["action"][1] = "0001"


def unknown_producer(statement: Json) -> None:
    actions(statement)[2]["inputs_from"]["rows/0"]["output"] = "columns"


def other_source(statement: Json) -> None:
    actions(statement)[2]["inputs_from"]["recipe"]["source"] = "recipes/y.yaml"


def source_digest(statement: Json) -> None:
    dependencies(statement)[3]["digest"]["blake3"] = "ab" * 32


def source_sha256(statement: Json) -> None:
    dependencies(statement)[3]["digest"]["sha256"] = "ab" * 32


def slice_sha256(statement: Json) -> None:
    dependencies(statement)[0]["digest"]["sha256"] = "ab" * 32


def lock_digest(statement: Json) -> None:
    dependencies(statement)[4]["digest"]["blake3"] = "ab" * 32


def no_origin(statement: Json) -> None:
    del actions(statement)[2]["inputs_from"]["recipe"]


def one_dependency_more(statement: Json) -> None:
    dependencies(statement).append({**dependencies(statement)[3], "name": "recipes/z.yaml"})


def output_digest(statement: Json) -> None:
    actions(statement)[2]["outputs"]["packed"]["digest"] = "ab" * 32


def output_size(statement: Json) -> None:
    actions(statement)[2]["outputs"]["packed"]["size"] += 1


def output_path(statement: Json) -> None:
    actions(statement)[2]["outputs"]["packed"]["path"] = "packed.bin"


def subject_gone(statement: Json) -> None:
    statement["subject"].pop(0)


def subject_more(statement: Json) -> None:
    statement["subject"].append({**statement["subject"][0], "name": "zzz"})


def subject_sha256(statement: Json) -> None:
    statement["subject"][0]["digest"]["sha256"] = "ab" * 32


def tree_sha256(statement: Json) -> None:
    statement["subject"][-1]["digest"]["sha256"] = "ab" * 32


def platform(statement: Json) -> None:
    internal = statement["predicate"]["buildDefinition"]["internalParameters"]
    next(iter(internal["platforms"].values()))["threads"] = 2


def platform_gone(statement: Json) -> None:
    statement["predicate"]["buildDefinition"]["internalParameters"]["platforms"] = {}


def evidence(statement: Json) -> None:
    next(b for b in byproducts(statement) if b["name"].startswith("evidence/"))["digest"]["blake3"] = (
        "ab" * 32
    )


def evidence_more(statement: Json) -> None:
    byproducts(statement).append({"name": "evidence/other/log", "digest": {"blake3": "ab" * 32}})


def realisation_gone(statement: Json) -> None:
    byproducts(statement).pop(0)


def realisation_of_another(statement: Json) -> None:
    records = [b for b in byproducts(statement) if b["name"].startswith("realisation/")]
    records[0]["content"], records[0]["digest"] = records[1]["content"], records[1]["digest"]


def record_digest(statement: Json) -> None:
    byproducts(statement)[0]["digest"]["sha256"] = "ab" * 32


def executable_input(statement: Json) -> None:
    actions(statement)[2]["form"]["inputs"]["rows/0"]["executable"] = True


def folder_size(statement: Json) -> None:
    actions(statement)[3]["outputs"]["adapter"]["size"] += 1


def run_of_another(statement: Json) -> None:
    runs = [b for b in byproducts(statement) if b["name"].startswith("run/")]
    for field in ("content", "digest", "annotations"):
        runs[2][field] = runs[3][field]


def quote(byproduct: Json, record: bytes) -> None:
    byproduct["content"] = base64.b64encode(record).decode()
    byproduct["digest"] = {"blake3": hash_bytes(record), "sha256": hashlib.sha256(record).hexdigest()}


def forged_record(statement: Json) -> None:
    record = json.loads(base64.b64decode(byproducts(statement)[0]["content"]))
    record["sig"] = base64.b64encode(bytes(64)).decode()
    quote(byproducts(statement)[0], dump(record))


def run_that_reaches_out(statement: Json) -> None:
    byproduct = next(b for b in byproducts(statement) if b["name"] == "run/pack")
    payload = json.loads(base64.b64decode(byproduct["content"]))["payload"]
    payload["evidence"] = {"../../../../MXTBUILD": hash_bytes(b"")}
    quote(byproduct, sign_record(load_or_create_key(), RUN_TYPE, payload))


def action_twice(statement: Json) -> None:
    actions(statement).append(actions(statement)[0])


@pytest.mark.parametrize(
    ("change", "kind", "where"),
    [
        (set_key, "key", "internalParameters.actions[2].key"),
        (set_parameter, "key", "internalParameters.actions[2].key"),
        (other_producer, "wiring", "actions[2].inputs_from.rows/0"),
        (unknown_producer, "wiring", "actions[2].inputs_from.rows/0"),
        (other_source, "wiring", "actions[2].inputs_from.recipe"),
        (source_digest, "wiring", "actions[2].inputs_from.recipe"),
        (source_sha256, "source", "resolvedDependencies: recipes/x.yaml"),
        (slice_sha256, "source", "resolvedDependencies: recipes/rows.jsonl#bytes=0-15"),
        (lock_digest, "toolchain", "actions[3].form.toolchain"),
        (no_origin, "wiring", "actions[2].inputs_from.recipe"),
        (one_dependency_more, "wiring", "resolvedDependencies: recipes/z.yaml"),
        (output_digest, "realisation", "byproducts: realisation/pack"),
        (output_digest, "wiring", "actions[3].inputs_from.data"),
        (output_digest, "subject", "subject pack/deep/packed.bin"),
        (output_size, "realisation", "byproducts: realisation/pack"),
        (output_size, "blob", "cache/cas/"),
        (output_path, "action", "actions[2].outputs.packed"),
        (subject_gone, "subject", "subject pack/deep/packed.bin"),
        (subject_more, "subject", "subject zzz"),
        (subject_sha256, "subject", "subject pack/deep/packed.bin"),
        (tree_sha256, "subject", "subject train/nothing/"),
        (platform, "platform", "internalParameters.platforms."),
        (platform_gone, "platform", "actions[3].form.platform"),
        (evidence, "evidence", "byproducts: evidence/shards/0000/log.txt"),
        (evidence_more, "byproduct", "byproducts: evidence/other/log"),
        (realisation_gone, "realisation", "byproducts: realisation/shards/0000"),
        (realisation_of_another, "realisation", "byproducts: realisation/shards/0000"),
        (record_digest, "realisation", "byproducts: realisation/shards/0000"),
        (action_twice, "action", "actions[4]"),
        (executable_input, "wiring", "actions[2].inputs_from.rows/0"),
        (folder_size, "tree", "train/adapter"),
        (run_of_another, "run", "byproducts: run/pack"),
        (forged_record, "realisation", "byproducts: realisation/shards/0000"),
        (run_that_reaches_out, "run", "byproducts: run/pack"),
    ],
)
def test_a_signed_lie_is_named(world: World, change: Lie, kind: str, where: str) -> None:
    said = lie(world, change)
    assert any(m.kind == kind and where in m.where for m in said), said


def test_a_folder_whose_link_leads_out(world: World) -> None:
    entry = Entry("latest", "symlink", target="../../../../MXTBUILD")
    tree = world.store.cas.put_bytes(encode_tree([entry]))

    def change(statement: Json) -> None:
        actions(statement)[3]["outputs"]["adapter"] |= {"digest": tree, "size": 0}

    said = lie(world, change)
    assert ("tree", entry.target) in {(m.kind, m.found) for m in said}


def extra_field(statement: Json) -> None:
    actions(statement)[0]["comment"] = ""


def float_somewhere(statement: Json) -> None:
    actions(statement)[0]["form"]["params"]["rate"] = 0.5


def other_version(statement: Json) -> None:
    statement["predicate"]["buildDefinition"]["buildType"] = "urn:mxt:build:v2"


def path_outside(statement: Json) -> None:
    actions(statement)[2]["outputs"]["packed"]["path"] = "../packed"


def source_outside(statement: Json) -> None:
    dependencies(statement)[3]["annotations"]["path"] = "../../etc/passwd"


def subject_twice(statement: Json) -> None:
    statement["subject"].append(statement["subject"][0])


def no_list(statement: Json) -> None:
    statement["predicate"]["buildDefinition"]["internalParameters"]["actions"] = {}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (extra_field, "actions[0]"),
        (float_somewhere, "actions[0].form.params.rate"),
        (other_version, "buildDefinition.buildType"),
        (path_outside, "actions[2].outputs"),
        (source_outside, "resolvedDependencies[3].annotations.path"),
        (subject_twice, "subject[6]"),
        (no_list, "internalParameters.actions"),
    ],
)
def test_a_statement_that_mxt_would_not_write(world: World, change: Lie, where: str) -> None:
    (only,) = lie(world, change)
    assert only.kind == "statement"
    assert only.where.endswith(where)


def test_all_mismatches_are_listed_not_the_first(world: World) -> None:
    flip(world.store.cas.path(world.key_of("pack")))
    flip(next(world.store.layout.runs(world.key_of("train")).iterdir()))
    said = lie(world, set_parameter)
    assert {m.kind for m in said} == {"key", "form", "run"}


# ---- other records of the same key ---------------------------------------------------------------------


def test_a_divergence_beside_is_checked_too(world: World) -> None:
    key = world.key_of("pack")
    rows = world.realisation("shards", "0000").outputs["rows"]
    other = Realisation(key, {"packed": rows})
    world.store.actions.record(
        other, RunRecord(key, other.digest, "//recipes:x.pack", "2026-11-22T00:00:00Z", "1.000")
    )
    assert found(world) == []
    place = next(world.store.layout.action(key).glob("*.divergence-1.json"))
    flip(place)
    assert found(world) == [("realisation", str(place.relative_to(world.root)))]


# ---- hashing -----------------------------------------------------------------------------------------------


def test_progress_ends_at_all_bytes(world: World) -> None:
    said: list[tuple[int, int]] = []
    trusted = load_trusted_keys()
    result = verify_receipt(
        world.receipt,
        workspace=world.root,
        store=world.store.root,
        trusted=trusted,
        progress=lambda done, total: said.append((done, total)),
    )
    assert said == sorted(said)
    assert said[-1] == (result.hashed_bytes, result.hashed_bytes)


def test_large_files_are_read_whole(world: World, tmp_path: Path) -> None:
    from mxt.receipt.hashing import Hashing
    from mxt.store.digest import hash_file

    large = tmp_path / "large"
    large.write_bytes(os.urandom(1 << 20) * 17 + b"tail")
    (tmp_path / "empty").touch()
    (tmp_path / "link").hardlink_to(large)
    hashing = Hashing()
    for name in ("large", "empty", "link"):
        assert hashing.want(tmp_path / name, sha256=True)
    assert not hashing.want(tmp_path / "absent")
    assert hashing.total == 17 * (1 << 20) + 4  # a second link costs nothing
    hashing.run()
    assert hashing.of(large) == hashing.of(tmp_path / "link") == hash_file(large, sha256=True)
    assert hashing.of(tmp_path / "empty") == hash_file(tmp_path / "empty", sha256=True)
