"""Evaluating MXTBUILD and .mxt files: what the evaluator process does for one package.

Runs in the child process of starlark_server; nothing here is safe against a file that exhausts the
stack or the memory, which is why there is a child.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import starlark as sl

from mxt.action.canonical import MAX_INTEGER
from mxt.errors import LoadError, MxtError, did_you_mean
from mxt.loading.glob import glob
from mxt.loading.label import Label, check_name, quoted
from mxt.loading.nesting import position
from mxt.loading.reads import Reads, stat_of
from mxt.loading.root import MXTBUILD
from mxt.loading.rule_modules import BUILTIN_RULES
from mxt.loading.starlark_error import PRELUDE, call_column, frames_of, translate
from mxt.loading.workspace import Workspace

MAX_FILE = 4 << 20  # bytes of one MXTBUILD or .mxt
MAX_ATTRIBUTES = 64 << 20  # bytes of all attributes of one package
MAX_CALLS = 100  # nested Starlark calls
BUILTINS = ("glob", "config", "workspace", "package_name", "print", "native")

_LONG_NUMBER = re.compile(r"\d{16}")
_ODD_KEY = re.compile(r'"(?:-?\d[\d.e+-]*|true|false|null)":')
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')

_FUNCTIONS = """
def glob(include, exclude = [], allow_empty = False):
    return _glob(include, exclude, allow_empty)
def config(path, schema, overrides = {}):
    return json.decode(_config(path, schema, json.encode(overrides)))
def workspace(name = "", **kwargs):
    _workspace(json.encode([name, kwargs]))
def package_name():
    return _package_name()
def print(*args, sep = " "):
    _print(sep.join([str(a) for a in args]))
"""
# a rule's attributes cross as JSON text: faster than one by one, and floats stay floats
_RULE = """
def {0}(*args, **kwargs):
    if _record(json.encode(["{0}", args, kwargs, call_stack(strip_frames = 1)])):
        _check("{0}", repr(kwargs))
"""


@dataclass(slots=True)
class _Mxt:
    """A .mxt file, evaluated, with every file that it read."""

    module: sl.FrozenModule
    files: dict[str, Any]


@dataclass(slots=True)
class _State:
    """What the package in hand has given so far."""

    package: str
    file: str
    lines: list[str] = field(default_factory=list)
    reads: Reads = field(default_factory=Reads)
    targets: dict[str, tuple[str, str, dict[str, Any], str, str]] = field(default_factory=dict)
    workspace: dict[str, Any] | None = None
    size: int = 0


class Evaluator:
    """Evaluates packages one after the other; .mxt files are kept between them."""

    def __init__(
        self,
        workspace: Workspace,
        rules: Iterable[str],
        timeout: float,
        config: Callable[[str, str, str, str], tuple[str, dict[str, Any]]],
        tell: Callable[[str, str], None],
    ) -> None:
        """config(package, path, schema, overrides) -> JSON text, files read. tell(kind, text): progress."""
        self.workspace = workspace
        self.rules = list(rules)
        self.timeout = timeout
        self.deadline = 0.0
        self.config = config
        self.tell = tell
        self.names = [*BUILTINS, *self.rules]
        self.sources: dict[str, str] = {}
        self.cache: dict[str, _Mxt] = {}
        self.loading: list[str] = []  # .mxt files on the way, outermost first
        self.pending: MxtError | None = None
        self.state = _State("", "")
        library = [sl.LibraryExtension.StructType, sl.LibraryExtension.Json]
        self.globals = sl.Globals.extended_by(library)
        self.dialect = sl.Dialect.standard()
        self.prelude = self._make_prelude(sl.Globals.extended_by([*library, sl.LibraryExtension.CallStack]))
        loads = ", ".join(f'"{name}"' for name in self.names)
        self.prefix = f'load("{PRELUDE}", {loads})\n'
        self.own_rules = (workspace.root / "rules").is_dir()
        self.macros = sorted(p.stem for p in BUILTIN_RULES.glob("*.mxt"))

    def package(self, name: str) -> tuple[Any, ...]:
        """(targets, files, directories, globs, workspace) of the package, plain values; raises LoadError."""
        self.deadline = time.monotonic() + self.timeout
        file = f"{name}/{MXTBUILD}" if name else MXTBUILD
        self.state = _State(name, file)
        self.loading.clear()
        self._read_rule_folders()
        source = self._read(file, str(self.workspace.root / file), self.state.reads.files)
        self.state.lines = source.split("\n")
        self._evaluate(file, source)
        reads = self.state.reads
        globs = [(g.package, g.include, g.exclude, g.result, g.directories) for g in reads.globs]
        targets = list(self.state.targets.values())
        return targets, reads.files, reads.directories, globs, self.state.workspace

    # evaluation

    def _evaluate(self, file: str, source: str) -> sl.Module:
        self.sources[file] = source
        self.pending = None
        module = sl.Module()
        try:
            ast = sl.parse(file, self.prefix + source, self.dialect)
            options = sl.EvalOptions(check_cancelled=self._late, max_callstack_size=MAX_CALLS)
            sl.eval_with(options, module, ast, self.globals, file_loader=sl.FileLoader(self._load))
        except sl.StarlarkError as problem:
            limit = f"{self.timeout:g} s"
            error = translate(str(problem), self.sources, self.names, self.macros, self.pending, limit)
            raise error from None
        return module

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _check_time(self) -> None:
        if self._late():
            raise LoadError(
                f"evaluation takes longer than {self.timeout:g} s", hint="raise MXT_LOAD_TIMEOUT (seconds)"
            )

    def _read(self, shown: str, path: str, files: dict[str, Any]) -> str:
        """The text of a Starlark file; what it is and that it was read is noted."""
        self.tell("file", shown)
        files[self._key(path)] = stat_of(path)
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE + 1)
        except OSError as problem:
            raise LoadError(f"cannot read {quoted(shown)}: {problem.strerror}", where=shown) from None
        if len(data) > MAX_FILE:
            raise LoadError(
                f"is larger than {MAX_FILE >> 20} MiB",
                where=shown,
                hint="split it, or keep data in files of its own",
            )
        try:
            return data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as problem:
            before = data[: problem.start].decode("utf-8", "replace")
            line, column = position(before, len(before))
            raise LoadError(
                "is not UTF-8", where=f"{shown}:{line}:{column}", hint="save it as UTF-8"
            ) from None

    def _key(self, path: str) -> str:
        root = str(self.workspace.root).rstrip("/") + "/"
        return path.removeprefix(root)

    def _read_rule_folders(self) -> None:
        """Rule names come from listing folders: a new file there is a new name."""
        directories = self.state.reads.directories
        directories["rules"] = stat_of(self.workspace.root / "rules")
        directories[self._key(str(BUILTIN_RULES))] = stat_of(BUILTIN_RULES)

    # what load() loads

    def _load(self, text: str) -> sl.FrozenModule:
        if text == PRELUDE:
            return self.prelude
        return self._guarded(self._load_mxt, text)  # type: ignore[no-any-return]

    def _load_mxt(self, text: str) -> sl.FrozenModule:
        label = self._mxt_label(text)
        base = BUILTIN_RULES.parent if label.repo else self.workspace.root
        shown = f"@{label.repo}//{label.path}" if label.repo else label.path
        path = os.path.join(base, label.path)
        files = self.state.reads.files
        if shown in self.loading:
            chain = " -> ".join([*self.loading[self.loading.index(shown) :], shown])
            raise LoadError(
                f"load() goes round in a circle: {chain}", hint="move what both need into a third file"
            )
        known = self.cache.get(shown)
        if known is None:
            self._must_exist(label, path, shown)
            outer, self.loading = self.loading, [*self.loading, shown]
            # files read below go to this .mxt first, so that a later package that loads it has them too
            own: dict[str, Any] = {}
            self.state.reads.files = own
            try:
                source = self._read(shown, path, own)
                known = _Mxt(self._evaluate(shown, source).freeze(), own)
            finally:
                self.state.reads.files = files
                self.loading = outer
            self.cache[shown] = known
        files.update(known.files)
        return known.module

    def _mxt_label(self, text: str) -> Label:
        here = self.loading[-1] if self.loading else self.state.file
        in_builtin = here.startswith("@mxt//")
        folder = here.removeprefix("@mxt//").rpartition("/")[0] if self.loading else self.state.package
        label = Label.parse(text, folder)
        if not label.name.endswith(".mxt"):
            raise LoadError(
                f"load() takes a .mxt file, not {quoted(text)}", hint='load("//package:file.mxt", "name")'
            )
        # in a built-in file "//rules:x.mxt" is its neighbour; elsewhere the workspace's, if it has rules/
        if not label.repo and (in_builtin or (label.package == "rules" and not self.own_rules)):
            label = Label(label.package, label.name, "mxt")
        if label.repo and label.package != "rules":
            raise LoadError(
                f"no package '@mxt//{label.package}'", hint="mxt's own macros are in '@mxt//rules'"
            )
        return label

    def _must_exist(self, label: Label, path: str, shown: str) -> None:
        if os.path.isfile(path):
            if not label.repo:
                self._inside(path, shown)
            return
        folder = os.path.dirname(path)
        self.state.reads.files[self._key(path)] = None
        if not os.path.isdir(folder):
            raise LoadError(f"no package {quoted('//' + label.package)} for load({quoted(str(label))})")
        near = did_you_mean(os.path.basename(path), [n for n in os.listdir(folder) if n.endswith(".mxt")])
        raise LoadError(f"no file {quoted(shown)} to load{near}")

    def _inside(self, path: str, shown: str) -> None:
        root = str(self.workspace.root).rstrip("/") + "/"
        real = os.path.realpath(path)
        if not real.startswith(root) or self.workspace.excluded(real[len(root) :]):
            raise LoadError(f"{quoted(shown)} leads out of the workspace, to {quoted(real)}")

    # the functions that files call

    def _make_prelude(self, globals_: sl.Globals) -> sl.FrozenModule:
        module = sl.Module()
        for name in ("glob", "config", "workspace", "package_name", "print", "record", "check"):
            module.add_callable(f"_{name}", self._callable(getattr(self, f"_do_{name}")))
        members = ", ".join(f"{n} = {n}" for n in self.names if n not in ("native", "workspace", "print"))
        source = (
            _FUNCTIONS
            + "".join(_RULE.format(name) for name in self.rules)
            + f"\nnative = struct({members})\n"
        )
        sl.eval(module, sl.parse(PRELUDE, source, self.dialect), globals_)
        return module.freeze()

    def _callable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: self._guarded(function, *args)

    def _guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        """Starlark passes on only the text of a Python exception: keep the error itself aside."""
        try:
            return function(*args)
        except MxtError as problem:
            self.pending = problem
            raise
        except RecursionError:
            self.pending = LoadError("a value is nested too deeply")
            raise
        except MemoryError:
            self.pending = LoadError("evaluation needs more memory than it may use")
            raise

    def _in_package(self, function: str) -> None:
        if self.loading:
            raise LoadError(
                f"{function}() is called while a .mxt file is loaded",
                hint="call it in a function, and the function in an MXTBUILD",
            )

    def _do_record(self, text: str) -> bool:
        rule, args, attrs, stack = json.loads(text)
        state = self.state
        self._in_package(rule)
        if args:
            raise LoadError(f"{rule}() takes named arguments only", hint=f'{rule}(name = "...", ...)')
        name = attrs.pop("name", None)
        if name is None:
            raise LoadError(f"{rule}() needs a name", hint='name = "..."')
        if not isinstance(name, str):
            raise LoadError(f"name of {rule}() must be text, not {quoted(name)}")
        check_name(name)
        if "#" in name:
            raise LoadError(
                f"name {quoted(name)}: must not hold '#'", hint="'label#output' chooses an output"
            )
        if name in state.targets:
            raise LoadError(
                f"target {quoted(name)} is already defined at {state.targets[name][3]}",
                hint="give one of them another name",
            )
        state.size += len(text)
        if state.size > MAX_ATTRIBUTES:
            raise LoadError(f"the package's attributes are larger than {MAX_ATTRIBUTES >> 20} MiB")
        if _LONG_NUMBER.search(text):
            _check_integers(attrs, rule, "")
        state.targets[name] = (rule, name, attrs, *self._origin(rule, stack))
        # JSON has no NaN and no keys but text: they came through as null and as text
        return "null" in text or (text.count("{") > 1 and _ODD_KEY.search(text) is not None)

    def _origin(self, rule: str, stack: str) -> tuple[str, str]:
        """Where the package's file made this call, and the macro that it went through, "" for none."""
        state = self.state
        frames = frames_of(stack)
        outer = frames[0]
        callee = rule if len(frames) == 1 else frames[1].function
        column = call_column(state.lines[outer.line - 1], callee)
        inner = frames[-1]
        macro = f"{inner.function} at {inner.file}:{inner.line}" if len(frames) > 1 else ""
        return f"{outer.file}:{outer.line}:{column}", macro

    def _do_check(self, rule: str, shown: str) -> None:
        bare = _STRING.sub('""', shown)
        number = re.search(r"(?<![\w\"])[+-]?(?:nan|inf)\b", bare)
        if number:
            raise LoadError(
                f"{number.group()} cannot be the value of an attribute of {rule}()",
                hint="use a finite number",
            )
        key = re.search(r"[{,] ?([^\"\s{}\[\](),:]+):", bare)
        if key:
            raise LoadError(
                f"a dict in an attribute of {rule}() has the key {key[1]}", hint="keys must be text"
            )

    def _do_glob(self, include: Any, exclude: Any, allow_empty: Any) -> list[str]:
        self._in_package("glob")
        for name, value in (("include", include), ("exclude", exclude)):
            if not isinstance(value, list):
                raise LoadError(
                    f"{name} of glob() must be a list of patterns, not {quoted(value)}",
                    hint='glob(["*.jsonl"])',
                )
        read = glob(self.workspace, self.state.package, include, exclude, bool(allow_empty), self._check_time)
        self.state.reads.globs.append(read)
        return read.result

    def _do_config(self, path: Any, schema: Any, overrides: str) -> str:
        self._in_package("config")
        if not isinstance(path, str) or not isinstance(schema, str):
            raise LoadError("path and schema of config() must be text")
        if not overrides.startswith("{"):
            raise LoadError("overrides of config() must be a dictionary", hint='as in {"train.lr": 1e-4}')
        started = time.monotonic()
        text, files = self.config(self.state.package, path, schema, overrides)
        self.deadline += time.monotonic() - started  # validating is not evaluating
        self.state.reads.files.update(files)
        return text

    def _do_workspace(self, text: str) -> None:
        self._in_package("workspace")
        if self.state.package:
            raise LoadError(
                "workspace() belongs into the MXTBUILD of a workspace's root", hint="remove it here"
            )
        if self.state.workspace is not None:
            raise LoadError("workspace() is called twice")
        name, attrs = json.loads(text)
        if not isinstance(name, str):
            raise LoadError("name of workspace() must be text")
        self.state.workspace = {"name": name, **attrs}

    def _do_package_name(self) -> str:
        self._in_package("package_name")
        return self.state.package

    def _do_print(self, text: str) -> None:
        self.tell("print", f"{self.state.file}: {text[:4096]}")


def _check_integers(value: Any, rule: str, attribute: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_integers(item, rule, attribute or key)
    elif isinstance(value, list):
        for item in value:
            _check_integers(item, rule, attribute)
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise LoadError(
            f"{quoted(attribute)} of {rule}() holds an integer beyond 2^53", hint="write it as text"
        )
