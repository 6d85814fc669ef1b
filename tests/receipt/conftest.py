"""A small workspace with a finished target, made with the real store: real files, real signatures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mxt.action.action import Action, ActionId, Input, InputRef, Output, OutputRef, SliceRef, SourceRef
from mxt.action.key import InputDigest, action_key
from mxt.action.platform import platform_digest
from mxt.receipt.findings import Result
from mxt.receipt.statement import Built, BuiltAction, Invocation
from mxt.receipt.trust import load_trusted_keys
from mxt.receipt.verify import verify_receipt
from mxt.receipt.write import Written, write_receipt
from mxt.store.digest import hash_bytes, hash_file
from mxt.store.realisation import Output as Made
from mxt.store.realisation import Realisation, RunRecord
from mxt.store.store import Store
from mxt.store.tree import digest_tree, store_tree

TARGET = "//recipes:x"
PLATFORM = {"name": "cpu", "threads": 1, "tolerance": 0.5}
INVOCATION = Invocation("build-1", "2026-11-21T07:00:00.000Z", "2026-11-21T07:00:01.000Z")

Write = Callable[[Path], None]


@dataclass
class World:
    """A workspace, its store, and what was built in it."""

    root: Path
    store: Store
    results: dict[ActionId, tuple[BuiltAction, Realisation]] = field(default_factory=dict)

    @property
    def receipt(self) -> Path:
        return self.root / "mxt-out/recipes/x/receipt.dsse.json"

    def source(self, path: str, data: bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return place

    def act(
        self,
        identity: ActionId,
        inputs: dict[str, InputRef],
        outputs: dict[str, str],
        write: Write,
        **keyed: str,
    ) -> Realisation:
        """Do what the engine does for an action: key, outputs into the store, records, out/ and its link."""
        action = Action(
            id=identity,
            mnemonic="Make",
            entry="rules.make:make",
            implementation={"version": 1},
            inputs=tuple(Input(name, f"in/{name}", ref) for name, ref in inputs.items()),
            outputs=tuple(
                Output(n, p.rstrip("/"), "dir" if p.endswith("/") else "file") for n, p in outputs.items()
            ),
            params={"rate": 1e-4, "of": str(identity)},
            **keyed,  # type: ignore[arg-type]
        )
        key = action_key(action, {name: self._digest(ref) for name, ref in inputs.items()})
        self.store.cas.put(key.digest, key.form)
        root = Path(self.store.layout.temporary())
        root.mkdir()
        write(root)
        made = {}
        for output in action.outputs:
            if output.kind == "dir":
                info = store_tree(self.store.cas, root / output.path)
                made[output.name] = Made("dir", info.digest, output.path, info.size)
            else:
                found = self.store.cas.store_file(root / output.path)
                executable = os.access(root / output.path, os.X_OK)
                made[output.name] = Made("file", found.digest, output.path, found.size, executable)
        realisation = Realisation(key.digest, made)
        name = f"20261121T070000-{identity.name or 'only'}"
        evidence = self.store.layout.evidence(key.digest, name)
        evidence.mkdir(parents=True)
        (evidence / "log.txt").write_text(f"log of {identity}\n")
        self.store.actions.record(
            realisation,
            RunRecord(
                key=key.digest,
                realisation=realisation.digest,
                label=identity.label,
                action=identity.name,
                started="2026-11-21T07:00:00Z",
                wall_s="0.010",
                evidence={"log.txt": hash_file(evidence / "log.txt").digest},
                name=name,
            ),
        )
        out = self.store.outputs.materialise(realisation)
        short = identity.label.rpartition(".")[2]
        link = self.receipt.parent / short
        if identity.name:
            folder = self.root / "mxt-out/recipes" / f"x.{short}"
            self.store.outputs.link_target(folder / identity.name, out)
            out = folder
        self.store.outputs.link_target(link, out)
        self.results[identity] = (BuiltAction.of(action, key, realisation), realisation)
        return realisation

    def _digest(self, ref: InputRef) -> InputDigest:
        if isinstance(ref, OutputRef):
            output = self.results[ref.action][1].outputs[ref.output]
            return InputDigest(output.kind, output.digest, output.executable)
        if isinstance(ref, SliceRef):
            return InputDigest("file", ref.digest)
        place = self.root / ref.path
        if place.is_dir():
            return InputDigest("dir", digest_tree(place).digest)
        return InputDigest("file", hash_file(place).digest)

    def built(self) -> Built:
        return Built(
            TARGET,
            [action for action, _ in self.results.values()],
            recipe="recipes/x.yaml",
            toolchains={hash_file(self.root / "toolchains/cpu.lock").digest: "toolchains/cpu.lock"},
            platforms={platform_digest(PLATFORM): PLATFORM, "0" * 64: {"name": "unused"}},
        )

    def write(self, invocation: Invocation = INVOCATION) -> Written:
        return write_receipt(
            self.receipt,
            self.built(),
            invocation,
            workspace=self.root,
            cache=self.store.actions,
            key=self.store.key,
        )

    def verify(self, keys: Path | None = None) -> Result:
        trusted = load_trusted_keys(keys)
        return verify_receipt(self.receipt, workspace=self.root, store=self.store.root, trusted=trusted)

    def key_of(self, stage: str, name: str = "") -> str:
        return self.results[ActionId(f"{TARGET}.{stage}", name)][0].key

    def realisation(self, stage: str, name: str = "") -> Realisation:
        return self.results[ActionId(f"{TARGET}.{stage}", name)][1]


def make_world(root: Path) -> World:
    """Two shards cut from one file, a packing of both, a training with a folder, a lock and a platform."""
    root.mkdir(parents=True)
    (root / "MXTBUILD").touch()
    world = World(root, Store(root / "cache", keep_key_out_of=[root]).create())
    world.source("recipes/x.yaml", b"train:\n  lr: 1e-4\n")
    rows = world.source("recipes/rows.jsonl", b'{"text":"one"}\n{"text":"two"}\n').read_bytes()
    world.source("recipes/tokenizer/vocab.txt", b"a\nb\n")
    world.source("recipes/tokenizer/deep/merges.txt", b"ab\n")
    lock = world.source("toolchains/cpu.lock", b'{"version":1}\n')
    for number, line in enumerate(rows.splitlines(keepends=True)):
        piece = SliceRef("recipes/rows.jsonl", number * 15, 15, hash_bytes(line), number + 1)
        world.act(
            ActionId(f"{TARGET}.shards", f"000{number}"),
            {"rows": piece},
            {"rows": "rows.jsonl"},
            lambda out, line=line: (out / "rows.jsonl").write_bytes(line.upper()),  # type: ignore[misc]
        )
    shards = {f"rows/{i}": OutputRef(ActionId(f"{TARGET}.shards", f"000{i}"), "rows") for i in range(2)}
    world.act(
        ActionId(f"{TARGET}.pack"),
        {**shards, "recipe": SourceRef("recipes/x.yaml")},
        {"packed": "deep/packed.bin"},
        _pack,
    )
    world.act(
        ActionId(f"{TARGET}.train"),
        {
            "data": OutputRef(ActionId(f"{TARGET}.pack"), "packed"),
            "tokenizer": SourceRef("recipes/tokenizer"),
        },
        {"adapter": "adapter/", "empty": "nothing/"},
        _train,
        toolchain=hash_file(lock).digest,
        platform=platform_digest(PLATFORM),
    )
    return world


def _pack(out: Path) -> None:
    (out / "deep").mkdir()
    (out / "deep/packed.bin").write_bytes(bytes(range(256)) * 64)


def _train(out: Path) -> None:
    (out / "nothing/inner").mkdir(parents=True)
    (out / "adapter/sub").mkdir(parents=True)
    (out / "adapter/weights.bin").write_bytes(b"weights" * 1000)
    (out / "adapter/sub/run.sh").write_bytes(b"#!/bin/sh\n")
    (out / "adapter/sub/run.sh").chmod(0o755)
    (out / "adapter/latest").symlink_to("weights.bin")


@pytest.fixture(scope="session")
def operator_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One key for all tests: making one waits for the disk."""
    return tmp_path_factory.mktemp("config") / "key"


@pytest.fixture(autouse=True)
def operator(operator_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own operator; nobody's real key is read or made."""
    monkeypatch.setenv("MXT_KEY_FILE", str(operator_key))
    for name in ("MXT_WORKSPACE", "MXT_STORE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, operator_key: Path) -> World:
    """The workspace that each test gets a copy of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXT_KEY_FILE", str(operator_key))
        made = make_world(tmp_path_factory.mktemp("template") / "ws")
        made.write()
    return made


@pytest.fixture
def world(tmp_path: Path, template: World) -> World:
    # cp keeps times and the links between blobs and outputs; that it may be moved is part of the design
    subprocess.run(["cp", "-a", template.root, tmp_path / "ws"], check=True)
    root = tmp_path / "ws"
    return World(root, Store(root / "cache", keep_key_out_of=[root]), dict(template.results))
