"""What other trainers call things: for a key that a recipe does not know, where it is set here."""

from __future__ import annotations

_PACKING = "packing is set in data.pack.strategy: 'bfd' packs and keeps documents apart, 'none' does not pack"
_STEP = "train.batch_size counts the sequences of a step; the plan splits it, by autotune.micro_batch"
_MODEL = "name the model in model.hub.repo, or its folder in model.path"
_RECOMPUTE = "what is computed again is chosen by the plan, among autotune.recompute"
_SEVERAL = "several GPUs are set in hardware.gpus and train.parallel"
_TYPE = "the type is set in train.dtype: bfloat16 or float32"
_ATTENTION = "attention is chosen by the plan, among autotune.attention"
_LENGTH = "the length of a sequence is set in data.pack.max_length"

ELSEWHERE: dict[str, str] = {
    "packing": _PACKING,
    "packing_strategy": _PACKING,
    "sample_packing": _PACKING,
    "neat_packing": _PACKING,
    "wrapped": _PACKING,
    "learning_rate": "it is called train.lr",
    "num_train_epochs": "it is called train.epochs",
    "num_epochs": "it is called train.epochs",
    "lr_scheduler": "it is called train.scheduler",
    "lr_scheduler_type": "it is called train.scheduler",
    "warmup_steps": "it is a part of the steps here: train.warmup_ratio",
    "adam_beta1": "both betas are in train.betas",
    "adam_beta2": "both betas are in train.betas",
    "optim": "it is called train.optimizer",
    "save_steps": "it is called train.checkpoint_steps",
    "per_device_train_batch_size": _STEP,
    "micro_batch_size": _STEP,
    "gradient_accumulation_steps": _STEP,
    "global_batch_size": "it is called train.batch_size",
    "gradient_checkpointing": _RECOMPUTE,
    "activation_checkpointing": _RECOMPUTE,
    "bf16": _TYPE,
    "fp16": _TYPE,
    "tf32": _TYPE,
    "torch_dtype": _TYPE,
    "precision": _TYPE,
    "flash_attention": _ATTENTION,
    "flash_attn": _ATTENTION,
    "attn_implementation": _ATTENTION,
    "torch_compile": "compiling is chosen by the plan, among autotune.compile",
    "deepspeed": _SEVERAL,
    "fsdp": _SEVERAL,
    "num_gpus": _SEVERAL,
    "n_gpus": _SEVERAL,
    "world_size": _SEVERAL,
    "max_seq_length": _LENGTH,
    "max_seq_len": _LENGTH,
    "sequence_len": _LENGTH,
    "cutoff_len": _LENGTH,
    "model_name_or_path": _MODEL,
    "base_model": _MODEL,
    "datasets": "rows are named in data.files or data.hub",
    "dataset": "rows are named in data.files or data.hub",
    "train_file": "rows are named in data.files or data.hub",
    "rank": "the rank is set in train.lora.r",
    "lora_r": "the rank is set in train.lora.r",
    "lora_rank": "the rank is set in train.lora.r",
    "lora_alpha": "it is set in train.lora.alpha",
    "lora_dropout": "it is set in train.lora.dropout",
    "lora_target_modules": "it is set in train.lora.targets",
    "target_modules": "it is set in train.lora.targets",
    "load_in_4bit": "4-bit weights under adapters are set by train.lora.base: nf4",
    "qlora": "4-bit weights under adapters are set by train.lora.base: nf4",
    "full_determinism": "it is called train.determinism",
    "val_set_size": "held-out rows are a file of their own, judged by a task in eval.tasks",
    "eval_dataset": "held-out rows are a file of their own, judged by a task in eval.tasks",
}
