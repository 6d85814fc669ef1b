"""AMD Quark, imported at the cost of what is needed, and used for one thing: FP8 weights.

A mixture of experts holds all experts of a layer in one parameter, which Quark cannot quantize as it is:
its experts are taken apart into linear layers first, and exported as such (experts.0.gate_proj and so on),
which is the form that vLLM reads. transformers 5 puts them together again when it loads them and forgets
their scales, without an error; so they are loaded again by Quark, and load_model refuses such a folder.
The router stays as it is: it decides where tokens go.

Quark compiles a C++ extension at its first import; it lies in TORCH_EXTENSIONS_DIR, which the
stage keeps among its accelerants (rules/quark_extension.py makes it).

Scheme ptpc_fp8 is one input scale a token where a server runs the result. Quark's own simulation in
transformers, which is what this process can check, shares that scale between the rows of a batch at
the same position (its ch_axis is 1 of batch x length x width): rows of a batch then change each
other's logits. For one row it is exact. Within experts, where inputs are tokens x width, it is one scale a
column. The weights, all that is delivered, are not affected.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mxt.errors import did_you_mean
from mxt.rule import StageError

NEEDED = ("g++", "ninja")


def import_quark() -> Any:
    """The module quark.torch. Raises StageError when what it compiles with is missing."""
    _find_ninja()
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        raise StageError(
            f"quantizing needs '{missing[0]}', which is not on PATH",
            hint="Quark compiles a C++ extension: install g++ and ninja (apt install g++ ninja-build)",
        )
    _remove_stale_locks()
    os.environ["QUARK_DISABLE_COMPILE"] = "1"  # same bytes; compiling each observer costs 25 s
    with _only_files_with_experts():
        import quark.torch
    return quark.torch


def _find_ninja() -> None:
    """Put the ninja of the Python package `ninja` on PATH where the system has none."""
    if shutil.which("ninja") is None:
        try:
            import ninja
        except ImportError:
            return
        os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{ninja.BIN_DIR}"


def _remove_stale_locks() -> None:
    """torch waits for ever for a lock file that a killed process left; here no other can hold it."""
    for lock in Path(os.environ["TORCH_EXTENSIONS_DIR"]).glob("**/lock"):
        lock.unlink()


@contextmanager
def _only_files_with_experts() -> Iterator[None]:
    """Let Quark's scan for expert layers parse only the files that name its decorator.

    At import it parses every one of transformers' model files in search of classes decorated with
    `use_experts_implementation`: 11 s; of those that hold that word, 1 s, and it finds the same.
    """
    original = pathlib.Path.rglob

    def rglob(self: Path, pattern: str, *args: Any, **kwargs: Any) -> Iterator[Path]:
        for path in original(self, pattern, *args, **kwargs):
            if pattern != "modeling_*.py" or b"use_experts_implementation" in path.read_bytes():
                yield path

    pathlib.Path.rglob = rglob  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        pathlib.Path.rglob = original  # type: ignore[method-assign]


def compiler() -> dict[str, str]:
    """Path and version of the C++ compiler, which the extension was built with."""
    import subprocess

    path = shutil.which("g++") or ""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False) if path else None
    return {"path": path, "version": said.stdout.partition("\n")[0] if said else ""}


def take_experts_apart(model: Any) -> None:
    """Give a mixture of experts a linear layer for each matrix of each expert; it computes the same."""
    from quark.torch.utils.llm import preprocess_for_quantization

    from rules._training import fused_experts

    preprocess_for_quantization(model)
    if fused_experts(model):
        raise StageError(
            f"Quark cannot take the experts of a model of type '{model.config.model_type}' apart",
            hint="leave the 'quantize' section out of the recipe",
        )


def routers(model: Any) -> list[str]:
    """Names of the layers that send tokens to experts: after take_experts_apart a kind of linear layer."""
    import torch

    named = model.named_modules()
    return [n for n, m in named if isinstance(m, torch.nn.Linear) and "Router" in type(m).__name__]


def check_exclude(model: Any, exclude: Sequence[str]) -> None:
    """Each name or pattern must mean a linear layer. Raises StageError for one that means none."""
    from fnmatch import fnmatch

    import torch

    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    for pattern in exclude:
        if not any(fnmatch(name, pattern) for name in linear):
            raise StageError(
                f"no linear layer is named '{pattern}' (quantize.exclude){did_you_mean(pattern, linear)}",
                hint=f"layers are named as '{linear[0]}'; * stands for any text",
            )


def quantize(
    quark: Any, model: Any, scheme: str, exclude: Sequence[str], rows: Sequence[dict[str, Any]]
) -> Any:
    """The model with FP8 linear layers, frozen. rows: what the model is called with to calibrate."""
    import torch

    kind = model.config.model_type
    known = list(quark.LLMTemplate.list_available())
    if kind not in known:
        raise StageError(
            f"Quark has no template for models of type '{kind}'{did_you_mean(kind, known)}",
            hint="leave the 'quantize' section out of the recipe",
        )
    config = quark.LLMTemplate.get(kind).get_config(scheme=scheme, exclude_layers=[*exclude, *routers(model)])
    # measured scales: the largest of a layer's experts is that of all, as an expert that no calibration row
    # reaches would otherwise get 1.0 (it has no effect on scales that are not measured, or without experts)
    config.sync_moe_expert_input_amax = True
    quantizer = quark.ModelQuantizer(config)
    loader = torch.utils.data.DataLoader(list(rows), batch_size=None) if rows else None
    with torch.no_grad():
        return quantizer.freeze(quantizer.quantize_model(model, loader))


def export(quark: Any, model: Any, folder: Path) -> None:
    """Write a frozen model as a Hugging Face folder of safetensors. The model is spent afterwards."""
    # without a name Quark cannot fill up from the folder that the base was loaded from
    model.config._name_or_path = model.name_or_path = ""
    quark.export_safetensors(
        model, str(folder), custom_mode="quark", weight_format="real_quantized", pack_method="reorder"
    )


def load_again(quark: Any, folder: Path) -> Any:
    """An exported mixture of experts, by Quark's own importer."""
    return quark.import_model_from_safetensors(
        None, str(folder), device="cpu", attn_implementation="eager"
    ).eval()


class Parts(NamedTuple):
    """Of an exported model: quantized layers; and of all weights, and of those of experts, how many there are
    and how many are FP8. Scales do not count."""

    layers: int
    weights: int
    quantized: int
    expert_weights: int
    quantized_experts: int


def quantized_parts(folder: Path) -> Parts:
    """What is FP8 in an exported folder. Raises StageError when nothing is."""
    from math import prod

    from safetensors import safe_open

    layers, weights, quantized = 0, [0, 0], [0, 0]  # all, of experts
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as held:
            for name in held.keys():  # noqa: SIM118 - no mapping
                if name.endswith("_scale"):
                    continue
                part = held.get_slice(name)
                size, small = prod(part.get_shape()), part.get_dtype() == "F8_E4M3"
                layers += small
                for i in range(2 if ".experts." in name else 1):
                    weights[i] += size
                    quantized[i] += size * small
    if not layers:
        raise StageError(
            "the result holds no quantized layer",
            hint="quantize.exclude leaves none: shorten it, or leave the 'quantize' section out",
        )
    return Parts(layers, weights[0], quantized[0], weights[1], quantized[1])
