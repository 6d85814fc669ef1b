"""Peak GPU memory of a training step of TRL's trainer, in bytes, as docs/estimate.md writes it down.

What a forward pass keeps for the backward one is counted tensor by tensor for one layer and one token. Two
things depend on the attention that runs and make the range: whether keys and values are repeated for each
query head, and whether the mask of packed documents is kept as a matrix. Held against 43 measured
runs in tests/rules/test_estimate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mxt.estimates import Range
from rules._estimate.sizes import adapter, embedding, linear_widths, weights
from rules._known_models import Shape

GIB = 2**30
FP32 = 4
MARGIN = Range(0.94, 1.05)  # of the activations, where the shape is of a kind that was measured
IN_PART = Range(0.87, 1.15)  # of what a part of them takes that no run has kept apart
UNMEASURED = Range(0.8, 1.25)  # of everything that only the formula says
PARTLY = "a part recomputed"
# what the driver, the libraries and the allocator's gaps take beside the tensors
OVERHEAD = Range(0.0, 1.5 * GIB)
GAPS = 1.06


class Step(NamedTuple):
    """What a training step is made of. rank 0: all weights are trained. base: the frozen weights, "nf4" for
    4 bits. width: bytes of train.dtype. sequences: rows of `length` that one micro-batch row stands for (a
    preference is two). references: copies of the weights beside the trained ones. shards: GPUs over which
    weights, gradients and optimizer are spread. accumulates: an optimizer step takes several micro-batches.
    """

    shape: Shape
    width: int
    rank: int
    targets: Sequence[str]
    length: int
    micro_batch: int
    compiled: bool
    recompute: str
    base: str = "full"
    sequences: int = 1
    references: int = 0
    shards: int = 1
    accumulates: bool = True


class Memory(NamedTuple):
    """The parts of one GPU's peak, in bytes."""

    weights: Range
    gradients: Range
    optimizer: Range
    activations: Range

    @property
    def total(self) -> Range:
        parts = [sum(p[i] for p in self) for i in (0, 1)]
        return Range(parts[0] + OVERHEAD.low, parts[1] * GAPS + OVERHEAD.high)


def memory(step: Step) -> Memory:
    """The peak by parts; wider where nothing like it was measured."""
    shape = step.shape
    everything = weights(shape)
    if step.rank:
        trained, kept = adapter(shape, step.rank, step.targets), FP32
        held = _frozen(step) + trained * FP32
    else:
        trained, kept = everything, step.width
        held = everything * step.width
    held += step.references * everything * step.width
    gathered = 0
    if step.shards > 1:  # two layers at a time are whole: the one at work and the one that is fetched
        gathered = 2 * (everything - 2 * embedding(shape)) // shape.layers * step.width
        gathered += embedding(shape) * step.width
    tokens = step.length * step.micro_batch * step.sequences
    low, high = (tokens * _a_token(step, most) for most in (False, True))
    if not step.rank:  # while all of that is alive, the head's gradient is made beside the one that adds up
        low += embedding(shape) * step.width
        high += 3.5 * embedding(shape) * step.width
    margin = MARGIN
    if why := unmeasured(step):
        margin = IN_PART if why == [PARTLY] else UNMEASURED
    lows, highs = low * margin.low, high * margin.high
    gradients = trained * kept / step.shards
    # the first micro-batch of a step makes its gradients as its activations go
    early = gradients if step.accumulates else 0.0
    temporary = gradients - early + gradients  # at the step itself AdamW holds as many square roots
    return Memory(
        Range.exactly(held / step.shards + gathered),
        Range.exactly(early),
        Range.exactly(2 * gradients),
        Range(max(lows, temporary), max(highs, temporary)),
    )


def unmeasured(step: Step) -> list[str]:
    """What of a step no measured run had; empty where some run was like it."""
    shape = step.shape
    missing = {
        "layers with linear attention": shape.linear_layers > 0,
        "pictures, which are not counted": shape.vision_weights > 0 and not shape.linear_layers,
        "adapters on experts": shape.experts is not None
        and not {"gate_up_proj", "down_proj"}.isdisjoint(step.targets),
        "4-bit weights": step.base != "full",
        "weights spread over GPUs": step.shards > 1,
        "preferences": step.sequences > 1 or step.references > 0,
        PARTLY: step.recompute in ("elementwise", "selective"),
    }
    return [name for name, there in missing.items() if there]


def _frozen(step: Step) -> int:
    """Bytes of the base that adapters stand on."""
    everything = weights(step.shape)
    if step.base == "full":
        return everything * step.width
    apart = embedding(step.shape) * (1 if step.shape.tied else 2)
    # 4 bits and an 8-bit scale for each 64, whose own scales are negligible; one matrix at a time is unpacked
    largest = step.shape.hidden * (step.shape.intermediate or step.shape.hidden)
    return int((everything - apart) * (0.5 + 1 / 64)) + (apart + largest) * step.width


def _a_token(step: Step, most: bool) -> float:
    """Bytes that one token takes at the peak; most: with the attention that keeps more."""
    shape = step.shape
    layer = _layer(step, most)
    # behind the last layer: gradients on their way, the final norm, the head's input; small things a layer
    beside = 6 * shape.hidden + 6 * _wide(shape) + 640 * shape.layers
    match step.recompute:
        case "none":
            return shape.layers * layer + beside
        case "elementwise":  # what a matrix product or attention made
            return shape.layers * _products(step, most) + layer + beside
        case "selective":  # attention's part of those
            return shape.layers * _attention(step, most) + layer + beside
        case _:  # each layer's input
            return shape.layers * step.width * shape.hidden + layer + beside


def _wide(shape: Shape) -> int:
    if shape.experts is None:
        return shape.intermediate or 0
    per_token = (shape.per_token or 0) * (shape.expert_intermediate or 0)
    return per_token + (shape.shared_intermediate or 0)


def _attention(step: Step, most: bool) -> float:
    """A layer's input, what goes into attention, what comes out; averaged over the two kinds of layers."""
    shape, b = step.shape, step.width
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    repeated = queries if most else keys
    mask = b * step.length if most else 0
    whole = b * (2 * queries + 2 * repeated) + mask
    if not shape.linear_layers:
        return b * shape.hidden + whole
    k, v = linear_widths(shape)
    linear = b * (2 * k + 3 * v) * (2 if most else 1)
    share = shape.linear_layers / shape.layers
    return b * shape.hidden + (1 - share) * (whole + (b * queries if shape.gated else 0)) + share * linear


def _products(step: Step, most: bool) -> float:
    shape, b = step.shape, step.width
    keys = shape.kv_heads * shape.head_dim
    return _attention(step, most) + b * (
        shape.hidden + shape.heads * shape.head_dim + 2 * keys + 2 * _wide(shape)
    )


def _layer(step: Step, most: bool) -> float:
    """What one layer keeps of a token for its backward pass."""
    shape, b = step.shape, step.width
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    wide = _wide(shape)
    full = not step.rank
    copied = (
        FP32 if b == 2 else 0
    )  # norms compute in fp32, and PEFT's adapters take fp32 copies of their inputs
    targets = set(step.targets)
    groups: tuple[tuple[set[str], int], ...] = (
        ({"q_proj", "k_proj", "v_proj"}, hidden),
        ({"o_proj"}, queries),
    )
    if shape.experts is None or shape.shared_intermediate:
        groups += (({"gate_proj", "up_proj"}, hidden), ({"down_proj"}, wide))
    total = _attention(step, most)  # holds the layer's input once
    if step.compiled:  # what is elementwise is computed again: inputs of products and the residual stay
        total += b * hidden + b * (queries + 2 * keys) + b * 2 * wide
        if full:
            total += 2 * b * hidden + b * wide
        else:
            total += sum(size * max(copied, b) for names, size in groups if names & targets)
    else:
        total += (2 * hidden + queries + keys) * max(copied, b) - b * hidden + b * 3 * wide
        if full:
            total += b * (4 * hidden + queries + keys + wide)
        elif copied:  # one copy for each adapter
            total += sum(size * copied * len(names & targets) for names, size in groups)
        else:
            total += sum(size * b for names, size in groups if names & targets)
    if shape.experts is not None:  # the router's scores, and each chosen expert's output before it is weighed
        total += 2 * FP32 * shape.experts + b * hidden * (shape.per_token or 0)
        if full or (most and step.compiled):
            total += b * hidden * (shape.per_token or 0)
    return total
