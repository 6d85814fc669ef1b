"""Folders that are given as models: each usual mistake has its own message; pickles are not loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mxt.errors import StageError
from rules._model_folder import check_adapter, check_config, check_weights
from rules._runtime import load_model
from tests.rules.conftest import Tiny


def said(check: object, folder: Path) -> str:
    """The error without its place."""
    with pytest.raises(StageError) as caught:
        check(folder)  # type: ignore[operator]
    return f"{caught.value.message}; {caught.value.hint}"


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Path:
    shutil.copytree(tiny.model, tmp_path / "m")
    return tmp_path / "m"


def test_a_file_and_a_folder_of_something_else_are_no_models(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"")
    give = "give the folder that save_pretrained wrote"
    assert said(check_config, file) == f"the model 'm.safetensors' is a file; {give}"
    assert said(check_config, tmp_path / "x") == f"the model 'x' does not exist; {give}"
    assert said(check_config, tmp_path).endswith(f" has no config.json; {give}")


def test_an_adapter_is_told_from_a_model_and_names_its_base(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/adapter_config.json").write_text('{"base_model_name_or_path": "acme/base"}')
    assert said(load_model, tmp_path / "a") == (
        "'a' is an adapter, not a model; its base is acme/base; give the base model, or merge the adapter "
        "into it (PEFT's merge_and_unload, then save_pretrained) and give that folder"
    )


def test_weights_in_several_files_are_loaded_if_all_are_there(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    whole = load_model(folder)
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()
    parts = sorted(folder.glob("model-*.safetensors"))
    assert len(parts) > 2
    again = load_model(folder).state_dict()
    assert all(torch.equal(again[n], t) for n, t in whole.state_dict().items())

    parts[1].unlink()
    assert said(load_model, folder) == (
        f"model folder 'm' lacks 1 of {len(parts)} files of weights: {parts[1].name}; "
        "copy or download the folder again, whole"
    )
    (folder / "model.safetensors.index.json").unlink()
    assert said(check_weights, folder) == (
        f"model folder 'm' has {parts[0].name} and no model.safetensors.index.json, which says what is in "
        "which; copy or download the folder again, whole"
    )


def test_a_pickle_is_not_loaded_and_the_way_to_safetensors_is_said(folder: Path) -> None:
    import torch

    torch.save(load_model(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    convert = (
        "pickles can run code when they are loaded, so they are not; if you trust this one, convert it once: "
        "transformers' AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW), the tokenizer's "
        "likewise (of an adapter: PEFT's AutoPeftModelForCausalLM)"
    )
    assert (
        said(load_model, folder) == f"model folder 'm' has no safetensors, but pytorch_model.bin; {convert}"
    )
    (folder / "adapter_model.bin").write_bytes(b"")
    assert said(check_adapter, folder) == (
        f"adapter folder 'm' has no adapter_model.safetensors, but adapter_model.bin; {convert}"
    )


def test_what_is_there_and_broken_is_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no safetensors")
    assert said(load_model, folder).startswith("model folder 'm' cannot be loaded: ")
    (folder / "model.safetensors").unlink()
    assert said(load_model, folder) == "model folder 'm' has no weights (model.safetensors); "
    (folder / "model.safetensors.index.json").write_text(json.dumps(["x"]))
    assert said(load_model, folder) == "model.safetensors.index.json of model folder 'm' cannot be read; "
