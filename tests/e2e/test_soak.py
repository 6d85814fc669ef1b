"""Random edits to a random workspace of 300 targets: after each, the build is what a clean build makes.

After every edit each output's bytes are compared with what tests/e2e/soak_world.py computes, the receipt's
subjects with those bytes, and the executed actions with those that have something new to read. Now and then, and
at the end, a real build in an empty store must come to the same keys and bytes.

    MXT_SOAK_EDITS=200 MXT_SOAK_SEED=7 .venv/bin/python -P -m pytest tests/e2e/test_soak.py -s

MXT_SOAK_EDITS: how many edits (30). MXT_SOAK_SEED: which ones (by default one seed a test, always the same).
MXT_SOAK_TARGETS: 300. A failure names the seed, the edit, and the command that makes it again.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.e2e import soak_edits
from tests.e2e.conftest import Workspace, b3
from tests.e2e.soak_edits import COMMANDS, LOSES, Edit
from tests.e2e.soak_world import Source, Value, World

EDITS = int(os.environ.get("MXT_SOAK_EDITS", "30"))
TARGETS = int(os.environ.get("MXT_SOAK_TARGETS", "300"))
SEED = int(os.environ.get("MXT_SOAK_SEED", "1"))


class Soak:
    """A workspace on disk beside its model."""

    def __init__(self, ws: Workspace, world: World) -> None:
        self.ws = ws
        self.world = world
        self.disk: dict[str, Source] = {}
        # what actions of this store have read already: none of these has a reason to run
        self.seen: set[object] = set()
        # an edit threw results away, and no build has looked for them yet: a null build needs none
        self.lost = False
        # builds that went the short way: something ran, and the kept graph is the one that was there
        self.short = 0
        (ws.root / "MXTBUILD").unlink()
        self.disk = soak_edits.write(world, ws.root, {})

    def make(self, edit: Edit) -> str:
        """Make an edit, in the model and on the disk; in words."""
        words = soak_edits.apply(edit, self.world, self.ws.root)
        self.disk = soak_edits.write(self.world, self.ws.root, self.disk)
        if edit.kind in LOSES:
            self.seen.clear()
            self.lost = True
        return f"{edit.kind}: {words}"

    def build_and_compare(self, *options: str) -> None:
        """Raises AssertionError for a wrong byte, or an action that ran without a reason."""
        records, graphs = self.records(), self.graphs()
        result = self.ws.run("build", "//...", *options)
        assert result.code == 0, result.err
        self.short += bool(graphs and graphs == self.graphs() and self.records() - records)
        expected = self.world.evaluate()
        self.compare(expected)
        ran: set[str] = set()
        for name in self.records() - records:
            self.lost = False
            steps = json.loads((self.builds / name).read_bytes())["steps"]
            ran |= {label for label, _, _, status, _ in steps if status == "executed"}
        for target in self.world.targets.values():
            if target.label in ran and expected[target.name].key in self.seen:
                raise AssertionError(f"{target.label} ran again, and nothing that it reads was new")
        if not self.lost:
            self.seen.update(v.key for v in expected.values() if v.key is not None)

    @property
    def builds(self) -> Path:
        return self.ws.root / "cache/state/builds"

    def records(self) -> set[str]:
        return set(os.listdir(self.builds)) if self.builds.is_dir() else set()

    def graphs(self) -> set[str]:
        """The kept graphs by their names: a build that goes the whole way leaves a new one."""
        return {path.name for path in (self.ws.root / "cache/state/snapshots").glob("*.graph")}

    def compare(self, expected: dict[str, Value]) -> None:
        """Every output of every target, byte by byte; and the receipt's subjects."""
        out = self.ws.root / "mxt-out"
        for target in self.world.actions():
            place = out / target.package / target.name
            found = {}
            for folder, _, names in os.walk(place):
                for name in names:
                    file = Path(folder, name)
                    executable = bool(file.stat().st_mode & 0o100)
                    found[str(file.relative_to(place))] = (file.read_bytes(), executable)
            wanted = expected[target.name].outputs
            if found != wanted:
                raise AssertionError(f"{target.label} made {_short(found)}, and not {_short(wanted)}")
        envelope = json.loads((out / "release/receipt.dsse.json").read_bytes())
        subjects = json.loads(base64.b64decode(envelope["payload"]))["subject"]
        made = sorted(b3(data) for name in self.world.below() for data, _ in expected[name].outputs.values())
        if sorted(s["digest"]["blake3"] for s in subjects) != made:
            raise AssertionError("the receipt's subjects are not what was built")

    def compare_with_clean(self, store: Path) -> None:
        """The same workspace in an empty store: the same keys, and the same bytes."""
        keys = self.keys()
        clean = self.keys("--store", str(store))
        if clean != keys:
            differ = sorted(label for label in clean | keys if clean.get(label) != keys.get(label))
            raise AssertionError(f"other keys than a clean build: {differ[:5]}")
        self.compare(self.world.evaluate())
        shutil.rmtree(store)

    def keys(self, *options: str) -> dict[str, str]:
        result = self.ws.build("//...", "--no-sandbox", *options)
        return {e["label"]: e["key"] for e in result.events if e["event"] == "action_finished"}


def _short(outputs: dict[str, tuple[bytes, bool]]) -> str:
    text = str({path: (data[-60:], executable) for path, (data, executable) in sorted(outputs.items())})
    return text if len(text) < 400 else text[:400] + "..."


def smallest(before: World, edit: Edit, tmp_path: Path) -> str:
    """Whether the last edit alone, on a clean build of what was before it, goes wrong as well."""
    soak = Soak(fresh(tmp_path / "alone"), before)
    try:
        soak.build_and_compare("--no-sandbox")
    except AssertionError:
        return "a clean build of the state before it goes wrong already"
    try:
        soak.make(edit)
        soak.build_and_compare("--no-sandbox")
    except AssertionError as error:
        print(error)
        return "it goes wrong alone, too, after a clean build of the state before it"
    return "alone, after a clean build of the state before it, it goes well: the history matters"


def fresh(root: Path) -> Workspace:
    ws = Workspace(root, root.with_name(root.name + "-home"))
    ws.write("MXTBUILD", "")
    return ws


@pytest.mark.slow
def test_incremental_equals_clean(ws: Workspace, tmp_path: Path) -> None:
    print(f"seed {SEED}, {TARGETS} targets, {EDITS} edits")
    dice = random.Random(SEED)
    soak = Soak(ws, World(SEED, TARGETS))
    soak.build_and_compare("--no-sandbox")
    history = []
    for step in range(EDITS):
        edit = soak_edits.choose(dice)
        before = copy.deepcopy(soak.world)
        words = "?"
        try:
            words = soak.make(edit)
            history.append(words)
            print(f"{step:>4}  {words}", flush=True)
            for command in [COMMANDS[edit.kind]] if edit.kind in COMMANDS else []:
                assert ws.run(*command).code == 0
            soak.build_and_compare(*([] if dice.random() < 0.1 else ["--no-sandbox"]))
            if dice.random() < 0.2:
                again = ws.run("build", "//...", "--no-sandbox")
                assert again.out.startswith("up to date: ") or "\nup to date: " in again.out, again.out
                soak.compare(soak.world.evaluate())
            if dice.random() < 0.03:
                soak.compare_with_clean(tmp_path / "clean")
        except AssertionError as error:
            pytest.fail(
                f"seed {SEED}, edit {step}: {words}\n{smallest(before, edit, tmp_path)}\n"
                f"again: MXT_SOAK_SEED={SEED} MXT_SOAK_EDITS={step + 1} MXT_SOAK_TARGETS={TARGETS}"
                " .venv/bin/python -P -m pytest -s tests/e2e/test_soak.py\n"
                f"the last edits: {history[-5:]}\n{error}"
            )
    soak.compare_with_clean(tmp_path / "clean")
    soak.build_and_compare("--no-sandbox")  # mxt-out leads into our own store again
    print(f"{soak.short} builds went the short way")
    assert soak.short or EDITS < 30, "no build went the short way: these edits did not try it"
    verified = ws.run("verify", "//:release")
    assert verified.code == 0, verified.out


def test_the_evaluator_knows_a_change_when_it_sees_one(ws: Workspace) -> None:
    """A soak that could not fail would prove nothing: an output that differs by one byte is found."""
    soak = Soak(ws, World(3, 12))
    soak.build_and_compare("--no-sandbox")
    expected = soak.world.evaluate()
    name = soak.world.actions()[0].name
    path, (data, executable) = next(iter(expected[name].outputs.items()))
    expected[name].outputs[path] = (data + b"x", executable)
    with pytest.raises(AssertionError, match=soak.world.targets[name].label):
        soak.compare(expected)
    before = {v.key for v in soak.world.evaluate().values()}
    for source in soak.world.sources.values():
        source.text += "x"
    assert before != {v.key for v in soak.world.evaluate().values()}
