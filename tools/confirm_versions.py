"""Keeps rules/versions.lock: each built-in rule's VERSION beside the digest of the source it stands for.

A built-in rule is keyed by its VERSION, so that a comment or a faster loop retrains nothing; the price is
that somebody must say whether a change of source changes results. This file is where it is said:

    python tools/confirm_versions.py                          what is to be said, if anything
    python tools/confirm_versions.py --write                  after VERSION was raised: take it over
    python tools/confirm_versions.py --same-behaviour train   the source changed, its results did not

The digest covers the rule's module, every module of rules/ that it imports (anywhere in the file, and
what those import), and the files it declares as DATA; comments, docstrings and layout do not count.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = "versions.lock"
_HEAD = "# rule, VERSION, digest of its source; kept by tools/confirm_versions.py\n"


@dataclass(frozen=True)
class Rule:
    """version: its VERSION. digest: of its source. files: what the digest covers, relative to rules/."""

    name: str
    version: int
    digest: str
    files: tuple[str, ...]


def read_rules(folder: Path) -> dict[str, Rule]:
    """Every rule in a rules/ folder: the modules that define `actions`."""
    found = {}
    for path in sorted(folder.glob("[!_]*.py")):
        tree = ast.parse(path.read_bytes(), str(path))
        if not any(isinstance(node, ast.FunctionDef) and node.name == "actions" for node in tree.body):
            continue
        version = _constant(tree, "VERSION")
        if not isinstance(version, int):
            raise SystemExit(f"{path}: a built-in rule needs VERSION = <an integer>")
        files = _reach(folder, path)
        declared = _constant(tree, "DATA")
        data = [str(name) for name in declared] if isinstance(declared, (tuple, list)) else []
        parts = [f"{file.relative_to(folder)} {_source_digest(file)}\n" for file in sorted(files)]
        parts += [f"{name} {blake3((folder / name).read_bytes()).hexdigest()}\n" for name in sorted(data)]
        digest = blake3("".join(parts).encode()).hexdigest()
        names = (*(str(f.relative_to(folder)) for f in sorted(files)), *sorted(data))
        found[path.stem] = Rule(path.stem, version, digest, names)
    return found


def read_lock(path: Path) -> dict[str, tuple[int, str]]:
    """Rule -> (version, digest), as last confirmed; {} where there is no lock yet."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: (int(version), digest) for name, version, digest in rows}


def findings(rules: dict[str, Rule], lock: dict[str, tuple[int, str]]) -> dict[str, str]:
    """Rule -> what is to be done about it; empty where lock and sources agree."""
    said = {}
    for name in sorted(rules.keys() | lock.keys()):
        rule, locked = rules.get(name), lock.get(name)
        if rule is None:
            said[name] = "is gone: --write"
        elif locked is None:
            said[name] = "is new: --write"
        elif rule.version < locked[0]:
            said[name] = f"has VERSION {rule.version}, and {locked[0]} was used before: raise it beyond that"
        elif rule.version > locked[0]:
            said[name] = f"was raised to VERSION {rule.version}: --write"
        elif rule.digest != locked[1]:
            said[name] = (
                f"changed its source ({', '.join(rule.files)}) under VERSION {rule.version}: "
                f"raise VERSION if any output could differ, else --same-behaviour {name}"
            )
    return said


def main(argv: list[str] | None = None) -> int:
    """0 when the lock and the sources agree in the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--write", action="store_true", help="take over new, raised and removed rules")
    parser.add_argument("--same-behaviour", nargs="+", default=[], metavar="RULE", help="confirm these rules")
    args = parser.parse_args(argv)
    folder = REPOSITORY / "rules"
    rules, lock = read_rules(folder), read_lock(folder / LOCK)
    for name, text in findings(rules, lock).items():
        if name in args.same_behaviour or (args.write and text.endswith(": --write")):
            rule = rules.get(name)
            if rule is None:
                del lock[name]
            elif lock.get(name, (0, ""))[0] <= rule.version:
                lock[name] = (rule.version, rule.digest)
            print(f"confirmed {name}")
    lines = [f"{name} {version} {digest}\n" for name, (version, digest) in sorted(lock.items())]
    (folder / LOCK).write_text(_HEAD + "".join(lines))
    left = findings(rules, lock)
    for name, text in left.items():
        print(f"rules/{name}.py {text}")
    return 1 if left else 0


def _reach(folder: Path, start: Path) -> set[Path]:
    """start and every module below folder that it imports, and those import."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imported(ast.parse(path.read_bytes(), str(path))):
            waiting += _files_of(folder, name)
    return found


def _imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # a relative import inside rules/ starts there, too: rules/ has no packages that nest deeper
            module = ".".join(filter(None, ("rules" if node.level else "", node.module)))
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return {name for name in names if name.split(".")[0] == "rules"}


def _files_of(folder: Path, module: str) -> list[Path]:
    place = folder.joinpath(*module.split(".")[1:])
    return [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file() and place != folder]


def _source_digest(path: Path) -> str:
    tree = ast.parse(path.read_bytes(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                del node.body[0]
    return blake3(ast.dump(tree).encode()).hexdigest()


def _constant(tree: ast.Module, name: str) -> object:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == [name]:
            return ast.literal_eval(node.value)
    return None


if __name__ == "__main__":
    sys.exit(main())
