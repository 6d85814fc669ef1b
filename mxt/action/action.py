"""One hermetic step of a target: what it reads, runs and writes, before any digest is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class ActionId(NamedTuple):
    """The target's canonical label, and the step's name where a target has several."""

    label: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.label}[{self.name}]" if self.name else self.label


class SourceRef(NamedTuple):
    """A file or folder of the workspace, by its path relative to the root."""

    path: str


class SliceRef(NamedTuple):
    """A run of whole lines of a source file: bytes [offset, offset + length), numbered from line."""

    path: str
    offset: int
    length: int
    digest: str
    line: int


class OutputRef(NamedTuple):
    """A declared output of another action."""

    action: ActionId
    output: str


InputRef = SourceRef | SliceRef | OutputRef


class Input(NamedTuple):
    """name: its place in the key. path: where the action finds it, relative to the execution root."""

    name: str
    path: str
    ref: InputRef


class Output(NamedTuple):
    """path: relative to the action's output folder. kind: "file" or "dir"."""

    name: str
    path: str
    kind: str


class Refusal(NamedTuple):
    """Why an action has a key and cannot be executed all the same.

    word: for a column of states, at most eight characters, such as "absent" or "unpinned". message, hint: of
    the error where it would have to run.
    """

    word: str
    message: str
    hint: str = ""


class Need(NamedTuple):
    """A variable of the host without which a network action is known to fail, such as an access token.

    one_of: the names of which one must be set. message, hint: what is said before anything runs if none is.
    """

    one_of: tuple[str, ...]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """Everything about a step that analysis knows.

    Keyed: entry, implementation, params, config, inputs (by digest), outputs, toolchain, platform,
    environment. In no key: unkeyed, mnemonic, cpus, memory_mb (MiB), gpus, exclusive, network, and
    which of progress and accelerants it asked for, and whose; passthrough: host variables that a network
    action may see, and needs, those without which it fails; refusal: why it cannot be executed, where that is
    known beforehand.
    """

    id: ActionId
    mnemonic: str
    entry: str
    implementation: Mapping[str, Any]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    unkeyed: Mapping[str, Any] = field(default_factory=dict)
    toolchain: str | None = None
    platform: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    outputs_at: str = "outputs"
    cpus: int = 1
    memory_mb: int = 0
    gpus: int = 0
    exclusive: bool = False
    network: bool = False
    progress: bool = False
    accelerants: bool = False
    accelerants_from: ActionId | None = None
    passthrough: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    test: bool = False
    effect: bool = False
    refusal: Refusal | None = None

    @property
    def dependencies(self) -> tuple[ActionId, ...]:
        """The actions whose outputs this one reads, each once, in order."""
        read = [i.ref.action for i in self.inputs if isinstance(i.ref, OutputRef)]
        if self.accelerants_from is not None:
            read.append(self.accelerants_from)
        return tuple(dict.fromkeys(read))
