"""Models that come with Python files of their own: they run by the digest in the recipe, and not else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from blake3 import blake3

from mxt.errors import StageError
from rules._code import code_files, digest_of, digests_of, may_run
from rules._runtime import load_model, load_tokenizer
from tests.rules import tiny_model
from tests.rules.conftest import Tiny
from tests.rules.stage import run_stage
from tests.rules.test_train import task

CONFIGURATION = """
from transformers import Qwen3Config

class OwnConfig(Qwen3Config):
    model_type = "own"
"""
MODELING = """
import os
from pathlib import Path

from transformers import Qwen3ForCausalLM

from .configuration_own import OwnConfig
from .parts import SCALE

if "MXT_TEST_MARK" in os.environ:
    Path(os.environ["MXT_TEST_MARK"]).touch()

class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits * SCALE
        return out
"""
FILES = {"configuration_own.py": CONFIGURATION, "modeling_own.py": MODELING, "parts.py": "SCALE = 2.0\n"}
FILES["extra/tool.py"] = "raise RuntimeError('never imported')\n"


@pytest.fixture
def own(tiny: Tiny, tmp_path: Path) -> Path:
    """A folder of a model whose class is its own."""
    folder = tmp_path / "own"
    shutil.copytree(tiny.model, folder)
    config = json.loads((folder / "config.json").read_text())
    names = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    config |= {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where this process keeps copies of code; one place, as what was imported from it stays imported."""
    return str(tmp_path_factory.mktemp("modules"))


@pytest.fixture
def mark(tmp_path: Path, modules: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the model's code has run."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", modules)
    monkeypatch.setenv("MXT_TEST_MARK", str(tmp_path / "mark"))
    return tmp_path / "mark"


def digest(folder: Path) -> str:
    return digest_of(digests_of(code_files(folder)))


def test_the_digest_is_what_ordinary_tools_make_of_the_files(own: Path) -> None:
    assert list(code_files(own)) == ["configuration_own.py", "extra/tool.py", "modeling_own.py", "parts.py"]
    if shutil.which("b3sum") is None:
        lines = "".join(f"{blake3((own / n).read_bytes()).hexdigest()}  {n}\n" for n in sorted(FILES))
        assert digest(own) == blake3(lines.encode()).hexdigest()
        return
    script = "find . -name '*.py' -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' b3sum | b3sum --no-names"
    done = subprocess.run(["bash", "-c", script], cwd=own, capture_output=True, text=True, check=True)
    assert digest(own) == done.stdout.strip()


def test_code_runs_only_by_its_digest(own: Path, mark: Path) -> None:
    for trusted in (None, "ignore", "unpinned", "0" * 64):
        with pytest.raises(StageError):
            load_model(own, code=trusted)
        assert not mark.exists(), trusted
    import torch

    model = load_model(own, code=digest(own))
    assert mark.exists()
    assert type(model).__name__ == "OwnForCausalLM"
    ids = torch.arange(8)[None]
    with torch.no_grad():
        twice = model(input_ids=ids).logits
        plain = super(type(model), model).forward(input_ids=ids).logits
    assert torch.equal(twice, 2 * plain)
    assert load_tokenizer(own, digest(own))("the cat")["input_ids"]


def test_what_is_wrong_with_code_is_said_with_its_files(own: Path, mark: Path) -> None:
    with pytest.raises(StageError) as caught:
        load_model(own)
    assert caught.value.message == (
        "model folder 'own' comes with code of its own: "
        "configuration_own.py, extra/tool.py, modeling_own.py, parts.py"
    )
    before = digest(own)
    (own / "parts.py").write_text("SCALE = 3.0\n")
    with pytest.raises(StageError) as caught:
        load_model(own, code=before)
    assert caught.value.message == (
        "the code of model folder 'own' is not what model.trust_remote_code trusts: "
        f"its digest is {digest(own)}, not {before}"
    )
    assert f"    {blake3(b'SCALE = 3.0' + bytes([10])).hexdigest()}  parts.py" in caught.value.excerpt.split(
        "\n"
    )
    assert not mark.exists()


def test_a_file_more_is_other_code(own: Path) -> None:
    before = digest(own)
    (own / "extra/more.py").write_text("")
    with pytest.raises(StageError, match="is not what model"):
        may_run(own, before)


def test_code_behind_a_link_counts_and_a_link_upwards_ends(own: Path, tmp_path: Path) -> None:
    before = digest(own)
    (own / "round").symlink_to(own, target_is_directory=True)
    assert digest(own) == before
    (tmp_path / "else").mkdir()
    (tmp_path / "else/hidden.py").write_text("")
    (own / "linked").symlink_to(tmp_path / "else", target_is_directory=True)
    assert "linked/hidden.py" in code_files(own)
    (own / "two\nlines.py").write_text("")
    with pytest.raises(StageError, match="has a name that no file may have"):
        code_files(own)


def test_ignored_code_leaves_a_model_that_transformers_knows(own: Path, mark: Path) -> None:
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    assert type(load_model(own, code="ignore")).__name__ == "Qwen3ForCausalLM"
    assert not mark.exists()


def test_a_model_with_its_own_class_is_measured_trained_and_loaded_again(
    own: Path, tiny: Tiny, tmp_path: Path, mark: Path
) -> None:
    """What full training writes comes with the same code, so the same digest holds."""
    trusted = {"model.trust_remote_code": digest(own)}
    few = {"train.max_steps": 2}
    job = task(Tiny(own, tiny.packed), tmp_path / "a", lora=False, **trusted, **few)
    done = run_stage("rules.train:train", tmp_path / "a", job)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "a/model"
    assert digest(made) == trusted["model.trust_remote_code"]
    model = load_model(made, code=digest(made))
    assert type(model).__name__ == "OwnForCausalLM"
    assert mark.exists()
    from tests.rules.test_probe import RECIPE

    small = {"autotune.budget_s": 0.5, "autotune.attention": ["sdpa"], "autotune.micro_batch": [2]}
    job = {
        "config": {**RECIPE, **small, "autotune.compile": ["none"], **trusted},
        "platform": tiny_model.PLATFORM,
        "inputs": {"model": own},
        "outputs": {"plan": "plan.json"},
    }
    done = run_stage("rules.probe:probe", tmp_path / "b", job)
    assert done.returncode == 0, done.stderr
