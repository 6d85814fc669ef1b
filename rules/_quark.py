"""AMD Quark, imported at the cost of what is needed, and used for one thing: FP8 weights.

Quark compiles a C++ extension at its first import; it lies in TORCH_EXTENSIONS_DIR, which the
stage keeps among its accelerants (rules/quark_extension.py makes it).

Scheme ptpc_fp8 is one input scale a token where a server runs the result. Quark's own simulation in
transformers, which is what this process can check, shares that scale between the rows of a batch at
the same position (its ch_axis is 1 of batch x length x width): rows of a batch then change each
other's logits. For one row it is exact. The weights, all that is delivered, are not affected.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    config = quark.LLMTemplate.get(kind).get_config(scheme=scheme, exclude_layers=list(exclude))
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


def quantized_layers(folder: Path) -> list[str]:
    """Names of the exported weights that are FP8. Raises StageError when there is none."""
    from safetensors import safe_open

    found = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as weights:
            names = list(weights.keys())
            found += [n for n in names if weights.get_slice(n).get_dtype() == "F8_E4M3"]
    if not found:
        raise StageError(
            "the result holds no quantized layer",
            hint="quantize.exclude leaves none: shorten it, or leave the 'quantize' section out",
        )
    return found
