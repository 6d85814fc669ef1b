"""Estimates before a run: held against runs that were measured, and honest where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mxt.estimates import Asked, Estimate, Range
from rules._estimate import fetch_data, model, pack, pretrain, probe, shards, train
from rules._estimate.memory import GIB, Step, memory
from rules._estimate.sizes import active, adapter, embedding, multiplied, shape_of_folder, weights
from rules._estimate.speed import FASTEST, MFU, mfu, rates, work
from rules._estimate.text import count_files
from rules._estimate.together import inverse, product
from rules._estimate.train import room
from rules._known_models import KNOWN, Shape
from rules.recipe import Schema
from tests.e2e.conftest import REPOSITORY

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
LINEAR = (*QKVO, "gate_proj", "up_proj", "down_proj")
SHAPES = {
    "qwen3_0b6": Shape(1024, 28, 16, 8, 128, 3072, 151936, 40960, tied=True),
    "qwen3_1b7": Shape(2048, 28, 16, 8, 128, 6144, 151936, 40960, tied=True),
    "qwen3_4b": Shape(2560, 36, 32, 8, 128, 9728, 151936, 40960, tied=True),
    "qwen3_8b": KNOWN["Qwen/Qwen3-8B"],
    "qwen3_14b": Shape(5120, 40, 40, 8, 128, 17408, 151936, 40960),
    "qwen3_30b_a3b": KNOWN["Qwen/Qwen3-30B-A3B"],
}
# as benchmarks/gpu/memory.py wrote them on one H200 and one H100, in November 2026
LINES = (REPOSITORY / "benchmarks/gpu/memory.jsonl").read_text().splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
RUNS = [run for run in CASES if "failed" not in run]
TOO_BIG = [run for run in CASES if "out of memory" in run.get("failed", "")]


def called(run: dict[str, Any]) -> str:
    return f"{run['device'].removeprefix('NVIDIA ').lower()}-{run['case']}"


def step_of(name: str) -> Step:
    """The step of a measured case: MODEL-KIND-ROWSxLENGTH-COMPILER-RECOMPUTE."""
    size, kind, rows, compiler, recompute = name.split("-")
    micro_batch, length = map(int, rows.split("x"))
    rank, targets = 0, 0
    if kind != "full":
        rank, targets = map(int, kind.removeprefix("lora").split("x"))
    return Step(
        shape=SHAPES[size],
        width=2,
        rank=rank,
        targets=LINEAR[:targets],
        length=length,
        micro_batch=micro_batch,
        compiled=compiler == "inductor",
        recompute=recompute,
        accumulates=micro_batch < 4,
    )


@pytest.mark.parametrize("run", RUNS, ids=called)
def test_measured_memory_lies_in_the_range(run: dict[str, Any]) -> None:
    step = step_of(run["case"])
    found = memory(step).total
    assert found.low / GIB <= run["peak_gib"] <= run["reserved_gib"] <= found.high / GIB
    # within a quarter of its middle
    assert (found.high - found.low) / (found.high + found.low) < 0.25
    trained = adapter(step.shape, step.rank, step.targets) if step.rank else weights(step.shape)
    assert trained == run["trained"]


@pytest.mark.parametrize("run", RUNS, ids=called)
def test_measured_speed_lies_in_the_range(run: dict[str, Any]) -> None:
    step = step_of(run["case"])
    kind = "experts" if step.shape.experts else "lora" if step.rank else "full"
    part = mfu(kind, weights(step.shape) >= 3e9, step.compiled, step.recompute)
    assert part is not None
    # each row held two documents
    each = work(step.shape, step.rank > 0, Range(step.length / 2, step.length)).total
    speed = product(inverse(each), *rates(called(run).partition("-")[0], 1, part))
    assert speed.low <= run["tokens_per_s"] <= speed.high
    assert speed.high / speed.low < 2.8


def in_words(run: dict[str, Any]) -> str:
    """A row of the table in docs/estimate.md."""
    step = step_of(run["case"])
    found = memory(step).total
    kind = "experts" if step.shape.experts else "lora" if step.rank else "full"
    part = mfu(kind, weights(step.shape) >= 3e9, step.compiled, step.recompute)
    assert part is not None
    device = called(run).partition("-")[0]
    each = work(step.shape, step.rank > 0, Range(step.length / 2, step.length)).total
    speed = product(inverse(each), *rates(device, 1, part))
    return (
        f"| {run['case']} | {device} | {found.low / GIB:.1f} to {found.high / GIB:.1f} "
        f"| {run['peak_gib']:.1f} | {run['reserved_gib']:.1f} "
        f"| {speed.low:,.0f} to {speed.high:,.0f} | {run['tokens_per_s']:,} |"
    )


def test_the_page_shows_what_the_formulas_give_now() -> None:
    shown = (REPOSITORY / "docs/estimate.md").read_text().splitlines()
    rows = [line for line in shown if line.startswith("| qwen3_")]
    assert rows == [in_words(run) for run in RUNS]


# the first rows of the H200: by these the constants for memory were chosen, the rest was measured afterwards
CHOSEN_BY = 20


def test_measured_afterwards_the_peak_lay_in_the_range_all_the_same() -> None:
    """Of memory only: the ranges of MFU were chosen by all rows of the H200, so no row tests them."""
    assert [run["device"] for run in RUNS] == ["NVIDIA H200"] * 29 + ["NVIDIA H100"] * 14
    later = RUNS[CHOSEN_BY:]
    assert {run["case"].split("-")[0] for run in later[:9]} == {"qwen3_14b", "qwen3_4b", "qwen3_0b6"}
    for run in later:
        found = memory(step_of(run["case"])).total
        assert found.low / GIB <= run["peak_gib"] <= found.high / GIB


@pytest.mark.parametrize("run", TOO_BIG, ids=called)
def test_what_did_not_fit_was_not_said_to_fit(run: dict[str, Any]) -> None:
    assert len(TOO_BIG) == 5
    assert run["device"] == "NVIDIA H100"
    assert memory(step_of(run["case"])).total.high > room("h100")


def test_a_plain_compiled_loop_of_others() -> None:
    # measured by hand: Liger and per-layer compile, micro-batch 4, nothing recomputed: 126 and 128 GiB
    found = memory(Step(SHAPES["qwen3_8b"], 2, 16, LINEAR, 4096, 4, True, "none")).total
    assert found.low / GIB < 126 < 128 < found.high / GIB


def test_operations_of_the_step_that_the_project_measures() -> None:
    # docs/performance.md: 33.9 GFLOP a token, one document a row; 17,063 tokens/s at most
    found = work(SHAPES["qwen3_8b"], True, Range.exactly(4096))
    assert f"{found.total.high / 1e9:.1f}" == "33.9"
    assert found.plain == 4 * multiplied(SHAPES["qwen3_8b"])
    speed = Range.exactly(989.4e12).times(FASTEST).over(found.total)
    assert speed.low < 15_621 < 17_063 < speed.high
    assert work(SHAPES["qwen3_8b"], False, Range.exactly(4096)).attention == found.attention
    # a reference's forward pass has no backward one
    more = work(SHAPES["qwen3_8b"], True, Range.exactly(4096), forwards=1)
    assert more.plain == found.plain * 6 / 4
    assert more.attention.low == pytest.approx(found.attention.low * 4 / 3)


@pytest.mark.parametrize("name", KNOWN)
def test_counted_weights_are_those_of_the_table(name: str) -> None:
    shape = KNOWN[name]
    assert weights(shape._replace(weights=None)) == pytest.approx(weights(shape), rel=1e-4)
    assert embedding(shape) < active(shape) <= weights(shape)


def test_experts_that_sleep_do_not_count() -> None:
    shape = KNOWN["Qwen/Qwen3-30B-A3B"]
    assert f"{active(shape) / 1e9:.2f}" == "3.35"
    assert adapter(shape, 1, ("gate_up_proj",)) == 48 * 128 * (2048 + 2 * 768)


@pytest.mark.parametrize(
    ("wider", "by"),
    [({"micro_batch": 8}, 1.5), ({"length": 8192}, 1.5), ({"base": "nf4"}, 0.95), ({"shards": 8}, 0.9)],
)
def test_what_memory_depends_on(wider: dict[str, Any], by: float) -> None:
    step = Step(SHAPES["qwen3_8b"], 2, 16, LINEAR, 4096, 4, True, "none")
    one, other = memory(step).total, memory(step._replace(**wider)).total
    assert (other.low > one.low * by) if by > 1 else (other.low < one.low * by)


def test_recomputing_more_never_takes_more() -> None:
    for compiled in (True, False):
        for rank in (0, 16):
            step = Step(SHAPES["qwen3_8b"], 2, rank, LINEAR if rank else (), 4096, 4, compiled, "none")
            found = [
                memory(step._replace(recompute=r)).activations
                for r in ("none", "elementwise", "selective", "all")
            ]
            assert [f.low for f in found] == sorted((f.low for f in found), reverse=True)


def test_ranges_of_independent_factors() -> None:
    assert product(Range(1, 4), Range(1, 1)) == pytest.approx((1, 4))
    four = product(*[Range(1, 2)] * 4)
    assert four == pytest.approx((2, 8))
    assert product(Range(0, 2), Range(1, 3)) == (0, 6)


# ---- recipes --------------------------------------------------------------------------------------


class Files(NamedTuple):
    files: tuple[str, ...] = ()
    shards: str = ":shards"
    data: str = ":pack"


def asked(recipe: dict[str, Any], folder: Path, known: dict[str, Estimate], **platform: Any) -> Asked:
    return Asked(
        label="//x:y",
        attrs=Files(tuple(sorted(p.name for p in folder.glob("*.jsonl")))),
        recipe=Schema.model_validate(recipe).model_dump(mode="json"),
        root=folder,
        package=folder,
        platform=platform,
        of=known.get,
        files=lambda label: [folder / label],
    )


def whole(recipe: dict[str, Any], folder: Path) -> dict[str, Estimate]:
    """The estimates of rows, tokens and training."""
    found: dict[str, Estimate] = {}
    for label, stage in ((":shards", shards), (":pack", pack), (":train", train)):
        found[label] = stage.estimate(asked(recipe, folder, found, threads=1))
    return found


def figures(estimate: Estimate) -> dict[str, Any]:
    return {f.name: f.value for f in estimate.figures}


def tiny(**changes: Any) -> dict[str, Any]:
    from mxt.loading.recipe_yaml import read_yaml

    recipe = read_yaml(REPOSITORY / "recipes/tiny_sft_lora.yaml", "tiny").value
    assert isinstance(recipe, dict)
    for dotted, value in changes.items():
        section, _, name = dotted.partition("__")
        recipe[section][name] = value
    return recipe


DATA = REPOSITORY / "recipes/tiny"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The tiny recipes' training rows and nothing else."""
    for path in DATA.glob("train-*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_tiny_recipe_as_it_was_measured(rows: Path) -> None:
    # a run on two busy cores: 1,316 rows kept, 320 sequences, 36,029 tokens, 80 steps in 16.2 s
    found = whole(tiny(), rows)
    assert figures(found[":shards"]) == {"rows": 1340, "text": Range.exactly(99_636)}
    packed = found[":pack"].facts
    assert packed["tokens"].low < 36_029 < packed["tokens"].high
    assert packed["sequences"].low < 320 < packed["sequences"].high
    steps, tokens = (figures(found[":train"])[n] for n in ("optimizer steps", "tokens trained on"))
    assert steps.low < 80 < steps.high
    assert tokens.low < 72_058 < tokens.high
    took = figures(found[":train"])["steps take"]
    assert took.low < 7 < 16.2 < took.high
    assert found[":train"].cost is None  # the recipe has no price
    first = pretrain.estimate(asked(tiny(), rows, {}, threads=1))
    assert first.seconds is not None
    assert first.seconds.low < 22 < 36 < first.seconds.high


def test_max_steps_and_epochs_and_limit(rows: Path) -> None:
    once = whole(tiny(train__epochs=1), rows)
    half = whole(tiny(train__epochs=1, data__limit=670), rows)
    given = whole(tiny(train__epochs=None, train__max_steps=10), rows)
    assert figures(half[":shards"])["rows"] == 670
    assert half[":pack"].facts["tokens"].high == pytest.approx(once[":pack"].facts["tokens"].high / 2)
    assert figures(given[":train"])["optimizer steps"] == Range.exactly(10)
    assert figures(given[":train"])["tokens trained on"] == (10 * 8 * 128 * 0.85, 10 * 8 * 128)


def test_files_are_counted_or_sampled(tmp_path: Path) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    row = json.dumps({"prompt": "one", "completion": "two words", "note": "not seen"}) + "\n"
    small.write_text(row * 3)
    large.write_text(row * 100_000)
    assert count_files([small]) == (
        Range.exactly(3),
        Range.exactly(36),
        Range.exactly(6),
        1.0,
        0,
        "counted",
    )
    found = count_files([large])
    assert found is not None
    assert (found.rows, found.how) == (Range.exactly(100_000), "rows counted, their text sampled")
    assert found.text.low < 1_200_000 < found.text.high
    assert count_files([small, tmp_path / "gone.jsonl"]) is None
    (tmp_path / "bad.jsonl").write_text("{")
    assert count_files([tmp_path / "bad.jsonl"]) is None


def test_parquet_is_sampled(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["grün " * 4] * 1000})
    pq.write_table(table, tmp_path / "rows.parquet")
    found = count_files([tmp_path / "rows.parquet"])
    assert found is not None
    assert found.rows == Range.exactly(1000)
    assert found.text.low < 24_000 < found.text.high
    assert found.plain < 0.9


def hub(**changes: Any) -> dict[str, Any]:
    from mxt.loading.recipe_yaml import read_yaml

    recipe = read_yaml(REPOSITORY / f"recipes/{changes.pop('name', 'qwen3_8b_sft_lora')}.yaml", "hub").value
    assert isinstance(recipe, dict)
    for dotted, value in changes.items():
        section, _, name = dotted.partition("__")
        recipe[section][name] = value
    return recipe


def test_a_recipe_of_the_catalogue(tmp_path: Path) -> None:
    found = whole(hub(), tmp_path)
    assert figures(found[":shards"])["rows"] == 207_865
    trained = found[":train"]
    assert figures(trained)["weights trained"] == 43_646_976
    assert trained.seconds is not None
    assert trained.cost is not None
    assert trained.cost.high == pytest.approx(trained.seconds.high * 1.99 / 3600)
    fits, time = trained.grids
    assert [name for name, _ in fits.rows][:2] == ["none / none", "none / elementwise"]
    assert [cell.mark for cell in dict(fits.rows)["none / none"]] == ["no", "tight", "fits"]
    assert [name for name, _ in time.rows][-1] == "fastest step known, in no stage"
    assert any("nothing was ever measured on the mi300x" in note for note in trained.notes)
    text = probe.estimate(asked(hub(), tmp_path, {}))
    assert text.seconds == (2, 120)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    grpo = whole(hub(name="qwen3_32b_grpo"), tmp_path)[":train"]
    assert grpo.seconds is None
    assert not grpo.grids
    assert grpo.unknown == [
        "GPU memory: grpo keeps the answers' caches and a reference beside what is trained",
        "tokens, hours, cost: with grpo most time goes into answers that the model writes",
    ]
    pictures = whole(hub(name="qwen3_vl_8b_sft"), tmp_path)
    assert pictures[":pack"].unknown == ["tokens: those of pictures depend on their sizes"]
    assert pictures[":train"].seconds is None
    other = hub(model__hub={"repo": "someone/else", "revision": "unpinned"})
    assert whole(other, tmp_path)[":train"].unknown == [
        "memory and time: the model's sizes are not known before it is here"
    ]
    assert model.estimate(asked(other, tmp_path, {})).unknown == [
        "size of someone/else: not among the models that are known before a download"
    ]
    rows = hub(data__hub={"repo": "a/b", "files": ["x.jsonl"]}, data__dedupe=None)
    assert whole(rows, tmp_path)[":shards"].unknown == [
        "rows: a/b is not among the datasets whose size is known before a download"
    ]
    assert fetch_data.estimate(asked(rows, tmp_path, {})).unknown == [
        "download of a/b: its size is not known before"
    ]


def test_preferences_take_two_sequences_and_a_reference(tmp_path: Path) -> None:
    dpo, orpo = (whole(hub(name=f"qwen3_32b_{m}"), tmp_path)[":train"] for m in ("dpo", "orpo"))
    assert figures(dpo)["operations a token"].low > figures(orpo)["operations a token"].low * 1.3
    assert any("speed of dpo was never measured" in note for note in dpo.notes)


def test_a_model_that_is_a_folder(tmp_path: Path) -> None:
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 300,
        "tie_word_embeddings": True,
    }
    assert shape_of_folder(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert shape_of_folder(tmp_path) == Shape(64, 2, 4, 4, 16, 96, 300, 0, tied=True)
    (tmp_path / "config.json").write_text("[]")
    assert shape_of_folder(tmp_path) is None


def test_each_range_of_the_table_is_one() -> None:
    for found in MFU.values():
        for part in found or ():
            assert 0 < part.low < part.high < 0.6
