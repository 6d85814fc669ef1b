"""The genrule: a shell command with declared inputs and outputs, as in Bazel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mxt.action.action import Action, ActionId, Input, OutputRef
from mxt.errors import GraphError, did_you_mean
from mxt.graph.target import Handle, ascii_name, check_apart, declare_output

VERSION = 1
ENTRY = "genrule"
SCHEMA: dict[str, type | tuple[type, ...]] = {
    "srcs": list,
    "outs": list,
    "cmd": str,
    "tools": list,
    "executable": bool,
    "cpus": int,
    "memory_mb": int,
    "gpus": int,
}
REQUIRED = ("outs", "cmd")

_VARIABLE = re.compile(r"\$(\$|\(([^()]*)\)|[@<]|[A-Za-z_]\w*|.|$)", re.DOTALL)


def genrule_action(
    label: str,
    package: str,
    name: str,
    attrs: Mapping[str, Any],
    where: str,
    resolve: Callable[[str], Sequence[Handle]],
    canonical: Callable[[str], str],
    defaults: Mapping[str, Any],
) -> Action:
    """The one action of a genrule. resolve: label -> what it stands for. canonical: label in full.

    Sources lie at their workspace path below the execution root, generated inputs and the
    outputs at mxt-out/<package>/<target>/<file>, which is also what $(RULEDIR) names.
    """
    ruledir = place_of(package, name)
    outputs = tuple(declare_output(ascii_name(o.rstrip("/")), o, where) for o in attrs["outs"])
    if not outputs:
        raise GraphError(f"genrule '{name}' declares no outs", where=where)
    check_apart(outputs, f"genrule '{name}'", where)
    paths: dict[str, list[str]] = {}
    inputs: dict[str, Input] = {}
    for given in [*attrs.get("srcs", ()), *attrs.get("tools", ())]:
        if given in paths:
            continue
        places = paths[given] = []
        for handle in resolve(given):
            place = exec_path(handle)
            places.append(place)
            inputs[place] = Input(ascii_name(place), place, handle.ref)
    srcs = list(dict.fromkeys(p for given in attrs.get("srcs", ()) for p in paths[given]))
    outs = [f"{ruledir}/{o.path}" for o in outputs]
    for output in outputs:
        for spelling in (output.path, f"{output.path}/") if output.kind == "dir" else (output.path,):
            paths.setdefault(spelling, [f"{ruledir}/{output.path}"])

    def locate(given: str) -> Sequence[str] | None:
        """Paths of a source, tool or output, however its label is written."""
        if given in paths:
            return paths[given]
        full = canonical(given)
        return next((found for other, found in paths.items() if canonical(other.rstrip("/")) == full), None)

    return Action(
        id=ActionId(label),
        mnemonic="Genrule",
        entry=ENTRY,
        implementation={"version": VERSION},
        inputs=tuple(inputs.values()),
        outputs=outputs,
        outputs_at=ruledir,
        params={
            "cmd": expand(attrs["cmd"], srcs, outs, ruledir, list(paths), locate, where),
            **({"executable": True} if attrs.get("executable") else {}),
        },
        cpus=attrs.get("cpus", 1),
        memory_mb=attrs.get("memory_mb", 0),
        gpus=attrs.get("gpus", 0),
        **defaults,
    )


def place_of(package: str, name: str) -> str:
    return f"mxt-out/{package}/{name}" if package else f"mxt-out/{name}"


def exec_path(handle: Handle) -> str:
    """Where a genrule sees an input, relative to its execution root."""
    if not isinstance(handle.ref, OutputRef):
        return handle.ref.path
    package, _, name = handle.ref.action.label.rpartition(":")
    place = place_of(
        package.removeprefix("//").partition("//")[2] if package.startswith("@") else package[2:], name
    )
    step = handle.ref.action.name
    return f"{place}/{step}/{handle.path}" if step else f"{place}/{handle.path}"


def expand(
    cmd: str,
    srcs: Sequence[str],
    outs: Sequence[str],
    ruledir: str,
    known: Sequence[str],
    paths_of: Callable[[str], Sequence[str] | None],
    where: str,
) -> str:
    """Bazel's "Make" variables: $@ $< $(SRCS) $(OUTS) $(RULEDIR) $(@D) $(location x) $(locations x) $$."""

    def fail(message: str, hint: str) -> GraphError:
        return GraphError(f"cmd: {message}", where=where, hint=hint)

    def replace(match: re.Match[str]) -> str:
        sign, inner = match.group(1), match.group(2)
        if sign == "$":
            return "$"
        if sign == "@":
            if len(outs) != 1:
                raise fail(f"$@ needs exactly one output, there are {len(outs)}", "use $(OUTS) or $(RULEDIR)")
            return outs[0]
        if sign == "<":
            if len(srcs) != 1:
                raise fail(f"$< needs exactly one source, there are {len(srcs)}", "use $(SRCS)")
            return srcs[0]
        if inner is None:
            raise fail(
                f"'${sign}' is not a variable of a genrule", "write '$$' for a '$' meant for the shell"
            )
        if inner in ("SRCS", "OUTS"):
            return " ".join(srcs if inner == "SRCS" else outs)
        if inner == "RULEDIR":
            return ruledir
        if inner == "@D":
            return outs[0].rpartition("/")[0] if len(outs) == 1 else ruledir
        verb, _, given = inner.partition(" ")
        if verb in ("location", "locations", "execpath", "execpaths"):
            return locate(verb, given.strip())
        variables = ["SRCS", "OUTS", "RULEDIR", "@D", "location", "locations"]
        raise fail(
            f"$({inner}) is not a variable of a genrule{did_you_mean(verb, variables)}",
            "write '$$(...)' for a command substitution of the shell",
        )

    def locate(verb: str, given: str) -> str:
        found = paths_of(given)
        if found is None:
            raise fail(
                f"$({verb} {given}) names neither a source nor an output{did_you_mean(given, known)}",
                "add it to srcs or tools",
            )
        if not verb.endswith("s") and len(found) != 1:
            raise fail(f"$({verb} {given}) stands for {len(found)} files", f"use $({verb}s {given})")
        return " ".join(found)

    return _VARIABLE.sub(replace, cmd)
