"""What the sections of a recipe must agree on.

Each message begins with the field that it is about, by which its place in the file is found; a second line
says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from mxt.errors import did_you_mean
from rules._devices import DEVICES, family_of
from rules._known_models import KNOWN, Shape
from rules._schema.autotune import AMD_ATTENTION, GPU_ATTENTION, NVIDIA_ATTENTION
from rules._schema.evaluation import is_task_file
from rules._schema.train import FORMATS

if TYPE_CHECKING:
    from rules._schema.hardware import Hardware
    from rules._schema.train import Train
    from rules.recipe import Schema

# what lm-eval scores where a task file has no metric_list, by its output_type
USUAL_METRICS = {
    "loglikelihood": ("perplexity", "acc"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    "multiple_choice": ("acc", "acc_norm"),
    "generate_until": ("exact_match",),
}


def check_together(recipe: Schema) -> None:
    """Raises ValueError for the first pair of sections that do not fit."""
    if recipe.train is not None:
        _training(recipe, recipe.train)
    elif recipe.autotune is not None:
        raise ValueError("autotune plans a training: it needs 'train'")
    if recipe.eval and recipe.eval.gate and recipe.train is None:
        raise ValueError("eval.gate compares the tuned model with its base: it needs 'train'")
    known = shape(recipe)
    if known is not None:
        _sizes(recipe, *known)
    _device(recipe, recipe.hardware)


def check_files(recipe: Schema, package: Any) -> None:
    """Raises ValueError where files are missing, or judge the model and are trained on, under whatever name.

    package: what config() knows of the package. Equal rows in different files are found by the gate.
    """
    init, data, judge = recipe.model.init, recipe.data, recipe.eval
    trained = {
        "data.files": data.files if data else None,
        "model.init.corpus": init.corpus if init else None,
    }
    judged = {which: name for name, which in _files("eval.files", judge.files if judge else None, package)}
    for field, patterns in trained.items():
        for name, which in _files(field, patterns, package):
            if which in judged:
                other = "" if judged[which] == name else f", there called '{name}'"
                raise ValueError(
                    f"eval.files names '{judged[which]}', and {field} does, too{other}\n"
                    "judged on what it was trained on, a model looks better than it is: keep rows apart"
                )


def check_metric(recipe: Schema, package: Any) -> None:
    """Raises ValueError where a task file does not score what the gate compares: after training is too late.

    A file that is no task is left to .eval_base, which explains it, as is a task that is given by name.
    """
    import yaml

    gate = recipe.eval.gate if recipe.eval else None
    for path in recipe.eval.tasks if recipe.eval and gate else ():
        if gate is None or not is_task_file(path) or PurePosixPath(path).stem != gate.task:
            continue
        try:
            task = yaml.safe_load(package.text(path) or "")
        except (ValueError, RecursionError, yaml.YAMLError):
            continue
        scored = _scored(task)
        metric = gate.metric.partition(",")[0]  # a filter's name comes behind a comma
        if scored and metric not in scored:
            raise ValueError(
                f"eval.gate.metric '{gate.metric}' is not scored by {path}{did_you_mean(metric, scored)}\n"
                f"it scores {', '.join(scored)}; what is scored stands in the file's metric_list"
            )


def _scored(task: object) -> list[str]:
    """The metrics of a task file; none where that cannot be told."""
    if not isinstance(task, dict):
        return []
    listed = task.get("metric_list")
    if listed is None:
        kind = task.get("output_type", "generate_until")
        return list(USUAL_METRICS.get(kind, ())) if isinstance(kind, str) else []
    if not isinstance(listed, list) or not all(isinstance(m, dict) for m in listed):
        return []
    return [m["metric"] for m in listed if isinstance(m.get("metric"), str)]


def _files(field: str, patterns: Sequence[str] | None, package: Any) -> Iterator[tuple[str, object]]:
    """The files that a field names, each with what tells it from others."""
    for pattern in patterns or ():
        try:
            found = package.files(pattern)
        except ValueError as error:
            raise ValueError(f"{field} {error}") from None
        if not found:
            raise ValueError(
                f"{field} '{pattern}' matches no file{did_you_mean(pattern, package.files('**'))}\n"
                "a pattern is for files of this package, without its folder's name; * and ** stand for more"
            )
        yield from found.items()


def _training(recipe: Schema, train: Train) -> None:
    if recipe.data is None:
        raise ValueError("train needs a 'data' section")
    if recipe.autotune is None:
        raise ValueError(
            "train needs an 'autotune' section\n"
            "the plan chooses attention, compile and micro_batch; 'autotune: {}' takes the usual candidates"
        )
    gpus = max(1, recipe.hardware.gpus)
    if gpus > 1 and train.parallel == "none":
        raise ValueError(
            f"train.parallel is 'none', and hardware.gpus is {gpus}\n"
            "'ddp' copies the model to each GPU, 'fsdp' spreads a large one over them"
        )
    if gpus == 1 and train.parallel != "none":
        raise ValueError(f"train.parallel is '{train.parallel}', and there is one device\nleave it out")
    if train.batch_size % gpus:
        below, above = train.batch_size // gpus * gpus, (train.batch_size // gpus + 1) * gpus
        raise ValueError(
            f"train.batch_size {train.batch_size} does not divide over {gpus} GPUs\n"
            f"it counts the sequences of all of them: take {f'{below} or ' if below else ''}{above}"
        )
    if gpus == 1 and recipe.autotune.collectives is not None:
        raise ValueError("autotune.collectives has no effect on one device\nleave it out")
    share = train.batch_size // gpus
    if "micro_batch" not in recipe.autotune.model_fields_set:  # the usual ones, as far as they fit
        fitting = tuple(size for size in recipe.autotune.micro_batch if share % size == 0)
        object.__setattr__(recipe.autotune, "micro_batch", fitting)
    for size in recipe.autotune.micro_batch:
        if share % size:
            of = f"train.batch_size {train.batch_size}" + (f" over {gpus} GPUs, {share}" if gpus > 1 else "")
            these = ", ".join(str(n) for n in range(1, min(share, 64) + 1) if share % n == 0)
            raise ValueError(f"autotune.micro_batch {size} does not divide {of}\nthese do: {these}")
    _method(recipe, train)


def _method(recipe: Schema, train: Train) -> None:
    data = recipe.data
    assert data is not None
    fitting = FORMATS[train.method]
    if data.format not in fitting:
        forms = " or ".join(f"'{form}'" for form in fitting)
        raise ValueError(f"data.format is '{data.format}', and train.method '{train.method}' reads {forms}")
    if train.grpo and train.batch_size % train.grpo.generations:
        raise ValueError(
            f"train.batch_size {train.batch_size} is not a multiple of train.grpo.generations "
            f"{train.grpo.generations}\na step takes all answers to a prompt together"
        )
    if (train.method == "vision_sft") != (recipe.model.kind == "vision_language"):
        raise ValueError(
            f"model.kind is '{recipe.model.kind}', and train.method '{train.method}'\n"
            "vision_sft tunes a vision_language model, the other methods one of text"
        )
    if data.pack.overlong == "split" and data.format != "text":
        raise ValueError(
            "data.pack.overlong 'split' would tear conversations apart\n"
            "it is for data.format 'text'; 'truncate' cuts off the end, 'drop' leaves such rows out"
        )


def shape(recipe: Schema) -> tuple[str, Shape] | None:
    """What the model is called in messages, and its sizes; None where a download has to tell them."""
    init, hub = recipe.model.init, recipe.model.hub
    if hub is not None:
        return (hub.repo, KNOWN[hub.repo]) if hub.repo in KNOWN else None
    if init is None:
        return None
    return "the model of model.init", Shape(
        hidden=init.hidden_size,
        layers=init.num_hidden_layers,
        heads=init.num_attention_heads,
        kv_heads=init.num_key_value_heads,
        head_dim=init.head_dim,
        intermediate=None if init.experts else init.intermediate_size,
        vocab=init.vocab_size,
        positions=init.max_position_embeddings,
        tied=init.tie_word_embeddings,
        experts=init.experts.count if init.experts else None,
        expert_intermediate=init.experts.intermediate_size if init.experts else None,
    )


def _sizes(recipe: Schema, name: str, model: Shape) -> None:
    """Ranks, lengths and pictures against what the model can do."""
    train, data, serve = recipe.train, recipe.data, recipe.serve
    if train and train.lora:
        widths = model.widths()
        for target in train.lora.targets:
            if target in ("gate_proj", "up_proj") and model.experts and not model.shared_intermediate:
                raise ValueError(
                    f"train.lora.targets has '{target}', and no layer of {name} is called so\n"
                    "it holds all experts of a layer in one: gate_up_proj and down_proj put an adapter on "
                    "each; or take attention alone: q_proj, k_proj, v_proj, o_proj"
                )
            if target not in widths and _all_named(model):
                near = did_you_mean(target, widths).removeprefix(", ")
                raise ValueError(
                    f"train.lora.targets has '{target}', and no layer of {name} is called so\n"
                    f"{f'{near} ' if near else ''}it has {', '.join(widths)}"
                )
            if train.lora.r > widths.get(target, train.lora.r):
                width = widths[target]
                raise ValueError(
                    f"train.lora.r {train.lora.r} is more than {width}, as wide as {target} is in {name}\n"
                    f"such an adapter is larger than its layer: take {width} or less; usual are 8 to 64"
                )
    lengths = {
        "data.pack.max_length": data.pack.max_length if data else 0,
        "train.grpo.max_answer": train.grpo.max_answer if train and train.grpo else 0,
        "train.rlhf.max_answer": train.rlhf.max_answer if train and train.rlhf else 0,
        "serve.max_length": serve.max_length if serve else 0,
    }
    for field, length in lengths.items():
        if length > model.positions:
            raise ValueError(
                f"{field} {length} is longer than {name} can take, {model.positions} tokens\n"
                f"set it to {model.positions} or less"
                + (", or raise model.init.max_position_embeddings" if recipe.model.init else "")
            )
    if recipe.model.kind == "vision_language" and recipe.model.hub and not model.vision_weights:
        raise ValueError(f"model.kind is 'vision_language', and {name} reads no pictures")
    if model.code and recipe.model.trust_remote_code is None:
        raise ValueError(
            f"model.hub.repo {name} brings Python files that would run here\n"
            "write 'trust_remote_code: unpinned' into 'model'; 'mxt pin' shows the files"
        )


def _all_named(model: Shape) -> bool:
    """Whether Shape.widths() has all layers that can get an adapter: those of plain transformers alone."""
    return not (model.linear_layers or model.vision_weights or model.code)


def _device(recipe: Schema, hardware: Hardware) -> None:
    family = family_of(hardware.platform) or "cpu"
    device = DEVICES[family]
    if recipe.autotune is not None:
        foreign = {"amd": NVIDIA_ATTENTION, "nvidia": AMD_ATTENTION, "cpu": GPU_ATTENTION}[device.maker]
        own = {"amd": AMD_ATTENTION, "nvidia": NVIDIA_ATTENTION, "cpu": ()}[device.maker]
        for name in recipe.autotune.attention:
            if name in foreign:
                there = ", ".join(("sdpa", "eager", *own))
                raise ValueError(
                    f"autotune.attention '{name}' does not exist on the {family}\nthere are: {there}"
                )
    if recipe.quantize is None or device.maker == "cpu":
        return  # on a CPU the types are computed with in software: slow and right
    scheme = recipe.quantize.scheme
    if "fp8" in scheme and not device.fp8:
        raise ValueError(
            f"quantize.scheme '{scheme}' needs matrix units for FP8, and the {family} has none\n"
            "take 'mxfp4_weight_only', leave 'quantize' out, or quantize on a device with FP8"
        )
    if scheme == "mxfp4" and not device.mxfp4:
        raise ValueError(
            f"quantize.scheme 'mxfp4' would be emulated on the {family}, slower than not quantized\n"
            f"take {'ptpc_fp8' if device.fp8 else 'mxfp4_weight_only'}; MXFP4 is for "
            + ", ".join(name for name, d in DEVICES.items() if d.mxfp4)
        )
