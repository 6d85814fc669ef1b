"""`mxt verify` as a user meets it: labels and paths, text and JSON, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mxt.cli.main import main
from tests.receipt.conftest import World
from tests.receipt.test_verify import flip


@pytest.fixture(autouse=True)
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root / "recipes")
    (world.root / "recipes/MXTBUILD").touch()
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_a_verified_receipt(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "//recipes:x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "verified  //recipes:x",
        f"  receipt    {world.verify().digest}",
        f"  signed by  you ({world.store.key.keyid})",
        "  built      2026-11-21T07:00:00.000Z to 2026-11-21T07:00:01.000Z",
        "  holds      4 actions, 6 files, 22.9 KiB",
    ]
    assert lines[5].startswith("  read       23.0 KiB in ")
    assert len(lines) == 6


@pytest.mark.parametrize(
    "name", [":x", "x", "../mxt-out/recipes/x", "../mxt-out/recipes/x/receipt.dsse.json", "{absolute}"]
)
def test_a_receipt_is_found_by_label_and_by_path(
    world: World, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["verify", name.format(absolute=world.receipt)])
    captured = capsys.readouterr()
    if name == "x":  # a bare word is a path
        assert code == 2
        assert "no such receipt" in captured.err
        assert "//pkg:name" in captured.err
    else:
        assert (code, captured.err) == (0, "")


@pytest.mark.parametrize("columns", [80, 120])
def test_each_mismatch_is_a_block(
    world: World, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    key = world.key_of("pack")
    flip(world.store.cas.path(key))
    flip(world.root / "recipes/x.yaml")
    assert main(["verify", "//recipes:x"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("1 mismatch  //recipes:x\n")
    found = next(m.found for m in world.verify().mismatches)
    block = [
        "mismatch 1 of 1: the stored form of '//recipes:x.pack' differs",
        f"  cache/cas/{key[:2]}/{key}",
        f"  expected   {key}",
        f"  found      {found}",
    ]
    assert "\n\n" + "\n".join(block) + "\n" in out
    assert "note: recipes/x.yaml: the source has changed since" in out
    assert max(map(len, out.splitlines())) <= columns


def test_long_values_wrap(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.receipt.test_verify import lie, output_digest

    lie(world, output_digest)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["verify", "//recipes:x"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("  cache/")) <= 80
    assert any(line.startswith(" " * 13) for line in lines)


def test_colours_only_where_wanted(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    main(["verify", "//recipes:x"])
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["verify", "//recipes:x"])
    assert "\x1b[32mverified\x1b[0m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["verify", "//recipes:x"])
    assert "\x1b" not in capsys.readouterr().out


def test_json_holds_everything(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    flip(world.store.cas.path(world.key_of("pack")))
    assert main(["verify", "//recipes:x", "--json"]) == 1
    form = json.loads(capsys.readouterr().out)
    assert (form["verified"], form["exit_code"], form["target"]) == (False, 1, "//recipes:x")
    assert form["receipt"].endswith("receipt.dsse.json")
    assert form["signer"]["name"] == "you"
    assert [sorted(m) for m in form["mismatches"]] == [["expected", "found", "kind", "what", "where"]]


def test_what_cannot_be_read_is_exit_code_2(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "//recipes:y"]) == 2
    assert "'//recipes:y' has no receipt" in capsys.readouterr().err
    world.receipt.write_bytes(world.receipt.read_bytes() + b"\n")
    assert main(["verify", "//recipes:x"]) == 2
    assert "not in canonical form" in capsys.readouterr().err
    assert main(["verify", "//recipes:x", "--json"]) == 2
    form = json.loads(capsys.readouterr().out)
    assert (form["verified"], form["exit_code"]) == (False, 2)
    assert "canonical" in form["error"]["message"]


def test_a_copied_receipt_is_held_against_the_current_workspace(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.json"
    shutil.copy(world.receipt, copy)
    assert main(["verify", str(copy)]) == 0
    assert main(["verify", str(copy), "--workspace", str(world.root)]) == 0
    assert main(["verify", str(copy), "--store", str(tmp_path / "none")]) == 1
    assert "is missing" in capsys.readouterr().out


def test_a_workspace_that_was_moved_verifies(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    world.root.rename(tmp_path / "moved")
    assert main(["verify", str(tmp_path / "moved/mxt-out/recipes/x/receipt.dsse.json")]) == 0


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "mxt verify //recipes:tiny_sft_lora" in out
    assert "exit codes: 0 verified" in out
