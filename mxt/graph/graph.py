"""The action graph: actions by identity, in an order in which each comes after what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mxt.action.action import Action, ActionId, OutputRef, SliceRef, SourceRef
from mxt.graph.target import AnalysedTarget
from mxt.loading.reads import Stat

if TYPE_CHECKING:
    from mxt.action.image import Image


@dataclass
class ActionGraph:
    """actions: in topological order. targets: all that were analysed, by canonical label.

    requested: labels the user asked for. read: workspace paths that analysis itself read
    (locks), each with its stat tuple from before. toolchains, images: what an action's toolchain stands
    for, the path of a lock or a container image.
    """

    actions: dict[ActionId, Action] = field(default_factory=dict)
    targets: dict[str, AnalysedTarget] = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    read: dict[str, Stat | None] = field(default_factory=dict)
    split_sources: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    toolchains: dict[str, str] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    platforms: dict[str, Mapping[str, object]] = field(default_factory=dict)
    _order: dict[ActionId, int] = field(default_factory=dict, repr=False)

    def wanted(self) -> list[AnalysedTarget]:
        """The requested targets, bundles followed by their members, filegroups by the targets they name."""
        found: dict[str, AnalysedTarget] = {}
        stack = list(reversed(self.requested))
        while stack:
            label = stack.pop()
            if label in found:
                continue
            found[label] = target = self.targets[label]
            below = target.members
            if target.rule == "filegroup":
                below = tuple(d for d in target.dependencies if d in self.targets)
            stack.extend(reversed(below))
        return list(found.values())

    def below(self, target: AnalysedTarget) -> list[ActionId]:
        """A target's own actions, those that make what it names (a filegroup), and those of its members."""
        found = dict.fromkeys(target.actions)
        found.update((h.ref.action, None) for h in target.outputs if isinstance(h.ref, OutputRef))
        for member in target.members:
            found.update(dict.fromkeys(self.below(self.targets[member])))
        return list(found)

    def sources(self) -> dict[str, None]:
        """Every workspace path that some action reads, each once."""
        return {
            i.ref.path: None
            for action in self.actions.values()
            for i in action.inputs
            if isinstance(i.ref, (SourceRef, SliceRef))
        }

    def consumers(self) -> dict[ActionId, list[ActionId]]:
        """For each action those that read one of its outputs; makers outside the graph are left out."""
        out: dict[ActionId, list[ActionId]] = {identity: [] for identity in self.actions}
        for identity, action in self.actions.items():
            for dependency in action.dependencies:
                if dependency in out:
                    out[dependency].append(identity)
        return out

    def closure(self, roots: Iterable[ActionId]) -> Iterator[ActionId]:
        """The given actions and all that they need, in topological order."""
        wanted: set[ActionId] = set()
        stack = list(roots)
        while stack:
            identity = stack.pop()
            if identity not in wanted and identity in self.actions:
                wanted.add(identity)
                stack.extend(self.actions[identity].dependencies)
        if len(self._order) != len(self.actions):
            self._order = {identity: n for n, identity in enumerate(self.actions)}
        return iter(sorted(wanted, key=self._order.__getitem__))
