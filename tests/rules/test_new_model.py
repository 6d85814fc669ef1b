"""A new model: the same bytes in every process, and pre-training that a kill does not change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mxt.errors import StageError
from mxt.rule import Run
from rules.init_model import CHAT_TEMPLATE
from rules.pretrain import expert_load, learning_rate, load_facts
from tests.rules.stage import command, run_stage
from tests.rules.tiny_model import WORDS

INIT: dict[str, Any] = {
    "meta.seed": 7,
    "model.init.vocab_size": 300,
    "model.init.hidden_size": 32,
    "model.init.intermediate_size": 64,
    "model.init.num_hidden_layers": 1,
    "model.init.num_attention_heads": 2,
    "model.init.num_key_value_heads": 1,
    "model.init.head_dim": 16,
    "model.init.max_position_embeddings": 64,
    "model.init.rope_theta": 1000.0,
    "model.init.tie_word_embeddings": True,
    "model.init.experts.count": None,
    "model.init.experts.per_token": None,
    "model.init.experts.intermediate_size": None,
}
EXPERTS: dict[str, Any] = {
    "model.init.experts.count": 4,
    "model.init.experts.per_token": 2,
    "model.init.experts.intermediate_size": 32,
}
PRETRAIN: dict[str, Any] = {
    "meta.seed": 7,
    "model.pretrain.steps": 60,
    "model.pretrain.batch_size": 4,
    "model.pretrain.length": 32,
    "model.pretrain.lr": 0.01,
    "model.pretrain.weight_decay": 0.0,
    "model.pretrain.warmup_steps": 5,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import random

    rng = random.Random(1)
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    texts = [" ".join(rng.choices(WORDS, k=12)) + "." for _ in range(100)]
    path.write_text("\n\n".join([*texts, "<|im_start|>user\nhello<|im_end|>\n"]))
    return path


def init(folder: Path, corpus: Path, **changes: Any) -> Path:
    task = {"config": {**INIT, **changes}, "inputs": {"corpus": [corpus]}, "outputs": {"model": "model/"}}
    done = run_stage("rules.init_model:init_model", folder, task)
    assert done.returncode == 0, done.stderr
    return folder / "model"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    return init(tmp_path_factory.mktemp("init"), corpus)


def pretrain_task(model: Path, corpus: Path, **more: Any) -> dict[str, Any]:
    return {
        "config": PRETRAIN,
        "unkeyed": {"model.pretrain.checkpoint_steps": 10},
        "inputs": {"model": model, "corpus": [corpus]},
        "outputs": {"model": "model/"},
        **more,
    }


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, model: Path, corpus: Path) -> Path:
    folder = tmp_path_factory.mktemp("pretrain")
    done = run_stage("rules.pretrain:pretrain", folder, pretrain_task(model, corpus))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_two_processes_make_the_same_bytes_and_another_seed_makes_others(
    tmp_path: Path, model: Path, corpus: Path
) -> None:
    with ThreadPoolExecutor() as pool:
        again = pool.submit(init, tmp_path / "again", corpus)
        changed = pool.submit(init, tmp_path / "other", corpus, **{"meta.seed": 8})
    assert contents(again.result()) == contents(model)
    other = contents(changed.result())
    assert {n for n, b in contents(model).items() if other[n] != b} == {"model.safetensors"}


def test_a_new_model_has_what_every_later_stage_needs(model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    config = AutoModelForCausalLM.from_pretrained(model).config
    assert config.model_type == "qwen3"
    assert len(tokenizer) == config.vocab_size == 300
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.chat_template == CHAT_TEMPLATE
    said = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]
    made = tokenizer.apply_chat_template(
        said, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    learned = [t for t, m in zip(made["input_ids"], made["assistant_masks"], strict=True) if m]
    assert tokenizer.decode(learned) == "sat<|im_end|>"
    ids = tokenizer("<|im_start|>user")["input_ids"]
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert all(b"corpus" not in data and b"/tmp" not in data for data in contents(model).values())


@pytest.mark.parametrize(
    ("text", "said", "where"),
    [
        (b"too little text", "tokens where model.init.vocab_size is 300", ""),
        (b"\n\n \n", "the corpus holds no text", "corpus.txt"),
        (b"good\n\nb\xffd", "invalid UTF-8 in the corpus", "corpus.txt:3"),
    ],
)
def test_an_unfit_corpus_is_refused(tmp_path: Path, text: bytes, said: str, where: str) -> None:
    from rules.init_model import train_tokenizer

    (tmp_path / "corpus.txt").write_bytes(text)
    with pytest.raises(StageError) as caught:
        train_tokenizer(Run(inputs={"corpus": [tmp_path / "corpus.txt"]}), 300, 64)
    assert said in caught.value.message
    assert caught.value.where == where


def test_pretraining_learns_and_reports_each_step(pretrained: Path, model: Path) -> None:
    lines = [json.loads(x) for x in (pretrained / "evidence/metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines] == list(range(1, 61))
    assert lines[-1]["loss"] < lines[0]["loss"] - 1
    assert all(x["tokens_per_s"] > 0 for x in lines)
    made, before = contents(pretrained / "model"), contents(model)
    assert made.keys() == before.keys()
    assert {n for n in made if made[n] != before[n]} <= {"model.safetensors", "generation_config.json"}


@pytest.mark.slow
def test_killed_and_resumed_pretraining_ends_in_the_same_bytes(
    tmp_path: Path, pretrained: Path, model: Path, corpus: Path
) -> None:
    kill_and_resume(tmp_path, model, corpus)
    steps = [
        json.loads(x)["step"] for x in (tmp_path / "second/evidence/metrics.jsonl").read_text().splitlines()
    ]
    assert steps == list(range(1, 61))  # those before the kill came with the checkpoint
    assert contents(tmp_path / "second/model") == contents(pretrained / "model")


@pytest.mark.slow
def test_a_mixture_of_experts_is_made_and_pretrained_alike_each_time(tmp_path: Path, corpus: Path) -> None:
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(init, tmp_path / name, corpus, **EXPERTS) for name in ("one", "two")]
    model, again = (m.result() for m in made)
    assert contents(model) == contents(again)
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["num_local_experts"]) == ("qwen3_moe", 4)
    assert (config["num_experts_per_tok"], config["norm_topk_prob"]) == (2, True)

    whole = tmp_path / "whole"
    done = run_stage("rules.pretrain:pretrain", whole, pretrain_task(model, corpus))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(x) for x in (whole / "evidence/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < lines[0]["loss"] - 1
    sums = [p for p in json.loads((whole / "evidence/panels.json").read_text()) if "facts" in p]
    shown = dict(sums[-1]["facts"])
    assert shown["idlest expert at the end, of an even share"] != "0%"
    kill_and_resume(tmp_path, model, corpus)
    assert contents(tmp_path / "second/model") == contents(whole / "model")


def test_the_share_of_an_expert() -> None:
    import torch

    one_layer = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 9.0, 8.0, 1.0]])
    assert expert_load((one_layer, one_layer), 2) == [1, 2, 1, 0] * 2
    assert load_facts([]) == ()
    assert [v for _, v in load_facts([1.0, 2.0, 1.0, 0.0])] == ["200%", "0%"]


def kill_and_resume(tmp_path: Path, model: Path, corpus: Path) -> None:
    """SIGKILL after a checkpoint of pre-training in first/; second/ goes on from there."""
    task = pretrain_task(model, corpus, progress=str(tmp_path / "progress"))
    argv, environment = command("rules.pretrain:pretrain", tmp_path / "first", dict(task))
    process = subprocess.Popen(argv, env=environment, cwd=tmp_path / "first/work", stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "progress").glob("0*/manifest.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "first/model/model.safetensors").exists()

    done = run_stage(
        "rules.pretrain:pretrain",
        tmp_path / "second",
        pretrain_task(model, corpus, progress=str(tmp_path / "progress")),
    )
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stdout


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [learning_rate(i, 100, 10, 1.0) for i in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9]
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.05 <= rates[-1] < 0.06
    assert learning_rate(0, 100, 0, 1.0) == 1.0
