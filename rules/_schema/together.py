"""What the sections of a recipe must agree on; each message begins with the field that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rules._devices import DEVICES, family_of
from rules._schema.autotune import AMD_ATTENTION, GPU_ATTENTION, NVIDIA_ATTENTION
from rules._schema.train import FORMATS

if TYPE_CHECKING:
    from rules._schema.hardware import Hardware
    from rules._schema.train import Train
    from rules.recipe import Schema


def check_together(recipe: Schema) -> None:
    """Raises ValueError for the first pair of sections that do not fit."""
    if recipe.train is not None:
        _training(recipe, recipe.train)
    elif recipe.autotune is not None:
        raise ValueError("autotune plans a training: it needs 'train'")
    if recipe.eval and recipe.eval.gate and recipe.train is None:
        raise ValueError("eval.gate compares the tuned model with its base: it needs 'train'")
    _lengths(recipe)
    _device(recipe, recipe.hardware)


def _training(recipe: Schema, train: Train) -> None:
    if recipe.data is None:
        raise ValueError("train needs a 'data' section")
    if recipe.autotune is None:
        raise ValueError(
            "train needs an 'autotune' section: the plan chooses attention, compile and micro_batch"
        )
    gpus = max(1, recipe.hardware.gpus)
    if gpus > 1 and train.parallel == "none":
        raise ValueError(f"train.parallel is 'none' on {gpus} GPUs: give 'ddp' or 'fsdp', or take one GPU")
    if gpus == 1 and train.parallel != "none":
        raise ValueError(f"train.parallel is '{train.parallel}' and there is one device: leave it out")
    if train.batch_size % gpus:
        raise ValueError(f"train.batch_size {train.batch_size} is not a multiple of hardware.gpus {gpus}")
    share = train.batch_size // gpus
    for size in recipe.autotune.micro_batch:
        if share % size:
            of = f"train.batch_size {train.batch_size}" + (f" over {gpus} GPUs ({share})" if gpus > 1 else "")
            raise ValueError(f"autotune.micro_batch {size} does not divide {of}")
    _method(recipe, train)


def _method(recipe: Schema, train: Train) -> None:
    data = recipe.data
    assert data is not None
    fitting = FORMATS[train.method]
    if data.format not in fitting:
        raise ValueError(
            f"data.format is '{data.format}', method '{train.method}' needs {' or '.join(map(repr, fitting))}"
        )
    if (train.method == "vision_sft") != (recipe.model.kind == "vision_language"):
        raise ValueError(
            f"model.kind is '{recipe.model.kind}', which does not go with method '{train.method}': "
            "vision_sft tunes a vision_language model, the other methods one of text"
        )
    if data.pack.overlong == "split" and data.format != "text":
        raise ValueError(
            "data.pack.overlong is 'split', which would tear conversations apart: it is for format 'text'"
        )
    init = recipe.model.init
    if init and train.lora:
        narrowest = min(init.hidden_size, init.intermediate_size, init.num_key_value_heads * init.head_dim)
        if train.lora.r > narrowest:
            raise ValueError(
                f"train.lora.r {train.lora.r} is larger than the model's narrowest layer ({narrowest}): "
                f"the adapter would be larger than what it adapts"
            )


def _lengths(recipe: Schema) -> None:
    init = recipe.model.init
    if init is None:
        return
    if recipe.data and recipe.data.pack.max_length > init.max_position_embeddings:
        raise ValueError(
            f"data.pack.max_length {recipe.data.pack.max_length} is longer than "
            f"model.init.max_position_embeddings {init.max_position_embeddings}"
        )
    if recipe.serve and recipe.serve.max_length > init.max_position_embeddings:
        raise ValueError(
            f"serve.max_length {recipe.serve.max_length} is longer than "
            f"model.init.max_position_embeddings {init.max_position_embeddings}"
        )


def _device(recipe: Schema, hardware: Hardware) -> None:
    family = family_of(hardware.platform) or "cpu"
    device = DEVICES[family]
    if recipe.autotune is not None:
        foreign = {"amd": NVIDIA_ATTENTION, "nvidia": AMD_ATTENTION, "cpu": GPU_ATTENTION}[device.maker]
        for name in recipe.autotune.attention:
            if name in foreign:
                raise ValueError(f"autotune.attention '{name}' does not exist on the {family}")
    if recipe.quantize is None or device.maker == "cpu":
        return  # on a CPU the types are computed with in software: slow and right
    scheme = recipe.quantize.scheme
    if "fp8" in scheme and not device.fp8:
        raise ValueError(
            f"quantize.scheme '{scheme}' needs FP8, which the {family} has not: leave 'quantize' out, "
            "or quantize for another device"
        )
    if scheme == "mxfp4" and not device.mxfp4:
        raise ValueError(
            f"quantize.scheme 'mxfp4' would be emulated on the {family}, slower than unquantized: "
            f"take {'ptpc_fp8' if device.fp8 else 'mxfp4_weight_only'}"
        )
