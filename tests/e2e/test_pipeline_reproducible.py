"""Built in two places under one plan the pipeline makes the same bytes; and a byte that differs is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mxt.receipt.receipt import subject_digests
from tests.e2e.conftest import Workspace, b3
from tests.e2e.pipeline import ALL, MICRO, copied, stages, write_micro

RECEIPT = "receipt.dsse.json"


@pytest.fixture(scope="module")
def pinned(micro_built: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The built micro workspace with its plan pinned; nobody may change it."""
    ws = copied(micro_built, tmp_path_factory.mktemp("pinned") / "here")
    assert ws.run("plan", "pin", MICRO).code == 0
    assert ws.build(MICRO).executed == set()
    return ws


@pytest.fixture
def own(pinned: Workspace, tmp_path: Path) -> Workspace:
    """A copy of it to damage."""
    ws = copied(pinned, tmp_path / "a work space")
    ws.build(MICRO)
    assert ws.run("verify", MICRO).code == 0
    return ws


@pytest.mark.slow
def test_two_places_one_result(pinned: Workspace, tmp_path: Path) -> None:
    """Another folder, store, operator, home, and time of the day; more at a time."""
    there = write_micro(tmp_path / "in a folder with a much longer name" / "work space", tmp_path / "home")
    plan = pinned.read("recipes/micro.plan.json")
    there.write("recipes/micro.plan.json", plan)
    env = {"TZ": "Asia/Tokyo", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "77"}
    assert stages(there.build(MICRO, env=env)) == ALL - {"probe"}
    receipts = [w.output("recipes/micro") / RECEIPT for w in (pinned, there)]
    here_digests, there_digests = map(subject_digests, receipts)
    assert here_digests == there_digests
    assert len(here_digests) > 20
    assert any(name.endswith("adapter_model.safetensors") for name in here_digests)
    assert receipts[0].read_bytes() != receipts[1].read_bytes()  # signed by others, at another time
    for ws in (pinned, there):
        verified = ws.run("verify", MICRO)
        assert verified.code == 0, verified.out
        assert f"verified  {MICRO}" in verified.out


def flip(path: Path, at: int = -2) -> None:
    """Change one bit in the middle of a file, whatever its protection."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    mode = path.stat().st_mode
    os.chmod(path, 0o644)
    path.write_bytes(data)
    os.chmod(path, mode)


def adapter(ws: Workspace) -> Path:
    return (ws.output("recipes/micro.train") / "adapter/adapter_model.safetensors").resolve()


def mismatches(ws: Workspace) -> list[dict[str, str]]:
    """What `mxt verify` finds, as a program sees it."""
    told = ws.run("verify", MICRO, "--json")
    assert told.code == 1, told.out
    found: list[dict[str, str]] = json.loads(told.out)["mismatches"]
    assert found
    return found


def verify(ws: Workspace) -> list[str]:
    """The places that `mxt verify` names; it must find something, as a person and as a program sees it."""
    shown = ws.run("verify", MICRO)
    assert shown.code == 1, shown.out
    found = [m["where"] for m in mismatches(ws)]
    for place in found:
        assert place in shown.out.replace("\n", "")
    return found


def test_a_byte_of_a_blob(own: Workspace) -> None:
    """A blob and the outputs linked to it are one file; both names are told."""
    digest = b3(adapter(own).read_bytes())
    blob = own.root / "cache/cas" / digest[:2] / digest
    assert blob.samefile(adapter(own))
    flip(blob)
    found = verify(own)
    assert any(digest in place for place in found), found


def test_a_byte_of_an_output(own: Workspace) -> None:
    """An output that is no longer the blob's link."""
    path = adapter(own)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    flip(path)
    found = verify(own)
    assert any(place.endswith("adapter/adapter_model.safetensors") for place in found), found


def test_a_lost_file_of_an_output(own: Workspace) -> None:
    adapter(own).unlink()
    assert any(place.endswith("adapter/adapter_model.safetensors") for place in verify(own))


@pytest.mark.parametrize("name", ["metrics.jsonl", "settings.json"])
def test_a_byte_of_the_evidence(own: Workspace, name: str) -> None:
    (path,) = (
        (own.root / "cache/evidence").glob(f"*/*/{name}")
        if name != "metrics.jsonl"
        else [
            p for p in (own.root / "cache/evidence").glob("*/*/metrics.jsonl") if "grad_norm" in p.read_text()
        ]
    )
    flip(path, at=20)
    assert any(place.endswith(name) for place in verify(own))


def test_every_byte_of_the_receipt_counts(own: Workspace) -> None:
    """In the payload, the signature and what stands around them; some are no longer readable at all."""
    path = own.output("recipes/micro") / RECEIPT
    whole = path.read_bytes()
    for at in [*range(5, len(whole), len(whole) // 12), len(whole) - 40]:
        data = bytearray(whole)
        data[at] = ord("A") if data[at] != ord("A") else ord("B")
        path.write_bytes(data)
        done = own.run("verify", MICRO)
        assert done.code in (1, 2), f"byte {at} of {len(whole)}: {done.out}"
        if done.code == 1:
            assert all(m["where"] for m in mismatches(own))
        else:
            assert RECEIPT in done.err
    path.write_bytes(whole)
    assert own.run("verify", MICRO).code == 0


def test_a_damaged_blob_is_made_again(own: Workspace) -> None:
    before = adapter(own).read_bytes()
    flip(adapter(own))
    result = own.build(MICRO)
    assert stages(result) <= {"train"}
    assert adapter(own).read_bytes() == before
    assert own.run("verify", MICRO).code == 0
