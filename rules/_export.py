"""Writes adapters and models as Hugging Face folders whose bytes depend on nothing but what they hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rules._code import code_files

# of no effect on the adapter: where its base lay, which process and version wrote it
VOLATILE = ("base_model_name_or_path", "revision", "auto_mapping", "peft_version")
WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".gguf")
MODEL_FILES = ("config.json", "generation_config.json")


def write_adapter(model: Any, folder: Path) -> None:
    """adapter_model.safetensors and adapter_config.json, nothing else."""
    model.save_pretrained(str(folder), safe_serialization=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    for name in VOLATILE:
        if name in config:
            config[name] = None
    for name, value in config.items():
        if isinstance(value, list):
            config[name] = sorted(value, key=str)  # sets, in an order that changes with each process
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for path in folder.iterdir():
        if path.name not in ("adapter_model.safetensors", "adapter_config.json"):
            path.unlink()


def write_model(model: Any, source: Path, folder: Path) -> None:
    """The weights and configuration of a model, with the tokenizer files of the folder it came from."""
    model.save_pretrained(str(folder), safe_serialization=True)
    normalise_config(folder / "config.json", source)
    copy_companions(source, folder)


def normalise_config(path: Path, source: Path) -> None:
    """Sorted keys, no name of the folder that it was loaded from, and no trace of training."""
    config = json.loads(path.read_text())
    config.pop("_name_or_path", None)
    before = json.loads((source / "config.json").read_text())
    config.pop("use_cache", None)  # trainers turn it off
    if "use_cache" in before:
        config["use_cache"] = before["use_cache"]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def copy_companions(source: Path, folder: Path) -> None:
    """Tokenizer, chat template, licence: every file of a model folder beside weights and configuration."""
    for path in sorted(source.iterdir()):
        if path.is_file() and not path.name.endswith(WEIGHTS) and path.name not in MODEL_FILES:
            shutil.copyfile(path, folder / path.name)
    for name, path in code_files(source).items():  # all of it: the recipe has one digest of the whole
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
