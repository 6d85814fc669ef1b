"""How long tokens take: operations a token, over a device's peak and the part of it that is used.

That part (MFU) was measured on one H200 and one H100 with TRL's trainer and random weights
(benchmarks/gpu/memory.py); the ranges below span the H200's. For other devices they are scaled, by guesses
that say so.
"""

from __future__ import annotations

from typing import NamedTuple

from mxt.estimates import Range
from rules._devices import DEVICES
from rules._estimate.sizes import multiplied
from rules._known_models import Shape

LARGE = 3e9  # weights from which a model counts as large here

# (method, large, compiled): MFU without recomputation, and with all of it; None where it does not run
MFU: dict[tuple[str, bool, bool], tuple[Range, Range] | None] = {
    ("lora", True, False): (Range(0.14, 0.28), Range(0.15, 0.19)),
    ("lora", True, True): (Range(0.28, 0.43), Range(0.17, 0.25)),
    ("lora", False, False): (Range(0.07, 0.15), Range(0.05, 0.12)),
    ("lora", False, True): (Range(0.1, 0.25), Range(0.07, 0.19)),
    ("full", True, False): (Range(0.29, 0.35), Range(0.26, 0.3)),
    ("full", True, True): (Range(0.35, 0.43), Range(0.27, 0.37)),
    ("full", False, False): (Range(0.15, 0.28), Range(0.13, 0.23)),
    ("full", False, True): (Range(0.2, 0.4), Range(0.15, 0.3)),
    ("experts", True, False): (Range(0.08, 0.11), Range(0.06, 0.08)),
    ("experts", True, True): None,
    ("experts", False, False): (Range(0.02, 0.11), Range(0.02, 0.08)),
    ("experts", False, True): None,
}
# of these, the ranges that no run stands behind
GUESSED = {
    ("lora", False, True, "none"),
    ("lora", False, False, "all"),
    ("lora", False, True, "all"),
    ("full", True, True, "all"),
    ("full", False, True, "all"),
    ("experts", False, False, "none"),
    ("experts", False, False, "all"),
}
FASTEST = Range(0.5, 0.585)  # LoRA on Qwen3-8B by benchmarks/gpu/lora_step.py, which no stage runs yet

# Of the H200's MFU, on other chips, each of its own peak. The H100's was measured; the others are guesses: an
# A100's peak is low beside its memory's speed, AMD's peaks are high beside theirs.
SCALE = {"h200": Range(1, 1), "h100": Range(0.87, 0.99), "a100": Range(0.9, 1.5)}
MEASURED = ("h200", "h100")
OTHERS = Range(0.6, 1.1)
SEVERAL = Range(0.7, 1.0)  # what GPUs that wait for each other leave of it: not measured

# A CPU's operations a second and thread in fp32 with AVX2: the tiny recipes' runs on several busy and idle
# machines, and for larger matrices what such a core can do at all
CPU_TRAINER = Range(4e9, 30e9)
CPU_LOOP = Range(15e9, 70e9)
CPU_LARGE = Range(15e9, 90e9)


class Work(NamedTuple):
    """Operations a token. plain: of matrix products. attention: of looking back, by documents' lengths."""

    plain: float
    attention: Range

    @property
    def total(self) -> Range:
        return Range(self.plain + self.attention.low, self.plain + self.attention.high)


def passes(adapters: bool, forwards: int = 0) -> int:
    """Operations a weight and token: 2 forward, 2 for the gradient of what came in, 2 for the weight's own,
    which adapters save. forwards: further passes without gradients, such as a reference model's.
    """
    return (4 if adapters else 6) + 2 * forwards


def work(shape: Shape, adapters: bool, documents: Range, forwards: int = 0) -> Work:
    """documents: tokens that a token may look back over, at most."""
    layers = shape.layers - shape.linear_layers
    once = 4 * shape.heads * shape.head_dim * layers / 2  # causal: half of the length on average
    # the backward pass of attention is twice its forward pass, whatever is trained
    look_back = documents.times(once * (3 + forwards))
    return Work(passes(adapters, forwards) * multiplied(shape), look_back)


def mfu(method: str, large: bool, compiled: bool, recompute: str) -> Range | None:
    """Between recomputing nothing and all where only a part is."""
    found = MFU[method, large, compiled]
    if found is None:
        return None
    none, everything = found
    if recompute in ("none", "all"):
        return none if recompute == "none" else everything
    return Range(min(none.low, everything.low), max(none.high, everything.high))


def rates(device: str, gpus: int, part: Range) -> tuple[Range, ...]:
    """Operations a second of all GPUs together, in independent factors."""
    peak = Range.exactly(DEVICES[device].bf16_tflops * 1e12 * gpus)
    return peak, part, SCALE.get(device, OTHERS), SEVERAL if gpus > 1 else Range(1, 1)


def cpu_rate(shape: Shape, threads: int, *, trainer: bool) -> Range:
    """Operations a second of a CPU."""
    small = CPU_TRAINER if trainer else CPU_LOOP
    return (small if shape.hidden < 512 else CPU_LARGE).times(threads)


def provenance(device: str, gpus: int) -> str:
    """Where the figures for a device come from, in a sentence."""
    if device in MEASURED:
        said = f"MFU as measured on one {device.upper()} with random weights"
    elif device in SCALE:
        said = f"MFU measured on one H200 and scaled by a guess; never measured on an {device.upper()}"
    else:
        said = (
            f"MFU measured on one H200, taken as {OTHERS.low:g} to {OTHERS.high:g} of that here; "
            f"nothing was ever measured on the {device}"
        )
    return said + (f", nor on {gpus} GPUs" if gpus > 1 else "")
