"""Finding rule files and importing them: the built-in rules, and a workspace's own once trusted."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import keyword
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from mxt.errors import LoadError, MxtError, UsageError
from mxt.loading.label import quoted
from mxt.loading.trust import check_trust, digest_of, rule_contents
from mxt.loading.workspace import Workspace

BUILTIN_RULES = Path(__file__).resolve().parent.parent.parent / "rules"
# a workspace's rules live under a name of their own: "rules" is the built-in ones'
PRIVATE_PACKAGE = "mxt_workspace_rules"
NOT_RULES = frozenset({"recipe"})  # schemas for config(), beside the rules


class Origin(Enum):
    """Where a rule comes from."""

    CORE = "core"  # in mxt itself: genrule and the like
    BUILTIN = "builtin"  # the rules/ folder beside mxt
    WORKSPACE = "workspace"  # the user's rules/ folder; needs trust


@dataclass(frozen=True, slots=True)
class RuleSource:
    """A rule by name, before any of its code runs. path: its file, None for core rules."""

    name: str
    origin: Origin
    path: Path | None = None


def own_rules(workspace: Workspace) -> Path | None:
    """The workspace's rules/ folder where it has one that is not the built-in one."""
    folder = workspace.root / "rules"
    return folder if folder.is_dir() and folder.resolve() != BUILTIN_RULES else None


def find_rules(workspace: Workspace, core: Iterable[str] = ()) -> dict[str, RuleSource]:
    """Every rule by name, sorted; runs no code and needs no trust.

    Raises UsageError where a workspace's rule takes the name of a built-in one. (A byte-identical
    copy is the built-in one.)
    """
    found = {name: RuleSource(name, Origin.CORE) for name in core}
    for path in _rule_files(BUILTIN_RULES):
        found.setdefault(path.stem, RuleSource(path.stem, Origin.BUILTIN, path))
    own = own_rules(workspace)
    for path in _rule_files(own) if own else []:
        taken = found.get(path.stem)
        if taken is None:
            found[path.stem] = RuleSource(path.stem, Origin.WORKSPACE, path)
        elif taken.path is None or taken.path.read_bytes() != path.read_bytes():
            copy = (workspace.root / "mxt" / "rule.py").is_file()
            raise UsageError(
                f"rules/{path.name} takes the name of a rule that comes with mxt",
                hint="this workspace is another copy of mxt: run its own ./mxtw"
                if copy
                else "rename the file",
            )
    return dict(sorted(found.items()))


def find_schema(workspace: Workspace, name: str) -> RuleSource | None:
    """The module whose `Schema` is meant by config(..., schema = name); None where there is none."""
    own = own_rules(workspace)
    builtin = BUILTIN_RULES / f"{name}.py"
    path = own / f"{name}.py" if own else None
    if path is not None and path.is_file():
        content = path.read_bytes()
        if not (builtin.is_file() and builtin.read_bytes() == content):  # a copy is the built-in one
            return RuleSource(name, Origin.WORKSPACE, path)
    return RuleSource(name, Origin.BUILTIN, builtin) if builtin.is_file() else None


def schema_names(workspace: Workspace) -> list[str]:
    """Modules in rules/ folders, for suggestions."""
    folders = [BUILTIN_RULES, own_rules(workspace)]
    return sorted(
        {p.stem for folder in folders if folder for p in folder.glob("*.py") if not p.stem.startswith("_")}
    )


def import_rule(
    source: RuleSource,
    workspace: Workspace,
    environ: Mapping[str, str] | None = None,
    contents: Mapping[str, bytes] | None = None,
) -> ModuleType:
    """The module of a built-in or workspace rule, imported once.

    contents: what rule_contents gave for the workspace's rules, where the caller needs the same bytes.
    Raises UsageError where the workspace's rules are not trusted (nothing of them runs then), LoadError
    with file and line where the file fails to import.
    """
    if source.path is None:
        raise UsageError(f"rule {quoted(source.name)} is part of mxt and has no file")
    if source.origin is Origin.WORKSPACE:
        if contents is None:
            contents = rule_contents(source.path.parent)
        digests = {path: digest_of(data) for path, data in contents.items()}
        check_trust(workspace.root, digests, environ)
        # what runs is the bytes that were checked, not what the file holds a moment later
        return import_own(source.path.parent, source.name, contents)
    return _guarded(f"rules.{source.name}", source.path, "rules/" + source.path.name)


def import_own(rules: Path, name: str, contents: Mapping[str, bytes] | None = None) -> ModuleType:
    """Import rules/<name>.py of a workspace WITHOUT asking for trust.

    For the process that executes an action: the engine checked trust before it started it. contents:
    the files' bytes by "rules/<path>"; read now where absent.
    """
    finder = next((f for f in sys.meta_path if isinstance(f, _Finder)), None)
    fresh = dict(rule_contents(rules) if contents is None else contents)
    if finder is None or finder.rules != rules or finder.contents != fresh:
        if finder is not None:
            sys.meta_path.remove(finder)
            finder.forget()
        finder = _Finder(rules, fresh)
        sys.meta_path.insert(0, finder)
    return _guarded(f"{PRIVATE_PACKAGE}.{name}", rules / f"{name}.py", f"rules/{name}.py")


class _Finder:
    """Serves the modules of one workspace's rules/ from bytes in memory.

    No __pycache__ is read or written: a planted .pyc would be code that nobody's digest covers.
    """

    def __init__(self, rules: Path, contents: Mapping[str, bytes]) -> None:
        self.rules = rules
        self.contents = dict(contents)
        self.loaded: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002 - the same
    ) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head == "rules":  # `from rules._x import f` in a user's rule, unless mxt has that module
            if not rest or (BUILTIN_RULES / (rest.replace(".", "/") + ".py")).is_file():
                return None
        elif head != PRIVATE_PACKAGE:
            return None
        base = "/".join(["rules", *rest.split(".")] if rest else ["rules"])
        init = f"{base}/__init__.py"
        if f"{base}.py" in self.contents:
            return self._spec(fullname, f"{base}.py", False)
        if init in self.contents or not rest or any(p.startswith(base + "/") for p in self.contents):
            return self._spec(fullname, init, True)
        return None

    def _spec(self, fullname: str, path: str, package: bool) -> importlib.machinery.ModuleSpec:
        # importlib.abc.Loader as a base would say what this is, and cost 10 ms at every start
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=self._full(path), is_package=package)
        spec.has_location = True
        return spec

    def _full(self, path: str) -> str:
        return str(self.rules.parent / path)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        """None: an ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        origin = module.__spec__.origin if module.__spec__ else None
        if origin is None:
            raise ImportError(module.__name__)
        self.loaded.add(module.__name__)
        relative = Path(origin).relative_to(self.rules.parent).as_posix()
        # a folder without __init__.py has an empty one
        code = compile(self.contents.get(relative, b""), origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102 - the very bytes that the user trusted

    def forget(self) -> None:
        """Take this workspace's modules out of sys.modules."""
        for name in self.loaded:
            sys.modules.pop(name, None)


def _rule_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.glob("*.py")
        if path.stem.isidentifier()
        and not keyword.iskeyword(path.stem)
        and not path.stem.startswith("_")
        and path.stem not in NOT_RULES
    )


def builtin_module(name: str) -> ModuleType:
    """A module of the rules/ folder beside mxt that is no rule, such as what `mxt init` starts from."""
    return _guarded(f"rules.{name}", BUILTIN_RULES / name, f"rules/{name}")


def _guarded(module: str, path: Path, shown: str) -> ModuleType:
    """import_module, with whatever the file raises turned into a LoadError that names its line."""
    try:
        if module.startswith("rules."):
            _make_builtin_importable()
        return importlib.import_module(module)
    except MxtError:
        raise
    except SyntaxError as problem:
        column = f":{problem.offset}" if problem.offset else ""
        raise LoadError(
            f"not valid Python: {problem.msg}",
            where=f"{_short(problem.filename or str(path), path)}:{problem.lineno or 1}{column}",
            excerpt=f"    {(problem.text or '').rstrip()}" if problem.text else "",
        ) from None
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - anybody's code may raise anything
        frames = traceback.extract_tb(problem.__traceback__)
        inside = [f for f in frames if Path(f.filename).parent == path.parent]
        at = inside[-1] if inside else None
        where = f"{_short(at.filename, path)}:{at.lineno}" if at else shown
        hint = ""
        if isinstance(problem, ModuleNotFoundError):
            hint = "install the package into mxt's environment, or import it inside the function that runs"
        raise LoadError(
            f"cannot import rule file: {type(problem).__name__}: {problem}".rstrip(": "),
            where=where,
            excerpt=f"    {at.line}" if at and at.line else "",
            hint=hint,
        ) from None


def _make_builtin_importable() -> None:
    """`import rules.x` must find the folder beside mxt, wherever python was started."""
    parent = str(BUILTIN_RULES.parent)
    known = sys.modules.get("rules")
    if known is not None and str(BUILTIN_RULES) not in [
        str(Path(p).resolve()) for p in getattr(known, "__path__", [])
    ]:
        raise UsageError(
            f"another package called 'rules' hides mxt's: {getattr(known, '__file__', known)!s}",
            hint="start mxt through ./mxtw, or take that folder off PYTHONPATH",
        )
    if known is None:
        spec = importlib.util.spec_from_file_location(
            "rules", BUILTIN_RULES / "__init__.py", submodule_search_locations=[str(BUILTIN_RULES)]
        )
        if spec is None or spec.loader is None:
            raise UsageError(f"mxt's own rules are missing from {quoted(parent)}", hint="install mxt again")
        package = importlib.util.module_from_spec(spec)
        sys.modules["rules"] = package
        spec.loader.exec_module(package)


def _short(filename: str, path: Path) -> str:
    name = Path(filename)
    return f"rules/{name.name}" if name.parent == path.parent else filename
