"""What the built-in rules declare, and which stages of a recipe they make."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

RULES = Path(__file__).resolve().parents[2] / "rules"


@dataclass(frozen=True)
class Declared:
    """Dotted recipe field -> the stages that declare it, in the order of a run."""

    keyed: dict[str, list[str]] = field(default_factory=dict)
    unkeyed: dict[str, list[str]] = field(default_factory=dict)


def rule_modules() -> dict[str, ModuleType]:
    """Every built-in rule, by name."""
    return {
        path.stem: import_module(f"rules.{path.stem}")
        for path in sorted(RULES.glob("[!_]*.py"))
        if any(
            isinstance(n, ast.FunctionDef) and n.name == "actions" for n in ast.parse(path.read_bytes()).body
        )
    }


def stages() -> dict[str, list[str]]:
    """Rule -> the stages that finetune() makes with it, both in the order of the macro's file."""
    found: dict[str, list[str]] = {}
    text = (RULES / "finetune.mxt").read_text("utf-8")
    for rule, stage in re.findall(r'(\w+)\(\s*name = name \+ "(\.\w+)"', text):
        found.setdefault(rule, [])
        if stage not in found[rule]:
            found[rule].append(stage)
    return found


def declared() -> Declared:
    result = Declared()
    modules = rule_modules()
    for rule, names in stages().items():
        for fields, into in (("KEYED", result.keyed), ("UNKEYED", result.unkeyed)):
            for name in getattr(modules[rule], fields, ()):
                into.setdefault(name, []).extend(f"`{stage}`" for stage in names)
    return result
