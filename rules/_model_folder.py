"""What a model's folder must hold before anything is loaded from it: settings, whole weights, no pickles."""

from __future__ import annotations

import json
from pathlib import Path

from mxt.rule import StageError

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
OTHER_WEIGHTS = (*PICKLES, ".gguf", ".ggml", ".h5", ".msgpack", ".onnx")
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"


def check_config(folder: Path) -> None:
    """Raises StageError for a file, for an adapter's folder, and for one without a config.json."""
    name = folder.name
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise StageError(
            f"the model '{name}' {what}", where=str(folder), hint="give the folder that save_pretrained wrote"
        )
    if (folder / "config.json").is_file():
        return
    if (folder / "adapter_config.json").is_file():
        raise StageError(
            f"'{name}' is an adapter, not a model",
            where=str(folder),
            hint=f"{_base_of(folder)}give the base model, or merge the adapter into it (PEFT's "
            "merge_and_unload, then save_pretrained) and give that folder",
        )
    raise StageError(
        f"model folder '{name}' has no config.json",
        where=str(folder),
        hint="give the folder that save_pretrained wrote",
    )


def _base_of(folder: Path) -> str:
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        base = config.get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        return ""
    return f"its base is {base}; " if isinstance(base, str) and base else ""


def check_weights(folder: Path) -> None:
    """Raises StageError where the safetensors are not all there; other formats are never loaded."""
    name = folder.name
    index = folder / INDEX
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise StageError(f"{INDEX} of model folder '{name}' cannot be read", where=str(index)) from None
        missing = [s for s in shards if not (folder / str(s)).is_file()]
        if missing:
            raise StageError(
                f"model folder '{name}' lacks {len(missing)} of {len(shards)} files of weights: "
                + ", ".join(map(str, missing[:3]))
                + (", ..." if missing[3:] else ""),
                where=str(folder),
                hint="copy or download the folder again, whole",
            )
        return
    if (folder / "model.safetensors").is_file():
        return
    parts = sorted(p.name for p in folder.glob("model-*.safetensors"))
    if parts:
        raise StageError(
            f"model folder '{name}' has {parts[0]} and no {INDEX}, which says what is in which",
            where=str(folder),
            hint="copy or download the folder again, whole",
        )
    others = sorted(p.name for p in folder.iterdir() if p.name.endswith(OTHER_WEIGHTS))
    if others:
        raise StageError(
            f"model folder '{name}' has no safetensors, but {others[0]}",
            where=str(folder),
            hint=conversion(others[0]),
        )
    raise StageError(f"model folder '{name}' has no weights (model.safetensors)", where=str(folder))


def check_adapter(folder: Path) -> None:
    """Raises StageError for an adapter that is no safetensors."""
    if (folder / ADAPTER).is_file():
        return
    others = (
        sorted(p.name for p in folder.iterdir() if p.name.endswith(OTHER_WEIGHTS)) if folder.is_dir() else []
    )
    raise StageError(
        f"adapter folder '{folder.name}' has no {ADAPTER}" + (f", but {others[0]}" if others else ""),
        where=str(folder),
        hint=conversion(others[0]) if others else "give the folder that PEFT's save_pretrained wrote",
    )


def conversion(file: str) -> str:
    """How to come from another format to safetensors."""
    if not file.endswith(PICKLES):
        return "other formats are not loaded; look for the model as transformers saves it"
    return (
        "pickles can run code when they are loaded, so they are not; if you trust this one, convert it once: "
        "transformers' AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW), the tokenizer's "
        "likewise (of an adapter: PEFT's AutoPeftModelForCausalLM)"
    )
