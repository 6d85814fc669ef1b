"""Loading packages: what CORE asks for, each package once, with everything that was read for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from mxt.errors import LoadError, UsageError
from mxt.loading.label import Label, check_package
from mxt.loading.reads import GlobRead, Reads, Stat
from mxt.loading.root import MXTBUILD
from mxt.loading.rule_modules import RuleSource
from mxt.loading.starlark_server import Server
from mxt.loading.workspace import Workspace

DEFAULT_TIMEOUT = 10.0  # seconds a package may take to evaluate
RESERVED = frozenset(
    {"glob", "config", "workspace", "package_name", "print", "native", "fail", "struct", "load", "json"}
)


@dataclass(frozen=True, slots=True)
class RawTarget:
    """One rule's call. attrs: JSON values, without `name`. where: file:line:column of the call in the
    MXTBUILD. macro: "function at file:line" where a macro made it, else ""."""

    rule: str
    name: str
    attrs: dict[str, Any]
    where: str
    macro: str = ""


class ReadConfig(NamedTuple):
    """What config(label, schema, overrides) gave in a package: values, validated and with all defaults."""

    package: str
    label: str
    schema: str
    overrides: dict[str, Any]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Package:
    """An evaluated MXTBUILD. workspace: what workspace() was given, in the root package."""

    name: str
    file: str
    targets: dict[str, RawTarget]
    reads: Reads = field(default_factory=Reads)
    workspace: dict[str, Any] | None = None


class Loader:
    """Evaluates packages in a process of its own, which starts at the first one.

    Call package() first from the main thread, before others are started. Close it, or use `with`.
    """

    def __init__(
        self,
        workspace: Workspace,
        rules: Mapping[str, RuleSource],
        *,
        environ: Mapping[str, str] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """rules: see rule_modules.find_rules. tell: takes what print() prints (default: to stderr).

        Raises UsageError for a bad MXT_LOAD_TIMEOUT and for a rule called like a built-in function.
        """
        self.workspace = workspace
        self.rules = dict(rules)
        self.environ = os.environ if environ is None else environ
        for name in sorted(RESERVED & self.rules.keys()):
            raise UsageError(f"rule '{name}' takes the name of a built-in function", hint="rename its file")
        self._packages: dict[str, Package] = {}
        self._failed: dict[str, LoadError | UsageError] = {}
        self._configs: dict[tuple[str, str, str, str], tuple[str, dict[str, Any]]] = {}
        self._server = Server(workspace, self.rules, _timeout(self.environ), self._config, tell or _to_stderr)

    def package(self, name: str) -> Package:
        """The package, evaluated once; raises LoadError (the same one again for a package that failed)."""
        known = self._packages.get(name)
        if known is not None:
            return known
        if name in self._failed:
            raise self._failed[name]
        try:
            package = self._evaluate(name)
        except (LoadError, UsageError) as problem:
            self._failed[name] = problem
            raise
        self._packages[name] = package
        return package

    def configs(self) -> list[ReadConfig]:
        """Every recipe that config() has read for the packages loaded so far, once for each package."""
        return [
            ReadConfig(package, label, schema, json.loads(overrides), json.loads(text))
            for (package, label, schema, overrides), (text, _) in self._configs.items()
        ]

    def config_count(self) -> int:
        """How many there are: whether `configs` has more than when it was last asked."""
        return len(self._configs)

    def close(self) -> None:
        """End the evaluator process; loaded packages stay."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _evaluate(self, name: str) -> Package:
        check_package(name)
        if not self.workspace.is_package(name):
            from mxt.loading.missing import missing_package

            raise missing_package(self.workspace, name)
        self._must_be_inside(name)
        targets, files, directories, globs, described = self._server.package(name)
        reads = Reads(files, directories, [GlobRead(*g) for g in globs])
        file = f"{name}/{MXTBUILD}" if name else MXTBUILD
        return Package(name, file, {t[1]: RawTarget(*t) for t in targets}, reads, described)

    def _must_be_inside(self, name: str) -> None:
        """A package reached through links that leave the workspace is none."""
        root = str(self.workspace.root)
        real = os.path.realpath(os.path.join(root, name, MXTBUILD))
        inside = real.startswith(root.rstrip("/") + "/")
        if not inside or self.workspace.excluded(os.path.relpath(real, root)):
            raise LoadError(
                f"package '//{name}' leads out of the workspace, to '{real}'", hint="copy it there"
            )

    def _config(
        self, package: str, path: str, schema: str, overrides: str
    ) -> tuple[str, dict[str, Stat | None]]:
        from mxt.loading.config import load_config

        # a schema's validators may look at the files of the package that asks: see config.py
        key = (package, str(Label.parse(path, package)), schema, overrides)
        if key not in self._configs:
            config = load_config(self.workspace, package, path, schema, self.environ, json.loads(overrides))
            self._configs[key] = (config.text, config.files)
        return self._configs[key]


def _timeout(environ: Mapping[str, str]) -> float:
    text = environ.get("MXT_LOAD_TIMEOUT") or ""
    if not text:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        raise UsageError(f"MXT_LOAD_TIMEOUT is '{text}'", hint="give a number of seconds above 0")
    return seconds


def _to_stderr(text: str) -> None:
    print(f"DEBUG: {text}", file=sys.stderr, flush=True)
