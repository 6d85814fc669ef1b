"""The rules that the engine itself knows, and their attribute checks (10,000 are common: no pydantic)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxt.errors import LoadError, did_you_mean
from mxt.graph import genrule

COMMON: dict[str, type | tuple[type, ...]] = {"tags": list, "toolchain": str, "platform": str}

# name -> (attributes with their types, required ones)
CORE_RULES: dict[str, tuple[dict[str, type | tuple[type, ...]], tuple[str, ...]]] = {
    "genrule": (genrule.SCHEMA, genrule.REQUIRED),
    "filegroup": ({"srcs": list}, ("srcs",)),
    "bundle": ({"deps": list, "receipt": bool, "recipe": str}, ("deps",)),
    "toolchain": ({"lock": str, "image": str, "digest": str, "arch": str}, ()),
    "platform": (
        {
            "arch": str,
            "isa": str,
            "threads": int,
            "compute_units": int,
            "partition": str,
            "gpus": int,
            "world_size": int,
            "env": dict,
            "properties": dict,
        },
        ("arch",),
    ),
}

LABEL_LISTS = {"genrule": ("srcs", "tools"), "filegroup": ("srcs",), "bundle": ("deps",)}

# names and types of attributes that have been found to fit: thousands of targets have the same few
_FITTING: set[tuple[object, ...]] = set()
_WORDS = {str: "text", int: "a whole number", bool: "True or False", list: "a list", dict: "a dictionary"}


def check_attributes(rule: str, name: str, attrs: Mapping[str, Any], where: str) -> None:
    """Raises LoadError for an unknown, missing or wrongly typed attribute of a core rule."""
    shape = (rule, *((key, value.__class__) for key, value in attrs.items()))
    if shape in _FITTING and all(
        text.__class__ is str for value in attrs.values() if value.__class__ is list for text in value
    ):
        return
    schema, required = CORE_RULES[rule]
    for key, value in attrs.items():
        expected = schema.get(key) or COMMON.get(key)
        if expected is None:
            raise LoadError(
                f"{rule} '{name}' has no attribute '{key}'{did_you_mean(key, [*schema, *COMMON])}",
                where=where,
                hint=f"its attributes: {', '.join(['name', *schema, *COMMON])}",
            )
        check_type(rule, name, key, value, expected, where)
    for key, least in (("cpus", 1), ("memory_mb", 0), ("gpus", 0)):
        if attrs.get(key, least) < least:
            raise LoadError(
                f"attribute '{key}' of {rule} '{name}' must be at least {least}, not {attrs[key]}",
                where=where,
            )
    for key in required:
        if key not in attrs:
            raise LoadError(f"{rule} '{name}' lacks the attribute '{key}'", where=where)
    if not any(value.__class__ is int for value in attrs.values()):  # numbers have bounds, too
        _FITTING.add(shape)


def check_type(rule: str, name: str, key: str, value: Any, expected: Any, where: str) -> None:
    """Raises LoadError where value is not of the expected type; lists must hold text."""
    fits = isinstance(value, expected) and not (isinstance(value, bool) and expected is int)
    if not fits:
        raise LoadError(
            f"attribute '{key}' of {rule} '{name}' must be {_WORDS[expected]}, not {value!r:.60}",
            where=where,
        )
    if expected is list and not all(isinstance(v, str) for v in value):
        bad = next(v for v in value if not isinstance(v, str))
        raise LoadError(
            f"attribute '{key}' of {rule} '{name}' must be a list of text; it holds {bad!r:.60}", where=where
        )
