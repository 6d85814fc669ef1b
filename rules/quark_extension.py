"""Compiles the C++ extension that AMD Quark loads, once for a toolchain, so that no quantizing waits for it.

What is compiled only saves time and lies among the accelerants, as a compiler's output is not
reproducible; the output says for which libraries it is.
"""

from __future__ import annotations

from mxt.rule import Attributes, Resources, Run, Target, not_yet

VERSION = 1


class Attrs(Attributes):
    """gpus: how many the platform has. env: the variables of its runs, as compilers read some of them."""

    gpus: int = 0
    env: dict[str, str] | None = None


def actions(target: Target) -> None:
    target.action(
        run=build,
        mnemonic="QuarkExtension",
        outputs={"stamp": "stamp.json"},
        resources=Resources(cpus=1, memory_mb=2048, gpus=target.attrs.gpus),
        accelerants=True,
        environment=target.attrs.env or {},
        refuse=not_yet("quantizing on a GPU") if target.attrs.gpus else None,
    )


def build(run: Run) -> None:
    """stamp.json: versions of amd-quark and torch. evidence: compiler.json."""
    from rules._runtime import prepare, versions

    prepare(run)
    import json

    from rules import _quark

    run.report(note="compiling Quark's extension")
    _quark.import_quark()
    (run.evidence / "compiler.json").write_text(json.dumps(_quark.compiler(), indent=2) + "\n")
    stamp = versions("amd-quark", "torch")
    run.outputs["stamp"].write_text(json.dumps(stamp, sort_keys=True, separators=(",", ":")) + "\n")
