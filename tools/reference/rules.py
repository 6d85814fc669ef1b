"""docs/reference/rules.md: what an MXTBUILD may call, with the attributes of each."""

from __future__ import annotations

import inspect
import re
from typing import Any

from mxt.graph.core_rules import COMMON, CORE_RULES
from mxt.rule import ConfigMark, LabelMark
from reference.declared import RULES, rule_modules, stages
from reference.markdown import block, code, document, head, plain, sentence, table

INTRO = """
An `MXTBUILD` is Starlark, a small Python without loops at the top level, imports or files. Beside these
functions it has Starlark's own and `load("//pkg:file.mxt", "name")` for macros. How to write a rule of your
own: [write a rule](../write-a-rule.md).

Of every rule: `name` (the target), `tags` (`manual`: in no pattern), `toolchain` and `platform` (labels; what
the actions run in, and the device they are for).
"""
FUNCTIONS = (
    (
        'glob(include, exclude = [], allow_empty = False)',
        (
            "The files of the package that match: `*` within a name, `**` over folders. Links that leave the "
            "workspace, `cache/` and `mxt-out/` never match."
        ),
    ),
    (
        'config(path, schema, overrides = {})',
        (
            "A YAML file checked by `Schema` of `rules/<schema>.py`: fully defaulted, absent sections None. "
            'overrides: dotted field -> value, as in `{"train.lr": 1e-4}` (see [a sweep](../sweep.md)).'
        ),
    ),
    ('workspace(name)', "In the root package only: the workspace's name."),
    ('package_name()', "The package that is being loaded."),
    ('print(...)', "Text on stderr, for macros in the making."),
    ('fail(message)', "Ends loading with an error at this place."),
)  # fmt: skip
ABOUT = {
    "genrule": "A shell command with declared inputs and outputs, as in Bazel: `bash -euo pipefail -c`, in "
    "the execution root. `$(SRCS)`, `$(OUTS)`, `$@`, `$<`, `$(RULEDIR)` and `$(location x)` are replaced; "
    "`$$` is a dollar. An output that ends in `/` is a folder.",
    "filegroup": "A name for several files or targets.",
    "bundle": "Targets that are built together; with `receipt = True` a receipt is signed for them, and "
    "`report.html` drawn. `recipe` names the YAML file that the receipt states.",
    "toolchain": "What actions run in: `lock`, a committed lock of a Python environment "
    "(`mxt toolchain lock`), or `image` and `digest`, a container.",
    "platform": "The declared device: everything that may change a result. Keyed whole, and compared with "
    "the machine before an action runs.",
}
WORDS = {str: "text", int: "whole number", bool: "`True` · `False`", list: "list of text", dict: "dictionary"}


def page() -> str:
    lines = head("Rules, macros and functions", INTRO)
    lines += ["## Functions", ""]
    lines += table(("function", ""), [(code(name), text) for name, text in FUNCTIONS])
    lines += _macro()
    lines += ["## Rules of the engine", ""]
    for name, (schema, required) in CORE_RULES.items():
        lines += [f"### {name}", "", ABOUT[name], ""]
        lines += table(
            ("attribute", "value"),
            [
                (code(n), _words(kind) + ("; **required**" if n in required else ""))
                for n, kind in schema.items()
                if n not in COMMON
            ],
        )
    lines += ["## Stages of a recipe", ""]
    lines += [
        "Called by `finetune()`, and by you where you compose stages of your own. `config` is what config()",
        "returns. The recipe's fields that each reads are in [recipe](recipe.md).",
        "",
    ]
    order = stages()
    modules = rule_modules()
    for name in [*order, *sorted(set(modules) - set(order))]:
        lines += _rule(name, modules[name], order.get(name, []))
    return document(lines)


def _macro() -> list[str]:
    """finetune(), from its signature and its own words."""
    text = (RULES / "finetune.mxt").read_text("utf-8")
    match = re.search(r'^def (finetune\(.*?\)):\n    """(.*?)"""', text, re.MULTILINE | re.DOTALL)
    assert match is not None, "rules/finetune.mxt has no finetune() with a docstring"
    about, _, arguments = inspect.cleandoc(match[2]).partition("Args:\n")
    rows = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", arguments, re.MULTILINE)
    call = 'load("@mxt//rules:finetune.mxt", "finetune")\n\n' + match[1]
    return [
        "## finetune",
        "",
        *block(call, "python"),
        plain(sentence(about)),
        "",
        *table(("argument", ""), [(code(name), what) for name, what in rows]),
    ]


def _rule(name: str, module: Any, made: list[str]) -> list[str]:
    first, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    marks = [f"Stage {', '.join(code(s) for s in made)}"] if made else []
    marks += ["a test"] if getattr(module, "TEST", False) else []
    marks += ["an effect: `mxt run`"] if getattr(module, "EFFECT", False) else []
    lines = [f"### {name}", "", plain(sentence(first)), ""]
    if rest:
        lines += [plain(rest), ""]
    if marks:
        lines += [sentence("; ".join(marks)), ""]
    lines += table(
        ("attribute", "value"),
        [(code(n), _attribute(f)) for n, f in module.Attrs.model_fields.items()],
    )
    about = inspect.cleandoc(module.Attrs.__doc__ or "")
    if about and not about.startswith("Nothing"):
        lines += [*about.split("\n"), ""]
    return lines


def _attribute(field: Any) -> str:
    from mxt.graph.rule_definition import _marked

    if _marked(field, ConfigMark):
        kind = "the recipe"
    elif _marked(field, LabelMark):
        kind = "labels" if "tuple" in str(field.annotation) else "label"
    else:
        kind = _words(field.annotation)
    return kind + ("; **required**" if field.is_required() else "; optional")


def _words(kind: Any) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(
        WORDS.get(k, "names with text" if str(k).startswith("dict[str, str]") else str(k)) for k in kinds
    )
