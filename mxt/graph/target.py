"""A target under analysis: what a rule's `actions(target)` sees and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mxt.action.action import (
    Action,
    ActionId,
    Input,
    InputRef,
    Need,
    Output,
    OutputRef,
    Refusal,
    SliceRef,
    SourceRef,
)
from mxt.action.resources import Resources
from mxt.action.variables import problem_of
from mxt.errors import GraphError, did_you_mean


class Handle(NamedTuple):
    """Something an action can take as input.

    name: the output's declared name, or the source's file name. path: the file name the consumer
    will see. kind: "file" or "dir". line: for a slice of a source, its first line (from 1), else 1.
    """

    name: str
    path: str
    kind: str
    ref: InputRef

    @property
    def action(self) -> str:
        """The producing action's name within its target; empty for sources."""
        return self.ref.action.name if isinstance(self.ref, OutputRef) else ""

    @property
    def line(self) -> int:
        return self.ref.line if isinstance(self.ref, SliceRef) else 1

    @property
    def origin(self) -> str:
        """The workspace path of a source, or the label of the action that makes it."""
        return str(self.ref.action) if isinstance(self.ref, OutputRef) else self.ref.path


@dataclass
class AnalysedTarget:
    """What a target turned out to be once its rule has run.

    outputs: in declaration order. members: for a bundle, the labels it groups.
    """

    label: str
    rule: str
    where: str
    tags: tuple[str, ...] = ()
    outputs: tuple[Handle, ...] = ()
    actions: tuple[ActionId, ...] = ()
    members: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    test: bool = False
    effect: bool = False
    receipt: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


class Target:
    """The analysis side of one target of a Python rule.

    label, name, package: of this target. attrs: the rule's validated Attrs. config: the recipe's
    KEYED fields by dotted name; unkeyed: the UNKEYED ones. Reading any other field is an error.
    """

    def __init__(
        self,
        *,
        label: str,
        package: str,
        name: str,
        where: str,
        attrs: Any,
        config: Mapping[str, Any],
        unkeyed: Mapping[str, Any],
        defaults: Mapping[str, Any],
        resolve: Callable[[str], Sequence[Handle]],
        split: Callable[[Handle, int], list[Handle]],
    ) -> None:
        self.label = label
        self.package = package
        self.name = name
        self.where = where
        self.attrs = attrs
        self.config = config
        self.unkeyed = unkeyed
        self.made: list[Action] = []
        self._defaults = defaults
        self._resolve = resolve
        self._split = split

    def outputs(self, label: str) -> list[Handle]:
        """All outputs of a dependency, in the order in which its rule declared them."""
        return list(self._resolve(label))

    def source(self, label: str) -> Handle:
        """The one file or folder that a label stands for."""
        return self._single(label)

    def split(self, source: str | Handle, lines: int) -> list[Handle]:
        """One handle for each `lines` lines of a text file of the workspace.

        An action that takes one is keyed by those lines' bytes alone, so a row added at the end of
        the file re-runs the last piece only. Raises GraphError for a file that an action makes.
        """
        handle = self._single(source) if isinstance(source, str) else source
        if not isinstance(handle.ref, SourceRef):
            raise GraphError(
                f"'{handle.origin}' is made by an action and cannot be split into rows",
                where=self.where,
                hint="split applies to files of the workspace; leave out rows_per_shard",
            )
        return self._split(handle, lines)

    def action(
        self,
        *,
        run: Callable[..., None],
        outputs: Mapping[str, str],
        name: str = "",
        mnemonic: str = "",
        inputs: Mapping[str, str | Handle | Sequence[str | Handle]] | None = None,
        params: Mapping[str, Any] | None = None,
        unkeyed: Mapping[str, Any] | None = None,
        resources: Resources | None = None,
        network: bool = False,
        passthrough: Sequence[str] = (),
        needs: Sequence[Need] = (),
        progress: bool = False,
        accelerants: bool | str = False,
        environment: Mapping[str, str] | None = None,
        refuse: Refusal | None = None,
    ) -> list[Handle]:
        """Declare one action; returns handles to its outputs.

        outputs: name -> path, a trailing "/" declaring a folder. A list of inputs arrives as a list
        of paths. unkeyed: values passed on to the function (`run.unkeyed`) that cannot change
        what it makes, such as how often it logs. network: may reach the network, and then sees the
        host's variables named in passthrough (tokens, endpoints), which are in no key either. needs: those
        without which it would fail, said before anything runs.
        progress: a folder kept per key until the action succeeds. accelerants: True for a folder of the
        action's own, kept per key; a label for a private copy of what that target's action made.
        environment: variables that the process starts with, beside the platform's; keyed. refuse: why this
        action cannot be executed, such as `not_yet("training by DPO")`: it has a key and is shown, and a
        build that would have to run it fails before anything runs.
        """
        resources = resources or Resources()
        identity = ActionId(self.label, name)
        if "/" in name or name in (".", ".."):
            raise GraphError(f"action name '{name}' of '{self.label}' is no plain name", where=self.where)
        if any(a.id == identity for a in self.made):
            raise GraphError(f"two actions of '{self.label}' are named '{name}'", where=self.where)
        for output in outputs:
            _check_name("output", output, self.where)
        declared = tuple(declare_output(n, p, self.where) for n, p in outputs.items())
        if not declared:
            raise GraphError(f"action '{identity}' declares no output", where=self.where)
        check_apart(declared, f"action '{identity}'", self.where)
        if wrong := problem_of(environment or {}):
            raise GraphError(f"action '{identity}': {wrong[0]}", where=self.where, hint=wrong[1])
        lists, wired = self._wire(inputs or {})
        action = Action(
            id=identity,
            mnemonic=mnemonic or run.__name__.title().replace("_", ""),
            entry=f"{run.__module__}:{run.__name__}",
            inputs=wired,
            outputs=declared,
            params=dict(params or {}),
            config=self.config,
            unkeyed={**self.unkeyed, **(unkeyed or {}), "mxt.lists": lists},
            cpus=resources.cpus,
            memory_mb=resources.memory_mb,
            gpus=resources.gpus,
            exclusive=resources.exclusive,
            network=network,
            passthrough=tuple(passthrough),
            needs=tuple(needs),
            progress=progress,
            accelerants=bool(accelerants),
            accelerants_from=self._maker(accelerants) if isinstance(accelerants, str) else None,
            refusal=refuse,
            **{**self._defaults, "environment": {**self._defaults["environment"], **(environment or {})}},
        )
        self.made.append(action)
        return [output_handle(action, o) for o in declared]

    def _maker(self, label: str) -> ActionId:
        """The action whose accelerants are meant."""
        ref = self._resolve(label)[0].ref
        if not isinstance(ref, OutputRef):
            raise GraphError(f"'{label}' is a file, and makes no accelerants", where=self.where)
        return ref.action

    def _single(self, label: str) -> Handle:
        handles = self._resolve(label)
        if len(handles) != 1:
            names = ", ".join(h.name for h in handles) or "none"
            raise GraphError(
                f"'{label}' has {len(handles)} outputs ({names}) where one is needed",
                where=self.where,
                hint=f"choose one as '{label}#NAME'" if handles else "",
            )
        return handles[0]

    def _wire(self, inputs: Mapping[str, Any]) -> tuple[dict[str, int], tuple[Input, ...]]:
        """Inputs with their places; and for each list input its length, so that [] arrives as []."""
        lists: dict[str, int] = {}
        wired: list[Input] = []
        for name, value in inputs.items():
            _check_name("input", name, self.where)
            if isinstance(value, (str, Handle)):
                handle = self._single(value) if isinstance(value, str) else value
                wired.append(Input(name, f"inputs/{name}/{basename(handle.path)}", handle.ref))
                continue
            if not isinstance(value, Iterable):
                raise GraphError(f"input '{name}' is a {type(value).__name__}, not a label", where=self.where)
            handles = [self._single(v) if isinstance(v, str) else v for v in value]
            lists[name] = len(handles)
            for i, handle in enumerate(handles):
                place = f"{name}/{i:04d}"
                wired.append(Input(place, f"inputs/{place}/{basename(handle.path)}", handle.ref))
        return lists, tuple(wired)


def _check_name(what: str, name: str, where: str) -> None:
    if not name.isascii() or not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise GraphError(
            f"{what} name {name!r} must be of ASCII letters, digits, '_', '-' and '.'", where=where
        )


def ascii_name(path: str) -> str:
    """A path as a name in the action form, whose keys are ASCII: other characters percent-encoded."""
    if path.isascii() and "%" not in path and not path.startswith("$"):
        return path
    from urllib.parse import quote

    return quote(path, safe="/ !&'()*+,:;=@~")


def basename(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def declare_output(name: str, path: str, where: str) -> Output:
    """Check a declared output path. Raises GraphError for absolute paths, `..` and empty parts."""
    kind = "dir" if path.endswith("/") else "file"
    clean = path.rstrip("/")
    if (
        not clean
        or clean.startswith("/")
        or any(p in ("", ".", "..") for p in clean.split("/"))
        or "\0" in clean
    ):
        raise GraphError(
            f"output path '{path}' is not a plain relative path",
            where=where,
            hint="name a file below the target's own folder, without '..'",
        )
    return Output(name, clean, kind)


def check_apart(outputs: Sequence[Output], of: str, where: str) -> None:
    """Raises GraphError where two outputs are one file, or one lies in another."""
    paths: set[str] = set()
    for output in outputs:
        if output.path in paths:
            raise GraphError(f"{of} declares the output '{output.path}' twice", where=where)
        paths.add(output.path)
    for output in outputs:
        parts = output.path.split("/")
        for count in range(1, len(parts)):
            above = "/".join(parts[:count])
            if above in paths:
                raise GraphError(
                    f"{of} declares the output '{output.path}' inside its output '{above}'",
                    where=where,
                    hint="a folder is declared as a whole: leave out one of the two",
                )


def output_handle(action: Action, output: Output) -> Handle:
    return Handle(output.name, output.path, output.kind, OutputRef(action.id, output.name))


def choose_output(handles: Sequence[Handle], label: str, name: str, where: str) -> Handle:
    """The output called `name`. Raises GraphError with the names there are."""
    for handle in handles:
        if name in (handle.name, handle.path, f"{handle.action}/{handle.name}"):
            return handle
    names = [h.name for h in handles]
    raise GraphError(
        f"'{label}' has no output '{name}'{did_you_mean(name, names)}",
        where=where,
        hint=f"its outputs: {', '.join(names) or 'none'}",
    )
