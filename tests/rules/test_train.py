"""Training: the same bytes each time, killed or not; the plan obeyed or refused; nothing volatile written."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rules import _plan
from tests.rules import tiny_model
from tests.rules.conftest import Tiny
from tests.rules.stage import command, run_stage

ENTRY = "rules.train:train"
# 25 steps, an epoch every ten, a checkpoint every five: some lie on the boundary of two epochs
LONG = {"train.max_steps": None, "train.epochs": 2.5, "train.scheduler": "constant"}


def task(
    tiny: Tiny,
    folder: Path,
    *,
    lora: bool = True,
    plan_for: dict[str, Any] | None = None,
    decisions: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A Run as JSON. changes: recipe fields. plan_for: fields of the recipe that the plan was made for."""
    config = {**tiny_model.TRAIN_CONFIG, **changes}
    config = config if lora else tiny_model.full(config)
    folder.mkdir(parents=True, exist_ok=True)
    shape = _plan.shape_of(_plan.read_model_config(tiny.model), {**config, **(plan_for or {})})
    form = _plan.plan_form({**tiny_model.DECISIONS, **(decisions or {})}, shape, tiny_model.PLATFORM)
    _plan.write_plan(folder / "plan.json", form)
    return {
        "config": config,
        "unkeyed": {**tiny_model.TRAIN_UNKEYED, "train.checkpoint_steps": 5},
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": tiny.model, "data": [tiny.packed], "plan": folder / "plan.json"},
        "outputs": {"adapter": "adapter/"} if lora else {"model": "model/"},
        "progress": folder / "progress",
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def trained(tiny: Tiny, folder: Path, **kw: Any) -> dict[str, bytes]:
    """Run to the end; the output's files."""
    job = task(tiny, folder, **kw)
    done = run_stage(ENTRY, folder, job)
    assert done.returncode == 0, done.stderr
    return contents(folder / ("adapter" if kw.get("lora", True) else "model"))


def killed(tiny: Tiny, folder: Path, at: int, **kw: Any) -> None:
    """Start, and SIGKILL once step `at` has been reported."""
    argv, environment = command(ENTRY, folder, task(tiny, folder, **kw))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(argv, env=environment, cwd=folder / "work", **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("step") == at:
                process.kill()
                break
        assert process.wait() == -9


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "evidence/summary.json").read_text())
    return found


@pytest.mark.slow
def test_killed_twice_and_resumed_ends_in_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    whole = trained(tiny, tmp_path / "whole", **LONG)
    rng = random.Random(2048)
    killed(tiny, tmp_path / "killed", rng.randrange(6, 10), **LONG)
    killed(tiny, tmp_path / "killed", rng.randrange(17, 20), **LONG)
    checkpoints = sorted((tmp_path / "killed/progress").glob("0*/checkpoint-*"))
    assert [c.name for c in checkpoints] == ["checkpoint-10", "checkpoint-15"]
    with (checkpoints[-1] / "optimizer.pt").open("r+b") as file:  # damaged: passed over
        file.seek(100)
        file.write(b"\xff")
    assert trained(tiny, tmp_path / "killed", **LONG) == whole
    assert summary(tmp_path / "killed")["resumed_from"] == 10  # the very end of the first epoch
    # the metrics are whole, and the tokens counted once, as if nothing had happened
    metrics = [json.loads(x) for x in (tmp_path / "killed/evidence/metrics.jsonl").read_text().splitlines()]
    reference = [json.loads(x) for x in (tmp_path / "whole/evidence/metrics.jsonl").read_text().splitlines()]
    for key in ("step", "loss", "lr", "grad_norm", "tokens"):
        assert [m[key] for m in metrics] == [m[key] for m in reference]
    assert [m["step"] for m in metrics] == [5, 10, 15, 20, 25]


@pytest.mark.slow
def test_full_training_resumes_to_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    """As continued pre-training does it, struck while the learning rate decays."""
    wsd = {**LONG, "train.method": "cpt", "train.scheduler": "wsd", "train.decay_ratio": 0.4}
    whole = trained(tiny, tmp_path / "whole", lora=False, **wsd)
    killed(tiny, tmp_path / "killed", 23, lora=False, **wsd)
    assert trained(tiny, tmp_path / "killed", lora=False, **wsd) == whole
    assert summary(tmp_path / "killed")["resumed_from"] == 20
    rates = [
        json.loads(x)["lr"] for x in (tmp_path / "killed/evidence/metrics.jsonl").read_text().splitlines()
    ]
    assert [round(rate / 1e-2, 3) for rate in rates] == [1, 1, 1, 0.6, 0.1]  # of steps 5, 10, ...
    assert set(whole) == {p.name for p in tiny.model.iterdir()}
    assert json.loads(whole["config.json"]).get("use_cache") == json.loads(
        (tiny.model / "config.json").read_text()
    ).get("use_cache")
    assert whole["model.safetensors"] != (tiny.model / "model.safetensors").read_bytes()


ATTENTION_AND_EXPERTS = {
    "train.lora.targets": ["q_proj", "gate_up_proj", "down_proj"],
    "train.lora.dropout": 0.0,
}


@pytest.mark.slow
def test_adapters_of_experts_train_and_merge(mixture: Tiny, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from safetensors import safe_open

    from rules._runtime import load_model, load_tuned

    made = trained(mixture, tmp_path / "whole", **LONG, **ATTENTION_AND_EXPERTS)
    config = json.loads(made["adapter_config.json"])
    assert config["target_modules"] == ["q_proj"]
    assert config["target_parameters"] == ["experts.down_proj", "experts.gate_up_proj"]

    adapter = tmp_path / "whole/adapter"
    with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
        trained_names = [n for n in file.keys() if "lora_B" in n and file.get_tensor(n).abs().max() > 0]  # noqa: SIM118
    assert len(trained_names) == 3 * 2  # in each of two layers
    ids = torch.arange(40).reshape(2, 20) + 5
    apart = PeftModel.from_pretrained(load_model(mixture.model), str(adapter)).eval()
    with torch.no_grad():
        base, beside, merged = (
            model(input_ids=ids).logits
            for model in (load_model(mixture.model), apart, load_tuned(mixture.model, adapter).eval())
        )
    assert torch.allclose(merged, beside, atol=1e-4)
    assert (beside - base).abs().max() > 0.1


@pytest.mark.slow
def test_what_is_written_has_no_volatile_part(tiny: Tiny, tmp_path: Path) -> None:
    files = trained(tiny, tmp_path / "run")
    assert set(files) == {"adapter_model.safetensors", "adapter_config.json"}
    config = json.loads(files["adapter_config.json"])
    assert config["target_modules"] == ["down_proj", "q_proj", "v_proj"]
    assert config["base_model_name_or_path"] is None
    for data in files.values():
        assert str(tmp_path).encode() not in data
        assert str(tiny.model).encode() not in data
    found = summary(tmp_path / "run")
    assert found["cost_usd"] == pytest.approx(2.0 * found["seconds"] / 3600, rel=0.01)
    assert found["description"] == "a test"
    assert found["graphs_compiled"] == 0


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_at_its_step(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny.model, tmp_path / "model")
    weights = load_file(tmp_path / "model/model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, tmp_path / "model/model.safetensors", {"format": "pt"})
    done = run_stage(ENTRY, tmp_path, task(tiny._replace(model=tmp_path / "model"), tmp_path))
    assert done.returncode == 1
    assert "error: loss is nan and gradient norm nan at step 1" in done.stderr
    assert "lower train.lr" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_compiled_training_is_repeatable_warm_or_cold(tiny: Tiny, tmp_path: Path) -> None:
    inductor = {"compile": "inductor"}
    runs = []
    for name in ("cold", "warm"):
        job = task(
            tiny,
            tmp_path / name,
            decisions=inductor,
            **{"train.max_steps": 3, "train.lora.targets": ["q_proj"]},
        )
        done = run_stage(ENTRY, tmp_path / name, {**job, "accelerants": tmp_path / "accelerants"})
        assert done.returncode == 0, done.stderr
        found = summary(tmp_path / name)
        assert found["graphs_compiled"] > 0
        assert found["graphs_compiled_after_warm_up"] == 0
        runs.append(contents(tmp_path / name / "adapter"))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("plan_for", "shown"),
    [
        ({"data.pack.max_length": 128}, "shape.max_length: plan 128, here 64"),
        ({"train.lora.r": 8}, "shape.lora.r: plan 8, here 4"),
        ({"train.dtype": "bfloat16"}, "shape.dtype: plan 'bfloat16', here 'float32'"),
    ],
)
def test_a_plan_for_another_shape_is_refused(
    tiny: Tiny, tmp_path: Path, plan_for: dict[str, Any], shown: str
) -> None:
    done = run_stage(ENTRY, tmp_path, task(tiny, tmp_path, plan_for=plan_for))
    assert done.returncode == 1
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda p: p["platform"].update(threads=8), "platform.threads: plan 8, here 1"),
        (lambda p: p["versions"].update(torch="2.10.0"), "versions.torch: plan '2.10.0'"),
        (lambda p: p["shape"]["model"].update(hidden_size=4096), "model.hidden_size: plan 4096, here 64"),
        (lambda p: p["decisions"].update(micro_batch=4), "micro_batch 4 x gradient_accumulation 2 is not"),
        (lambda p: p["decisions"].pop("attention"), "plan decides compile"),
        (lambda p: p.pop("decisions"), "plan is not readable"),
    ],
)
def test_a_plan_for_another_machine_or_out_of_order_is_refused(
    tiny: Tiny, tmp_path: Path, change: Any, shown: str
) -> None:
    job = task(tiny, tmp_path)
    form = json.loads((tmp_path / "plan.json").read_text())
    change(form)
    (tmp_path / "plan.json").write_text(json.dumps(form))
    done = run_stage(ENTRY, tmp_path, job)
    assert done.returncode == 1
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


def test_unreadable_data_names_the_file(tiny: Tiny, tmp_path: Path) -> None:
    from mxt.errors import StageError
    from rules._packed import read_packed

    broken = tmp_path / "packed.parquet"
    broken.write_bytes(b"PAR1 not really")
    with pytest.raises(StageError, match="packed data is not readable"):
        read_packed([broken], 64)
    with pytest.raises(StageError, match=r"row 0 has \d+ tokens, more than data.pack.max_length 32"):
        read_packed([tiny.packed], 32)
    with pytest.raises(StageError, match="not one training sequence"):
        read_packed([], 64)


def test_a_lora_target_that_the_model_lacks_is_named(tiny: Tiny) -> None:
    from mxt.errors import StageError
    from rules._runtime import load_model
    from rules._training import lora_config

    with pytest.raises(StageError, match=r"no linear layer 'q_prj'.*did you mean 'q_proj'"):
        lora_config({**tiny_model.TRAIN_CONFIG, "train.lora.targets": ["q_prj"]}, load_model(tiny.model))


def test_a_rank_larger_than_a_layer_is_refused(tiny: Tiny) -> None:
    from mxt.errors import StageError
    from rules._runtime import load_model
    from rules._training import lora_config

    with pytest.raises(StageError, match=r"r 4096 is more than \d+, as wide as \w+ is in the model"):
        lora_config({**tiny_model.TRAIN_CONFIG, "train.lora.r": 4096}, load_model(tiny.model))


def test_what_a_mixture_of_experts_has_not_is_said(mixture: Tiny) -> None:
    from mxt.errors import StageError
    from rules._runtime import load_model
    from rules._training import lora_config

    model = load_model(mixture.model)
    with pytest.raises(
        StageError, match=r"no linear layer 'gate_proj'.*did you mean 'gate_up_proj'"
    ) as caught:
        lora_config({**tiny_model.TRAIN_CONFIG, "train.lora.targets": ["q_proj", "gate_proj"]}, model)
    assert caught.value.hint == (
        "it has k_proj, o_proj, q_proj, v_proj; its experts, all of a layer in one: down_proj, gate_up_proj"
    )
    dropout = {**tiny_model.TRAIN_CONFIG, **ATTENTION_AND_EXPERTS, "train.lora.dropout": 0.1}
    with pytest.raises(StageError, match="cannot be applied to experts"):
        lora_config(dropout, model)
    attention = lora_config({**tiny_model.TRAIN_CONFIG, "train.lora.targets": ["q_proj"]}, model)
    assert attention.target_parameters is None


@pytest.mark.parametrize(
    ("steps", "warmup", "scheduler", "decay", "expected"),
    [
        (20, 0.1, "wsd", 0.25, [0, 0.5, *[1] * 14, 0.8, 0.6, 0.4, 0.2]),
        (20, 0.0, "wsd", None, [*[1] * 19, 0.5]),
        (3, 0.5, "wsd", 0.5, [0, 0.5, 1]),  # rounded up, both would be more than all steps
        (4, 1.0, "wsd", 0.0, [0, 0.25, 0.5, 0.75]),
        (4, 0.5, "constant", None, [0, 0.5, 1, 1]),
        (4, 0.0, "wsd", 0.0, [1, 1, 1, 1]),
        (4, 0.0, "linear", None, [1, 0.75, 0.5, 0.25]),
    ],
)
def test_the_learning_rate(
    steps: int, warmup: float, scheduler: str, decay: float | None, expected: list[float]
) -> None:
    import torch
    from transformers import get_scheduler

    from rules._training import schedule

    recipe = {"train.warmup_ratio": warmup, "train.scheduler": scheduler, "train.decay_ratio": decay}
    told = schedule(recipe, steps)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    name, more = told["lr_scheduler_type"], told.get("lr_scheduler_kwargs", {})
    plan = get_scheduler(name, optimizer, told["warmup_steps"], steps, more)
    rates = []
    for _ in range(steps):
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        plan.step()
    assert [round(r, 3) for r in rates] == expected


def test_model_folders_that_are_none_are_named(tiny: Tiny, tmp_path: Path) -> None:
    from mxt.errors import StageError
    from rules._runtime import load_model

    with pytest.raises(StageError, match=r"has no config\.json"):
        load_model(tmp_path)
    shutil.copytree(tiny.model, tmp_path / "model")
    (tmp_path / "model/model.safetensors").unlink()
    with pytest.raises(StageError, match=r"has no weights \(model\.safetensors\)"):
        load_model(tmp_path / "model")
