"""Counts what the compiler does, so that a run can prove it compiled ahead of time or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxt.rule import StageError

if TYPE_CHECKING:
    import torch


def compile_layers(model: Any) -> list[Any]:
    """Compile each repeated layer in place, for fixed shapes; returns the layers.

    Layers share one compiled graph, so this costs what one layer costs; the rest of the model
    is a small part of a step and would compile for each micro-batch anew.
    """
    layers: list[Any] = repeated_layers(model)
    if not layers:
        raise StageError("plan asks for Inductor, and the model names no repeated layer to compile")
    for layer in layers:
        layer.compile(fullgraph=True, dynamic=False)
    return layers


def repeated_layers(model: Any) -> list[torch.nn.Module]:
    """The modules that a model's class says belong together: its decoder layers."""
    names = {n for m in model.modules() for n in (getattr(m, "_no_split_modules", None) or ())}
    return [m for m in model.modules() if type(m).__name__ in names]


def compiled_graphs() -> int:
    """Graphs that Dynamo has handed to a compiler in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


class CompileWatch:
    """Graphs compiled until warm-up ended, and after it."""

    def __init__(self, expected: bool) -> None:
        self.expected = expected
        self.warm: int | None = None

    @property
    def after_warm_up(self) -> int:
        return 0 if self.warm is None else compiled_graphs() - self.warm

    def step_done(self, step: int) -> None:
        """Look after a step. Raises StageError when the plan is not what runs."""
        if self.warm is None:
            self.warm = compiled_graphs()
            if self.expected and not self.warm:
                raise StageError("plan asks for Inductor, and nothing was compiled in the first step")
            if not self.expected and self.warm:
                raise StageError(
                    f"plan asks for no compiler, and {self.warm} graphs were compiled in the first step"
                )
        elif self.after_warm_up:
            raise StageError(
                f"{self.after_warm_up} graphs were compiled at step {step}, after warm-up",
                hint="shapes must not change in a run; if this model's do, offer compile: [none] in autotune",
            )
