"""What an action's key gave (realisation), and how it came about (run): the payloads that are signed."""

# ruff: noqa: TRY004 - whatever is wrong with a stranger's bytes is one error, a ValueError
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from mxt.action.canonical import MAX_INTEGER, dump
from mxt.store.digest import Digest, hash_bytes

VERSION = 1


@dataclass(frozen=True)
class Output:
    """One declared output. kind: "file" or "dir". path: relative to out/<key>.

    size: bytes, of all its files for a folder.
    """

    kind: str
    digest: str
    path: str
    size: int
    executable: bool = False

    def form(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "digest": self.digest,
            "path": self.path,
            "executable": self.executable,
            "size": self.size,
        }


@dataclass(frozen=True)
class Realisation:
    """This key gave these outputs, by name. operator: whose record it came from; not in the payload."""

    key: str
    outputs: Mapping[str, Output]
    operator: str = field(default="", compare=False)

    def payload(self) -> dict[str, Any]:
        outputs = {name: output.form() for name, output in self.outputs.items()}
        return {"version": VERSION, "key": self.key, "outputs": outputs}

    @cached_property
    def digest(self) -> Digest:
        """BLAKE3 of the payload, by which runs and receipts name this realisation."""
        return hash_bytes(dump(self.payload()))

    @staticmethod
    def parse(payload: Any, operator: str = "") -> Realisation:
        """Raises ValueError unless payload is a well-formed and harmless realisation."""
        if not isinstance(payload, dict) or set(payload) != {"version", "key", "outputs"}:
            raise ValueError("not a realisation")
        if payload["version"] != VERSION or not isinstance(payload["outputs"], dict):
            raise ValueError("a realisation of another version")
        outputs = {name: _output(form) for name, form in payload["outputs"].items()}
        paths = sorted(output.path.split("/") for output in outputs.values())
        for one, other in pairwise(paths):
            if other[: len(one)] == one:  # sorted: what lies inside a path follows it
                raise ValueError(f"outputs collide at {'/'.join(one)!r}")
        return Realisation(Digest(payload["key"]), outputs, operator)


def _output(form: Any) -> Output:
    if not isinstance(form, dict) or set(form) != {"kind", "digest", "path", "executable", "size"}:
        raise ValueError("not an output")
    kind, path, size = form["kind"], form["path"], form["size"]
    if kind not in ("file", "dir") or type(form["executable"]) is not bool:
        raise ValueError("not an output")
    if type(size) is not int or not 0 <= size <= MAX_INTEGER:
        raise ValueError("bad size of an output")
    if not isinstance(path, str) or not safe_path(path):
        raise ValueError(f"unsafe output path {path!r}")
    return Output(kind, Digest(form["digest"]), path, size, form["executable"])


def safe_path(path: str) -> bool:
    """Whether a relative path stays inside, in its one plain spelling."""
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


@dataclass(frozen=True)
class RunRecord:
    """How a realisation came about. started: ISO time, UTC. wall_s: seconds, as text with milliseconds.

    name: <started>-<nonce>, of its record and its evidence folder; not in the payload.
    evidence: relative path -> digest. toolchain: "host" or the digest of a lock.
    """

    key: str
    realisation: str
    label: str
    started: str
    wall_s: str
    action: str = ""
    mnemonic: str = ""
    evidence: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    sandbox: str = "none"
    toolchain: str = "host"
    resumed: bool = False
    inputs_from: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(default="", compare=False)
    operator: str = field(default="", compare=False)

    def payload(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "key": self.key,
            "realisation": self.realisation,
            "label": self.label,
            "action": self.action,
            "mnemonic": self.mnemonic,
            "evidence": dict(self.evidence),
            "machine": dict(self.machine),
            "sandbox": self.sandbox,
            "toolchain": self.toolchain,
            "started": self.started,
            "wall_s": self.wall_s,
            "resumed": self.resumed,
            "inputs_from": dict(self.inputs_from),
        }

    @staticmethod
    def parse(payload: Any, *, name: str = "", operator: str = "") -> RunRecord:
        """Raises ValueError unless payload is a well-formed run."""
        if not isinstance(payload, dict) or payload.get("version") != VERSION:
            raise ValueError("not a run")
        fields = {key: value for key, value in payload.items() if key != "version"}
        try:
            run = RunRecord(**fields, name=name, operator=operator)
        except TypeError:
            raise ValueError("not a run") from None
        if set(run.payload()) != set(payload):
            raise ValueError("not a run")
        texts = (run.label, run.action, run.mnemonic, run.sandbox, run.toolchain, run.started, run.wall_s)
        for text in texts:
            if not isinstance(text, str):
                raise ValueError("not a run")
        for mapping in (run.evidence, run.machine, run.inputs_from):
            if not isinstance(mapping, dict):
                raise ValueError("not a run")
        for path, digest in run.evidence.items():
            if not safe_path(path):
                raise ValueError(f"unsafe evidence path {path!r}")
            Digest(digest)
        Digest(run.key), Digest(run.realisation)
        return run
