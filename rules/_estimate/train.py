"""Training: memory of the plan's candidates, steps, hours, money; by the formulas in docs/estimate.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from mxt.estimates import Asked, Cell, Estimate, Figure, Grid, Range
from rules._devices import DEVICES, family_of
from rules._estimate.memory import GIB, Step, memory, unmeasured
from rules._estimate.money import cost
from rules._estimate.pack import FILL
from rules._estimate.sizes import BYTES, adapter, shape_of, weights
from rules._estimate.speed import (
    FASTEST,
    GUESSED,
    LARGE,
    MEASURED,
    cpu_rate,
    mfu,
    passes,
    provenance,
    rates,
    work,
)
from rules._estimate.together import inverse, product
from rules._known_models import Shape

FITS = 0.97  # of a GPU's memory that a run can have: the driver keeps the rest
GENERATES = ("grpo", "gspo", "rlhf")
PAIRS = ("dpo", "orpo")  # two sequences a row
# passes beside training: of a reference model, and kto's of both over answers to other prompts
FORWARDS = {"dpo": 1, "kto": 3}
LOADING = Range(10, 300)  # libraries, weights, compiling
CPU_LOADING = Range(2, 40)
CPU_PASS = Range(0.004, 0.06)  # seconds


class Subject(NamedTuple):
    """What is trained: the recipe's sections, the model's sizes, the device."""

    recipe: Mapping[str, Any]
    shape: Shape
    device: str
    gpus: int

    @property
    def train(self) -> Mapping[str, Any]:
        return self.recipe["train"]  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        if self.shape.experts is not None:
            return "experts"
        return "lora" if self.train["lora"] else "full"

    @property
    def large(self) -> bool:
        return weights(self.shape) >= LARGE


def estimate(asked: Asked) -> Estimate:
    recipe = asked.recipe
    shape = shape_of(recipe["model"], asked.package)
    if shape is None:
        why = "memory and time: the model's sizes are not known before it is here"
        return Estimate(unknown=[why], decides=True)
    hardware = recipe["hardware"]
    device = family_of(hardware["platform"]) or "cpu"
    subject = Subject(recipe, shape, device, max(1, hardware["gpus"]))
    figures = _sizes(subject)
    grids, notes, unknown = [], [], []
    if device != "cpu":
        grid, note = _memory(subject)
        if grid is None:
            unknown.append(note)
        else:
            grids.append(grid)
            notes += [note] if note else []
    figures.append(Figure("a checkpoint", _checkpoint(subject), "bytes", "two are kept while it runs"))
    data = asked.of(asked.attrs.data)
    method = recipe["train"]["method"]
    if method in GENERATES:
        unknown.append(
            f"tokens, hours, cost: with {method} most time goes into answers that the model writes"
        )
        return Estimate(figures, grids, notes, unknown, decides=True)
    if data is None or "tokens" not in data.facts:
        unknown.append("tokens, hours, cost: the data's tokens are not known, see .pack")
        return Estimate(figures, grids, notes, unknown, decides=True)
    tokens, steps = _amount(recipe, data)
    figures += [Figure("optimizer steps", steps), Figure("tokens trained on", tokens)]
    return _timed(asked, subject, data, (tokens, steps), Estimate(figures, grids, notes, unknown))


def _timed(
    asked: Asked, subject: Subject, data: Estimate, amount: tuple[Range, Range], known: Estimate
) -> Estimate:
    """What is known, and hours and money on top. amount: tokens and optimizer steps."""
    tokens, steps = amount
    train, hardware = subject.train, subject.recipe["hardware"]
    forwards = FORWARDS.get(train["method"], 0)
    longest = subject.recipe["data"]["pack"]["max_length"]
    mean = data.facts["tokens"].low / max(data.facts["documents"].low, 1)
    if train["method"] in PAIRS:
        mean /= 2
    documents = Range(min(mean, longest), longest)
    a_token = work(subject.shape, train["lora"] is not None, documents, forwards)
    counted = Figure("operations a token", a_token.total, "FLOP", _formula(train))
    figures, notes = [*known.figures, counted], list(known.notes)
    # sequences are not quite full, and whatever fills them is computed, too
    spare = Range(1.0, 1.18) if data.facts["packed"] else Range(1.0, 2.0)
    if not data.facts["packed"]:
        notes.append("rows that are not packed are padded: up to twice the tokens are computed")
    operations = product(a_token.total, tokens, spare)
    if subject.device == "cpu":
        speed = cpu_rate(subject.shape, asked.platform.get("threads", 1), trainer=True)
        took = product(operations, inverse(speed)).plus(_overhead(subject, steps))
        each = f"{speed.low / 1e9:.0f} to {speed.high / 1e9:.0f} GFLOP/s, as seen with tiny models"
        figures.append(Figure("steps take", took, "s", each))
        seconds = took.plus(CPU_LOADING)
        return Estimate(figures, known.grids, notes, known.unknown, seconds, cost(hardware, seconds))
    grid, best = _ways(subject, operations, a_token.total)
    notes.append(provenance(subject.device, subject.gpus))
    if train["method"] not in ("sft", "cpt"):
        notes.append(f"speed of {train['method']} was never measured: that of sft is taken, pass by pass")
    if subject.shape.linear_layers:
        notes.append(
            "layers with linear attention: their speed was never measured, and counts as the others'"
        )
    if subject.kind == "experts" and "inductor" in subject.recipe["autotune"]["compile"]:
        notes.append("compiling a mixture of experts failed where it was tried (torch 2.11): no time for it")
    if best is None:
        why = "hours, cost: no candidate of the plan fits the GPU and is known to run"
        return Estimate(figures, known.grids, notes, [*known.unknown, why], decides=True)
    figures.append(Figure("steps take", best, "s", "by the candidate that should be fastest"))
    seconds = best.plus(LOADING)
    return Estimate(figures, [*known.grids, grid], notes, known.unknown, seconds, cost(hardware, seconds))


def _overhead(subject: Subject, steps: Range) -> Range:
    """What each forward and backward pass takes on a CPU however small the model is."""
    sizes = subject.recipe["autotune"]["micro_batch"]
    sequences = steps.times(subject.train["batch_size"])
    return product(Range(sequences.low / max(sizes), sequences.high / min(sizes)), CPU_PASS)


def _ways(subject: Subject, operations: Range, a_token: Range) -> tuple[Grid, Range | None]:
    """Time by each candidate that some micro-batch lets fit; and that of the fastest."""
    autotune, hardware = subject.recipe["autotune"], subject.recipe["hardware"]
    found: dict[str, tuple[Range, bool]] = {}
    for compiler in autotune["compile"]:
        compiled = compiler != "none"
        for recompute in autotune["recompute"]:
            part = mfu(subject.kind, subject.large, compiled, recompute)
            steps = [_step(subject, m, compiled, recompute) for m in autotune["micro_batch"]]
            if part is None or not any(memory(s).total.low <= room(subject.device) for s in steps):
                continue
            partly = recompute in ("elementwise", "selective")
            guess = partly or (subject.kind, subject.large, compiled, recompute) in GUESSED
            found[f"{compiler} / {'a part' if partly else recompute}"] = part, guess
    best = max((part for part, _ in found.values()), key=lambda p: p.low + p.high, default=None)
    if subject.kind == "lora" and subject.large and subject.gpus == 1:
        found["fastest step known, in no stage"] = FASTEST, False
    rows = []
    for name, (part, guess) in found.items():
        speeds = rates(subject.device, subject.gpus, part)
        took = product(operations, *map(inverse, speeds))
        cells = [Cell(part.times(100), "%", "guess" if guess else "")]
        cells += [Cell(product(inverse(a_token), *speeds)), Cell(took.over(3600))]
        price = cost(hardware, took)
        rows.append((name, [*cells, *([Cell(price)] if price else [])]))
    columns = ["compiled / recomputed", "MFU on H200", "tokens/s", "hours"]
    if hardware["price_per_hour"] is not None:
        columns.append("USD")
    if best is None:
        return Grid("time of the steps", columns, rows), None
    return Grid("time of the steps", columns, rows), product(
        operations, *map(inverse, rates(subject.device, subject.gpus, best))
    )


def room(name: str) -> float:
    """Bytes of one GPU that a run can have. The H200's 141 are powers of ten, the others' are GiB."""
    return DEVICES[name].memory_gib * (1e9 if name == "h200" else GIB) * FITS


def _step(subject: Subject, micro_batch: int, compiled: bool, recompute: str) -> Step:
    train = subject.train
    lora = train["lora"]
    method = train["method"]
    share = train["batch_size"] // subject.gpus
    return Step(
        shape=subject.shape,
        width=BYTES[train["dtype"]],
        rank=lora["r"] if lora else 0,
        targets=lora["targets"] if lora else (),
        length=subject.recipe["data"]["pack"]["max_length"],
        micro_batch=micro_batch,
        compiled=compiled,
        recompute=recompute,
        base=lora["base"] if lora else "full",
        sequences=2 if method in PAIRS else 1,
        references=1 if method in ("dpo", "kto") and not lora else 0,
        shards=subject.gpus if train["parallel"] == "fsdp" else 1,
        accumulates=share > micro_batch,
    )


def _memory(subject: Subject) -> tuple[Grid | None, str]:
    """A row a candidate, a column a micro-batch; and what to say of it, or why there is none."""
    method = subject.train["method"]
    if method in GENERATES:
        return None, f"GPU memory: {method} keeps the answers' caches and a reference beside what is trained"
    autotune = subject.recipe["autotune"]
    most = room(subject.device)
    rows, reasons = [], []
    parts = None
    for compiler in autotune["compile"]:
        for recompute in autotune["recompute"]:
            cells = []
            for size in autotune["micro_batch"]:
                step = _step(subject, size, compiler != "none", recompute)
                found = memory(step)
                parts = parts or found
                reasons += unmeasured(step)
                total = found.total
                mark = "fits" if total.high <= most else "tight" if total.low <= most else "no"
                cells.append(Cell(total.times(1 / GIB), "", mark))
            rows.append((f"{compiler} / {recompute}", cells))
    assert parts is not None
    held = ", ".join(
        f"{name} {_gib(part)}"
        for name, part in zip(("weights", "gradients", "optimizer"), parts[:3], strict=True)
    )
    why = list(dict.fromkeys(reasons))
    note = "" if subject.device in MEASURED else "GPU memory was measured on NVIDIA's H200 and H100 only"
    if why:
        without = f"never with {' or '.join(why)}"
        note = f"{note}, and {without}" if note else f"GPU memory was measured, though {without}"
    title = f"GiB of the {most / GIB:.0f} that a GPU has to give"
    return (
        Grid(
            title,
            ["compiled / recomputed", *(f"micro-batch {m}" for m in autotune["micro_batch"])],
            rows,
            f"of that {held} GiB, the rest activations",
        ),
        note,
    )


def _gib(part: Range) -> str:
    return f"{part.high / GIB:.1f}"


def _sizes(subject: Subject) -> list[Figure]:
    lora = subject.train["lora"]
    trained = adapter(subject.shape, lora["r"], lora["targets"]) if lora else weights(subject.shape)
    how = f"LoRA of rank {lora['r']} on {len(lora['targets'])} kinds of layers" if lora else "all of them"
    return [Figure("weights trained", trained, note=how)]


def _checkpoint(subject: Subject) -> float:
    """What is trained and AdamW's two moments."""
    lora = subject.train["lora"]
    if lora:
        return adapter(subject.shape, lora["r"], lora["targets"]) * 4 * 3
    return weights(subject.shape) * BYTES[subject.train["dtype"]] * 3


def _amount(recipe: Mapping[str, Any], data: Estimate) -> tuple[Range, Range]:
    """Tokens and optimizer steps of the whole run."""
    train = recipe["train"]
    sequences: Range = data.facts["sequences"]
    updates = Range(*(max(1, math.ceil(s / train["batch_size"])) for s in sequences))
    if train["max_steps"] is not None:
        longest = recipe["data"]["pack"]["max_length"]
        tokens: Range = data.facts["tokens"]
        each = Range(tokens.low / sequences.low, tokens.high / sequences.high)
        if data.facts["packed"]:
            each = FILL.times(longest)
        return each.times(train["max_steps"] * train["batch_size"]), Range.exactly(train["max_steps"])
    epochs = train["epochs"]
    return data.facts["tokens"].times(epochs), Range(*(math.ceil(u * epochs) for u in updates))


def _formula(train: Mapping[str, Any]) -> str:
    """The formula in words."""
    forwards = FORWARDS.get(train["method"], 0)
    said = f"{passes(train['lora'] is not None, forwards)}N of the products, and attention"
    return said + (f"; {2 * forwards}N of it for {train['method']}'s other passes" if forwards else "")
