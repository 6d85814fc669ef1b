"""Which files of a rules/ folder a rule's module is made of: itself and what it imports from there."""

from __future__ import annotations

import ast
from collections.abc import Mapping


def rule_closure(name: str, contents: Mapping[str, bytes]) -> list[str]:
    """Paths ("rules/x.py") of the module `rules/<name>.py` and all that it imports from rules/, sorted.

    contents: the folder's Python files by path. Read statically: `import rules.x`, `from rules import x`,
    `from rules.x import f` and relative imports, wherever they stand; a package brings its __init__.
    """
    found: set[str] = set()
    waiting = [f"rules/{name}.py"]
    while waiting:
        path = waiting.pop()
        if path in found or path not in contents:
            continue
        found.add(path)
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        is_package = path.endswith("/__init__.py")
        for module in _imports(contents[path], parts if is_package else parts[:-1]):
            for depth in range(1, len(module) + 1):
                base = "/".join(module[:depth])
                waiting += [f"{base}.py", f"{base}/__init__.py"]
    return sorted(found)


def _imports(source: bytes, package: list[str]) -> list[list[str]]:
    """Dotted names, as lists, of all that a module may import from its rules/ folder."""
    names: list[list[str]] = []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return names
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
            else:
                base = []
            base = base + (node.module.split(".") if node.module else [])
            names += [[*base, alias.name] for alias in node.names]
    return [n for n in names if n and n[0] == "rules"]
