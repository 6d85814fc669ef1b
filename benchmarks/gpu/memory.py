"""Peak memory and speed of steps by TRL's SFTTrainer on one GPU: what docs/estimate.md is held against.

    python benchmarks/gpu/memory.py --out memory.jsonl          every case that fits, a JSON line each
    python benchmarks/gpu/memory.py --only qwen3_8b-lora        some

Random weights of true configurations, random tokens, rows of two documents each, no attention mask, as
rules/train.py feeds the trainer: adapters in fp32 as PEFT makes them, everything else in bf16. Needs torch,
transformers, peft, trl and datasets. A case that does not fit is a line, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
QWEN3 = {"vocab_size": 151936, "head_dim": 128, "rms_norm_eps": 1e-6, "max_position_embeddings": 40960}
MODELS: dict[str, dict[str, Any]] = {
    "qwen3_8b": QWEN3
    | {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "tie_word_embeddings": False},
    "qwen3_1b7": QWEN3
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16}
    | {"num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen3_0b6": QWEN3
    | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
    | {"num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen3_4b": QWEN3
    | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen3_14b": QWEN3
    | {"hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40, "num_attention_heads": 40}
    | {"num_key_value_heads": 8, "tie_word_embeddings": False},
    "qwen3_30b_a3b": QWEN3
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32}
    | {"num_key_value_heads": 4, "tie_word_embeddings": False, "num_experts": 128, "num_experts_per_tok": 8}
    | {"moe_intermediate_size": 768, "norm_topk_prob": True},
}


class Case(NamedTuple):
    """rank: of the adapters on `targets`; 0 trains all weights. recompute: none or all."""

    model: str
    rank: int
    targets: tuple[str, ...]
    length: int
    micro_batch: int
    compile: str
    recompute: str

    @property
    def name(self) -> str:
        kind = f"lora{self.rank}x{len(self.targets)}" if self.rank else "full"
        size = f"{self.micro_batch}x{self.length}"
        return f"{self.model}-{kind}-{size}-{self.compile}-{self.recompute}"


LORA, QKVO = tuple(ALL), tuple(ALL[:4])
CASES = (
    Case("qwen3_8b", 16, LORA, 4096, 1, "none", "none"),
    Case("qwen3_8b", 16, LORA, 4096, 2, "none", "none"),
    Case("qwen3_8b", 16, LORA, 4096, 1, "none", "all"),
    Case("qwen3_8b", 16, LORA, 4096, 4, "none", "all"),
    Case("qwen3_8b", 16, LORA, 4096, 8, "none", "all"),
    Case("qwen3_8b", 16, LORA, 4096, 1, "inductor", "none"),
    Case("qwen3_8b", 16, LORA, 4096, 2, "inductor", "none"),
    Case("qwen3_8b", 16, LORA, 4096, 4, "inductor", "all"),
    Case("qwen3_8b", 16, QKVO, 4096, 2, "none", "none"),
    Case("qwen3_8b", 0, (), 4096, 1, "none", "none"),
    Case("qwen3_8b", 0, (), 4096, 4, "none", "all"),
    Case("qwen3_8b", 0, (), 4096, 1, "inductor", "none"),
    Case("qwen3_1b7", 16, LORA, 2048, 4, "none", "none"),
    Case("qwen3_1b7", 16, LORA, 8192, 2, "none", "none"),
    Case("qwen3_1b7", 0, (), 4096, 4, "none", "none"),
    Case("qwen3_1b7", 0, (), 4096, 4, "inductor", "none"),
    Case("qwen3_1b7", 0, (), 4096, 8, "none", "all"),
    Case("qwen3_30b_a3b", 32, QKVO, 4096, 1, "none", "none"),
    Case("qwen3_30b_a3b", 32, QKVO, 4096, 1, "none", "all"),
    Case("qwen3_8b", 16, LORA, 4096, 4, "inductor", "none"),
    # the constants of rules/_estimate were chosen by the cases above and had not seen those below
    Case("qwen3_14b", 16, LORA, 4096, 1, "none", "none"),
    Case("qwen3_14b", 16, QKVO, 4096, 2, "inductor", "none"),
    Case("qwen3_14b", 32, LORA, 8192, 4, "none", "all"),
    Case("qwen3_4b", 16, LORA, 8192, 1, "none", "none"),
    Case("qwen3_4b", 64, LORA, 2048, 8, "inductor", "all"),
    Case("qwen3_4b", 0, (), 4096, 2, "inductor", "none"),
    Case("qwen3_4b", 0, (), 2048, 4, "none", "none"),
    Case("qwen3_0b6", 0, (), 4096, 8, "none", "none"),
    Case("qwen3_0b6", 16, LORA, 1024, 8, "none", "none"),
    Case("qwen3_30b_a3b", 16, QKVO, 4096, 2, "inductor", "none"),
)


def make_model(case: Case) -> Any:
    import transformers

    sizes = MODELS[case.model]
    kind = "Qwen3Moe" if "num_experts" in sizes else "Qwen3"
    config = getattr(transformers, f"{kind}Config")(
        **sizes, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, use_cache=False
    )
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return getattr(transformers, f"{kind}ForCausalLM")(config)
    finally:
        torch.set_default_dtype(torch.float32)


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Peak memory in GiB and tokens a second of the steps behind the second."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    model = make_model(case)
    weights = torch.cuda.memory_allocated()
    accumulate = max(1, 4 // case.micro_batch)
    count = case.micro_batch * accumulate * steps
    half = case.length // 2
    positions = [*range(half), *range(case.length - half)]
    ids = torch.randint(0, 150_000, (count, case.length))
    rows = [{"input_ids": row.tolist(), "labels": row.tolist(), "position_ids": positions} for row in ids]

    def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {k: torch.tensor([e[k] for e in examples]) for k in ("input_ids", "labels", "position_ids")}

    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            ends.append(time.monotonic())

    from tokenizers import Tokenizer, models

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"<e>": 0}, [])), eos_token="<e>", pad_token="<e>"
    )
    lora = None
    if case.rank:
        lora = LoraConfig(
            r=case.rank, lora_alpha=2 * case.rank, target_modules=list(case.targets), task_type="CAUSAL_LM"
        )
    settings = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=case.micro_batch,
        gradient_accumulation_steps=accumulate,
        gradient_checkpointing=case.recompute == "all",
        optim="adamw_torch",
        max_length=case.length,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        bf16=False,
        fp16=False,
        remove_unused_columns=False,
        packing=False,
        padding_free=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = SFTTrainer(
        model=model,
        args=settings,
        data_collator=collate,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=lora,
        callbacks=[Clock()],
    )
    if case.compile == "inductor":
        from rules._compile_watch import compile_layers

        compile_layers(trainer.model)
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    kinds = sorted({str(p.dtype) for p in trainer.model.parameters() if p.requires_grad})
    trainer.train()
    tokens = case.micro_batch * accumulate * case.length
    spent = (ends[-1] - ends[1]) / (len(ends) - 2)
    return {
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        "weights_gib": round(weights / 2**30, 2),
        "trained": trained,
        "trained_types": kinds,
        "step_tokens": tokens,
        "tokens_per_s": round(tokens / spent),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also append the lines to this file")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--skip", type=int, default=0, help="so many cases at the beginning")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after this many")
    options = parser.parse_args()
    began = time.monotonic()
    device = torch.cuda.get_device_name()
    for case in CASES[options.skip :]:
        if options.only not in case.name or time.monotonic() - began > options.seconds:
            continue
        start = time.monotonic()
        try:
            found = measure(case, options.steps)
        except torch.OutOfMemoryError as error:
            found = {"failed": str(error).splitlines()[0][:120]}
        except Exception as error:  # noqa: BLE001 - the other cases are worth having
            found = {"failed": f"{type(error).__name__}: {error}"[:400]}
        line = json.dumps(
            {"case": case.name, "device": device, **found, "seconds": round(time.monotonic() - start, 1)}
        )
        print(line, flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(line + "\n")
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
