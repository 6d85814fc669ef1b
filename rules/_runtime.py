"""What every stage that loads torch does first: a quiet, offline, private and repeatable process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.rule import Run, StageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def prepare(run: Run, *, offline: bool = True, deterministic: bool = False) -> None:
    """Set the environment that the libraries read at import, then torch's threads.

    Must run before the first import of torch, transformers or datasets. offline=False leaves the
    Hub reachable. deterministic=True makes torch raise on any operation without a repeatable form.
    """
    scratch = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    quick = run.accelerants.absolute() if run.accelerants else scratch
    environment = {
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_DATASETS_OFFLINE": "1" if offline else "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": str(scratch / "hf"),
        "HF_DATASETS_CACHE": str(scratch / "hf/datasets"),
        "HF_MODULES_CACHE": str(scratch / "hf/modules"),
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "TQDM_DISABLE": "1",
        "OMP_NUM_THREADS": str(run.threads),
        "MKL_NUM_THREADS": str(run.threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCHINDUCTOR_CACHE_DIR": str(quick / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a pool of compilers outlives us and costs seconds to start
        "TORCHINDUCTOR_MAX_AUTOTUNE": "0",  # choices are the probe's, never made while training
        "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": "0",
        "TORCHINDUCTOR_BENCHMARK_FUSION": "0",
        "TORCHINDUCTOR_DETERMINISTIC": "1" if deterministic else "0",
        "TORCH_EXTENSIONS_DIR": str(quick / "extensions"),
    }
    os.environ.update(environment)
    run.report(note="loading libraries")
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(run.threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:  # something has already run in parallel; results do not depend on it
            pass
    # use_deterministic_algorithms() would import the whole compiler to tell it, too: 4 s, most stages
    # never compile; the variable above tells it when it is loaded
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # on by default with the line above: it fills every new tensor with NaN, to make reading one before
    # writing it repeatable; nothing here reads one, and the fused loss takes twice as long with it
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = deterministic


def load_model(
    folder: Path, *, dtype: str = "auto", attention: str = "sdpa", code: str | None = None
) -> PreTrainedModel:
    """The causal language model of a folder. dtype: "auto" for the one it is stored in.

    code: model.trust_remote_code, without which no code of the folder runs. Raises StageError naming the
    folder when it holds no model, or code that is not trusted. Weights are safetensors or not loaded.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    from rules._code import may_run
    from rules._model_folder import check_config, check_weights

    check_config(folder)
    check_weights(folder)
    config = folder / "config.json"
    refuse_small_experts(config)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            attn_implementation=attention,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=may_run(folder, code),
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise StageError(
            f"model folder '{folder.name}' cannot be loaded: {first_line(error)}", where=str(folder)
        ) from error
    return model


def refuse_small_experts(config: Path) -> None:
    """Raises StageError for a mixture of experts as Quark exports it: its scales would be forgotten."""
    import json

    try:
        said = json.loads(config.read_text(encoding="utf-8"))
        quark = said["quantization_config"]["quant_method"] == "quark"
    except (OSError, ValueError, KeyError, TypeError):
        return  # the loader says what is wrong with it
    said = said.get("text_config") or said
    if quark and any(said.get(name) for name in ("num_local_experts", "num_experts", "n_routed_experts")):
        raise StageError(
            f"model folder '{config.parent.name}' is a quantized mixture of experts, "
            "which transformers would load without its scales",
            where=str(config.parent),
            hint="give the model before quantizing; serve the quantized one with vLLM",
        )


def load_tokenizer(folder: Path, code: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder. Raises StageError when there is none. code: as of load_model."""
    from transformers import AutoTokenizer

    from rules._code import may_run

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=may_run(folder, code)
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise StageError(
            f"model folder '{folder.name}' has no usable tokenizer: {first_line(error)}",
            where=str(folder),
            hint="save the tokenizer beside the weights",
        ) from error
    return tokenizer


def load_tuned(
    model: Path, adapter: Path | None, *, attention: str = "sdpa", code: str | None = None
) -> PreTrainedModel:
    """The model with its adapter merged into the weights, in the type it is stored in."""
    base = load_model(model, attention=attention, code=code)
    if adapter is None:
        return base
    from peft import PeftModel
    from safetensors import SafetensorError

    from rules._model_folder import check_adapter

    check_adapter(adapter)

    try:
        merged: PreTrainedModel = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise StageError(
            f"adapter does not fit the model: {first_line(error)}",
            where=str(adapter),
            hint="build both from the same recipe",
        ) from error
    return merged


def first_line(error: BaseException) -> str:
    """The first non-empty line of an error's text, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def versions(*names: str) -> dict[str, str]:
    """Installed versions without the local part: torch 2.13.0+cpu is 2.13.0."""
    from importlib.metadata import version

    return {name: version(name).partition("+")[0] for name in names}


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Each leaf in which two mappings differ, as "name: WANTED, here FOUND"."""
    out: list[str] = []
    for key in sorted({*wanted, *found}):
        a, b = wanted.get(key), found.get(key)
        name = f"{prefix}{key}"
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out += differences(a, b, f"{name}.")
        elif a != b:
            out.append(f"{name}: plan {a!r}, here {b!r}")
    return out
