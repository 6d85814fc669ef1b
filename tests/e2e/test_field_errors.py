"""The slips that people make in a recipe: what is said of each, where, and what to do, to the letter.

Each recipe goes through the real command, in this process to save its start; nothing is run by any of them.
"""

from __future__ import annotations

import contextlib
import io
import shutil

import pytest

from rules._devices import DEVICES
from rules._gated import gated
from tests.e2e.conftest import REPOSITORY, Workspace

RECIPE = """\
hardware:
  platform: cpu
autotune: {}
model:
  hub:
    repo: Qwen/Qwen3-8B
data:
  files: [rows-*.jsonl]
  pack:
    max_length: 1024
train:
  lr: 1e-4
  epochs: 1
  batch_size: 16
  lora:
    r: 16
eval:
  tasks: [talo.yaml]
  files: [talo.jsonl]
"""
CPU = "platform: cpu"
BUILD = 'load("@mxt//rules:finetune.mxt", "finetune")\nfinetune(name = "x", recipe = "x.yaml")\n'


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A package with rows, a task and the recipe."""
    folder = tmp_path_factory.mktemp("errors")
    made = Workspace(folder / "work space", folder / "home")
    shutil.copy(REPOSITORY / "MXTBUILD", made.root)
    shutil.copytree(REPOSITORY / "toolchains", made.root / "toolchains")
    made.write("p/MXTBUILD", BUILD)
    for name in ("talo.yaml", "talo.jsonl", "rows-0.jsonl", "rows-1.jsonl"):
        made.write(f"p/{name}", "{}\n")
    made.write("p/scored.yaml", "task: scored\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n")
    made.write("p/usual.yaml", "task: usual\noutput_type: multiple_choice\n")
    (made.root / "p/link.jsonl").symlink_to("rows-1.jsonl")
    return made


def said(ws: Workspace, *edits: tuple[str, str]) -> str:
    """What `mxt build -n` says of the recipe with these edits, and "" where it is fine."""
    from mxt.cli.main import main

    text = RECIPE
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    ws.write("p/x.yaml", text.encode())
    shown = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(shown),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        patch.chdir(ws.root)
        patch.setenv("XDG_CONFIG_HOME", str(ws.home / ".config"))
        patch.setenv("NO_COLOR", "1")
        patch.delenv("MXT_STORE", raising=False)
        code = main(["build", "-n", "//p:x"])
    assert code == (1 if shown.getvalue() else 0)
    return shown.getvalue()


def test_the_recipe_is_right(ws: Workspace) -> None:
    assert said(ws) == ""
    assert ws.run("build", "-n", "//p:x").code == 0


CASES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "two GPUs": (
        [("platform: cpu", "platform: mi300x\n  gpus: 2")],
        """\
error: p/x.yaml:3:3: 'hardware.gpus' is 2, on the mi300x it must be 1 or 8
      gpus: 2
      ^
  hint: between fewer than all 8 the links are uneven (xGMI)
""",
    ),
    "four GPUs": (
        [("platform: cpu", "platform: mi355x\n  gpus: 4")],
        """\
error: p/x.yaml:3:3: 'hardware.gpus' is 4, on the mi355x it must be 1 or 8
      gpus: 4
      ^
  hint: between fewer than all 8 the links are uneven (xGMI)
""",
    ),
    "nine GPUs": (
        [("platform: cpu", "platform: h100\n  gpus: 9")],
        """\
error: p/x.yaml:3:3: 'hardware.gpus' is 9, on the h100 it must be 1, 2, 4 or 8
      gpus: 9
      ^
""",
    ),
    "three GPUs": (
        [("platform: cpu", "platform: h100\n  gpus: 3")],
        """\
error: p/x.yaml:3:3: 'hardware.gpus' is 3, on the h100 it must be 1, 2, 4 or 8
      gpus: 3
      ^
""",
    ),
    "a GPU on the CPU": (
        [("platform: cpu", "platform: cpu\n  gpus: 1")],
        """\
error: p/x.yaml:3:3: 'hardware.gpus' is 1, on the cpu it must be 0
      gpus: 1
      ^
  hint: leave it out: a processor has no GPU
""",
    ),
    "a device that nobody knows": (
        [("platform: cpu", "platform: m1300x\n  gpus: 1")],
        """\
error: p/x.yaml:2:3: 'hardware.platform' 'm1300x' names no known device, did you mean 'mi300x'?
      platform: m1300x
      ^
  hint: its name begins with one of mi300x, mi325x, mi350x, mi355x, mi250x, gfx1201, a100, h100, h200, cpu
""",
    ),
    "a name is missing in the environment": (
        [("platform: cpu", "platform: mi300x\n  gpus: 1\n  env:\n    PYTORCH_ROCM_ARCH: gfx942")],
        """\
error: p/x.yaml:4:3: 'hardware.env' lacks HSA_NO_SCRATCH_RECLAIM, HIP_FORCE_DEV_KERNARG, GPU_MAX_HW_QUEUES, NVTE_CK_USES_BWD_V3, NVTE_CK_IS_V3_ATOMIC_FP32, PRIMUS_TURBO_ATTN_V3_ATOMIC_FP32, NCCL_MIN_NCHANNELS
      env:
      ^
  hint: the MI300X family keeps all eight: change a value and keep its name, or leave 'env' out
""",
    ),
    "a number in the environment": (
        [("platform: cpu", "platform: h100\n  gpus: 1\n  env:\n    A: 1")],
        """\
error: p/x.yaml:5:8: 'hardware.env.A': input should be a valid string, not 1
        A: 1
           ^
  hint: it is text here: put quotes around it
""",
    ),
    "choices at run time": (
        [("autotune: {}", "autotune:\n  policy: runtime")],
        """\
error: p/x.yaml:4:3: 'autotune.policy' is 'runtime', and there is only 'aot_only'
      policy: runtime
      ^
  hint: what is chosen while it trains depends on timing, and so would the result
""",
    ),
    "attention of another maker": (
        [("platform: cpu", "platform: h100\n  gpus: 1"), ("autotune: {}", "autotune:\n  attention: [ck]")],
        """\
error: p/x.yaml:5:3: 'autotune.attention' 'ck' does not exist on the h100
      attention: [ck]
      ^
  hint: there are: sdpa, eager, cudnn, flash, efficient, fa3, fa4
""",
    ),
    "attention of a GPU": (
        [("autotune: {}", "autotune:\n  attention: [fa3]")],
        """\
error: p/x.yaml:4:3: 'autotune.attention' 'fa3' does not exist on the cpu
      attention: [fa3]
      ^
  hint: there are: sdpa, eager
""",
    ),
    "FP8 where there is none": (
        [
            ("platform: cpu", "platform: a100\n  gpus: 1"),
            ("eval:\n", "quantize:\n  scheme: ptpc_fp8\neval:\n"),
        ],
        """\
error: p/x.yaml:19:3: 'quantize.scheme' 'ptpc_fp8' needs matrix units for FP8, and the a100 has none
      scheme: ptpc_fp8
      ^
  hint: take 'mxfp4_weight_only', leave 'quantize' out, or quantize on a device with FP8
""",
    ),
    "FP8 on an older AMD": (
        [("platform: cpu", "platform: mi250x\n  gpus: 1"), ("eval:\n", "quantize:\n  scheme: fp8\neval:\n")],
        """\
error: p/x.yaml:19:3: 'quantize.scheme' 'fp8' needs matrix units for FP8, and the mi250x has none
      scheme: fp8
      ^
  hint: take 'mxfp4_weight_only', leave 'quantize' out, or quantize on a device with FP8
""",
    ),
    "MXFP4 where it is emulated": (
        [("platform: cpu", "platform: h100\n  gpus: 1"), ("eval:\n", "quantize:\n  scheme: mxfp4\neval:\n")],
        """\
error: p/x.yaml:19:3: 'quantize.scheme' 'mxfp4' would be emulated on the h100, slower than not quantized
      scheme: mxfp4
      ^
  hint: take ptpc_fp8; MXFP4 is for mi350x, mi355x
""",
    ),
    "a rank larger than the layer": (
        [("r: 16", "r: 2048")],
        """\
error: p/x.yaml:16:5: 'train.lora.r' 2048 is more than 1024, as wide as k_proj is in Qwen/Qwen3-8B
        r: 2048
        ^
  hint: such an adapter is larger than its layer: take 1024 or less; usual are 8 to 64
""",
    ),
    "a rank larger than a new model's layer": (
        [
            ("hub:\n    repo: Qwen/Qwen3-8B", "init:\n    corpus: [talo.yaml]"),
            ("max_length: 1024", "max_length: 512"),
            ("r: 16", "r: 200"),
        ],
        """\
error: p/x.yaml:16:5: 'train.lora.r' 200 is more than 128, as wide as q_proj is in the model of model.init
        r: 200
        ^
  hint: such an adapter is larger than its layer: take 128 or less; usual are 8 to 64
""",
    ),
    "a sequence longer than the model": (
        [("max_length: 1024", "max_length: 65536")],
        """\
error: p/x.yaml:10:5: 'data.pack.max_length' 65536 is longer than Qwen/Qwen3-8B can take, 40960 tokens
        max_length: 65536
        ^
  hint: set it to 40960 or less
""",
    ),
    "a sequence longer than a new model": (
        [("hub:\n    repo: Qwen/Qwen3-8B", "init:\n    corpus: [talo.yaml]")],
        """\
error: p/x.yaml:10:5: 'data.pack.max_length' 1024 is longer than the model of model.init can take, 512 tokens
        max_length: 1024
        ^
  hint: set it to 512 or less, or raise model.init.max_position_embeddings
""",
    ),
    "a conversation longer than the model": (
        [("eval:\n", "serve:\n  max_length: 65536\neval:\n")],
        """\
error: p/x.yaml:18:3: 'serve.max_length' 65536 is longer than Qwen/Qwen3-8B can take, 40960 tokens
      max_length: 65536
      ^
  hint: set it to 40960 or less
""",
    ),
    "packing without boundaries": (
        [("max_length: 1024", "max_length: 1024\n    strategy: wrapped")],
        """\
error: p/x.yaml:11:5: 'data.pack.strategy' is 'wrapped', which runs documents into each other
        strategy: wrapped
        ^
  hint: 'bfd' fills sequences nearly as well and keeps documents whole and apart
""",
    ),
    "packing: true under train": (
        [("epochs: 1", "epochs: 1\n  packing: true")],
        """\
error: p/x.yaml:14:3: unknown key 'packing'
      packing: true
      ^
  hint: packing is set in data.pack.strategy: 'bfd' packs and keeps documents apart, 'none' does not pack
""",
    ),
    "packing: wrapped under data.pack": (
        [("max_length: 1024", "max_length: 1024\n    packing: wrapped")],
        """\
error: p/x.yaml:11:5: unknown key 'packing'
        packing: wrapped
        ^
  hint: packing is set in data.pack.strategy: 'bfd' packs and keeps documents apart, 'none' does not pack
""",
    ),
    "splitting of conversations": (
        [("max_length: 1024", "max_length: 1024\n    overlong: split")],
        """\
error: p/x.yaml:11:5: 'data.pack.overlong' 'split' would tear conversations apart
        overlong: split
        ^
  hint: it is for data.format 'text'; 'truncate' cuts off the end, 'drop' leaves such rows out
""",
    ),
    "a file that judges and trains": (
        [("files: [talo.jsonl]", "files: [talo.jsonl, rows-1.jsonl]")],
        """\
error: p/x.yaml:19:3: 'eval.files' names 'rows-1.jsonl', and data.files does, too
      files: [talo.jsonl, rows-1.jsonl]
      ^
  hint: judged on what it was trained on, a model looks better than it is: keep rows apart
""",
    ),
    "such a file under another name": (
        [("files: [talo.jsonl]", "files: [talo.jsonl, link.jsonl]")],
        """\
error: p/x.yaml:19:3: 'eval.files' names 'link.jsonl', and data.files does, too, there called 'rows-1.jsonl'
      files: [talo.jsonl, link.jsonl]
      ^
  hint: judged on what it was trained on, a model looks better than it is: keep rows apart
""",
    ),
    "such a file by a pattern": (
        [("files: [talo.jsonl]", "files: ['**/*-0.*']")],
        """\
error: p/x.yaml:19:3: 'eval.files' names 'rows-0.jsonl', and data.files does, too
      files: ['**/*-0.*']
      ^
  hint: judged on what it was trained on, a model looks better than it is: keep rows apart
""",
    ),
    "such a file spelled in another way": (
        [("files: [talo.jsonl]", "files: [./rows-1.jsonl]")],
        """\
error: p/x.yaml:19:3: 'eval.files' glob pattern './rows-1.jsonl' has a '.' segment
      files: [./rows-1.jsonl]
      ^
  hint: a glob sees its own package only
""",
    ),
    "a file that is not there": (
        [("rows-*.jsonl", "row-*.jsonl")],
        """\
error: p/x.yaml:8:3: 'data.files' 'row-*.jsonl' matches no file, did you mean 'rows-1.jsonl'?
      files: [row-*.jsonl]
      ^
  hint: a pattern is for files of this package, without its folder's name; * and ** stand for more
""",
    ),
    "an unknown task": (
        [("[talo.yaml]", "[talo.yaml, gsm8kk]")],
        """\
error: p/x.yaml:18:3: 'eval.tasks' names 'gsm8kk', and lm-eval 0.4.13 has no such task, did you mean 'gsm8k'?
      tasks: [talo.yaml, gsm8kk]
      ^
  hint: a task of your own is a file of the package, named with its .yaml
""",
    ),
    "a task without its dataset's commit": (
        [("[talo.yaml]", "[talo.yaml, gsm8k]")],
        """\
error: p/x.yaml:18:3: 'eval.tasks' names 'gsm8k', whose dataset on the Hub may change
      tasks: [talo.yaml, gsm8k]
      ^
  hint: name it in 'revisions', as in {owner/name: unpinned}; 'mxt pin' looks up its commit
""",
    ),
    "a model with code of its own": (
        [("Qwen/Qwen3-8B", "amd/Instella-3B-Instruct")],
        """\
error: p/x.yaml:6:5: 'model.hub.repo' amd/Instella-3B-Instruct brings Python files that would run here
        repo: amd/Instella-3B-Instruct
        ^
  hint: write 'trust_remote_code: unpinned' into 'model'; 'mxt pin' shows the files
""",
    ),
    "a commit cut short": (
        [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B\n    revision: 3f9a2b7")],
        """\
error: p/x.yaml:7:5: 'model.hub.revision' is '3f9a2b7', which is no whole commit
        revision: 3f9a2b7
        ^
  hint: give its 40 lower-case hexadecimal characters, or a branch for 'mxt pin' to look up
""",
    ),
    "a micro-batch that does not divide": (
        [("autotune: {}", "autotune:\n  micro_batch: [6, 4]")],
        """\
error: p/x.yaml:4:3: 'autotune.micro_batch' 6 does not divide train.batch_size 16
      micro_batch: [6, 4]
      ^
  hint: these do: 1, 2, 4, 8, 16
""",
    ),
    "a batch that does not divide over GPUs": (
        [
            ("platform: cpu", "platform: h100\n  gpus: 4"),
            ("batch_size: 16", "batch_size: 18\n  parallel: ddp"),
        ],
        """\
error: p/x.yaml:15:3: 'train.batch_size' 18 does not divide over 4 GPUs
      batch_size: 18
      ^
  hint: it counts the sequences of all of them: take 16 or 20
""",
    ),
    "eight GPUs and not how": (
        [("platform: cpu", "platform: mi300x\n  gpus: 8")],
        """\
error: p/x.yaml:12:1: 'train.parallel' is 'none', and hardware.gpus is 8
    train:
    ^
  hint: 'ddp' copies the model to each GPU, 'fsdp' spreads a large one over them
""",
    ),
    "one GPU and how": (
        [("batch_size: 16", "batch_size: 16\n  parallel: fsdp")],
        """\
error: p/x.yaml:15:3: 'train.parallel' is 'fsdp', and there is one device
      parallel: fsdp
      ^
  hint: leave it out
""",
    ),
    "epochs and steps": (
        [("epochs: 1", "epochs: 1\n  max_steps: 100")],
        """\
error: p/x.yaml:13:3: 'train.epochs' and 'max_steps' are both given
      epochs: 1
      ^
  hint: leave one of them out
""",
    ),
    "neither epochs nor steps": (
        [("  epochs: 1\n", "")],
        """\
error: p/x.yaml:11:1: 'train': epochs (or 'max_steps') is missing: how long is it trained?
    train:
    ^
""",
    ),
    "a quoted number": (
        [("lr: 1e-4", 'lr: "1e-4"')],
        """\
error: p/x.yaml:12:7: 'train.lr': input should be a valid number, not '1e-4'
      lr: "1e-4"
          ^
  hint: write it without quotes: 1e-4
""",
    ),
    "a tab": (
        [("  epochs: 1", "\tepochs: 1")],
        """\
error: p/x.yaml:13:1: not valid YAML: a tab
     epochs: 1
    ^
  hint: indent with spaces
""",
    ),
    "a slip of the pen": (
        [("batch_size", "batchsize")],
        """\
error: p/x.yaml:14:3: unknown key 'batchsize', did you mean 'batch_size'?
      batchsize: 16
      ^
""",
    ),
    "another trainer's names": (
        [("batch_size: 16", "per_device_train_batch_size: 4\n  learning_rate: 1")],
        """\
error: p/x.yaml:14:3: unknown key 'per_device_train_batch_size'
      per_device_train_batch_size: 4
      ^
  hint: train.batch_size counts the sequences of a step; the plan splits it, by autotune.micro_batch
p/x.yaml:15:3: unknown key 'learning_rate'
      learning_rate: 1
      ^
  hint: it is called train.lr
""",
    ),
    "a key in the wrong section": (
        [("batch_size: 16", "batch_size: 16\n  max_length: 512")],
        """\
error: p/x.yaml:15:3: unknown key 'max_length'
      max_length: 512
      ^
  hint: there is 'data.pack.max_length' and 'serve.max_length'
""",
    ),
    "a device in capitals": (
        [("platform: cpu", "platform: MI300X\n  gpus: 1")],
        """\
error: p/x.yaml:2:3: 'hardware.platform' 'MI300X' names no known device, did you mean 'mi300x'?
      platform: MI300X
      ^
  hint: its name begins with one of mi300x, mi325x, mi350x, mi355x, mi250x, gfx1201, a100, h100, h200, cpu
""",
    ),
    "a platform that counts": (
        [("platform: cpu", "platform: mi300x_8x\n  gpus: 8")],
        """\
error: p/x.yaml:2:3: 'hardware.platform' 'mi300x_8x' counts GPUs
      platform: mi300x_8x
      ^
  hint: write 'mi300x', and gpus: 8
""",
    ),
    "variables of a GPU on the CPU": (
        [("platform: cpu", "platform: cpu\n  env:\n    OMP_NUM_THREADS: '2'")],
        """\
error: p/x.yaml:3:3: 'hardware.env' is for GPUs
      env:
      ^
  hint: leave it out: the platform in the root MXTBUILD has a CPU's variables
""",
    ),
    "bf16: on": (
        [("batch_size: 16", "batch_size: 16\n  bf16: on")],
        """\
error: p/x.yaml:15:3: unknown key 'bf16'
      bf16: on
      ^
  hint: the type is set in train.dtype: bfloat16 or float32
""",
    ),
    "on for true": (
        [("[talo.jsonl]", "[talo.jsonl]\n  chat_template: on")],
        """\
error: p/x.yaml:20:18: 'eval.chat_template': input should be a valid boolean, not 'on'
      chat_template: on
                     ^
  hint: write true or false
""",
    ),
    "a text for a list": (
        [("[talo.jsonl]", "talo.jsonl")],
        """\
error: p/x.yaml:19:10: 'eval.files' must be a list, not 'talo.jsonl'
      files: talo.jsonl
             ^
  hint: write a list: [talo.jsonl]
""",
    ),
    "a method without its section": (
        [("lr: 1e-4", "method: dpo\n  lr: 1e-4"), ("[rows-*.jsonl]", "[rows-*.jsonl]\n  format: preference")],
        """\
error: p/x.yaml:13:3: 'train.method' 'dpo' needs the section 'train.dpo'
      method: dpo
      ^
  hint: 'dpo: {}' takes its defaults
""",
    ),
    "a method and other rows": (
        [("lr: 1e-4", "method: dpo\n  dpo: {}\n  lr: 1e-4")],
        """\
error: p/x.yaml:7:1: 'data.format' is 'auto', and train.method 'dpo' reads 'preference'
    data:
    ^
""",
    ),
    "no plan": (
        [("autotune: {}\n", "")],
        """\
error: p/x.yaml:10:1: 'train' needs an 'autotune' section
    train:
    ^
  hint: the plan chooses attention, compile and micro_batch; 'autotune: {}' takes the usual candidates
""",
    ),
    "a model that reads no pictures": (
        [
            ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B\n  kind: vision_language"),
            ("lr: 1e-4", "method: vision_sft\n  lr: 1e-4"),
            ("[rows-*.jsonl]", "[rows-*.jsonl]\n  format: images"),
        ],
        """\
error: p/x.yaml:7:3: 'model.kind' is 'vision_language', and Qwen/Qwen3-8B reads no pictures
      kind: vision_language
      ^
""",
    ),
    "a device without a toolchain": (
        [("platform: cpu", "platform: gfx1201\n  gpus: 1")],
        """\
error: @mxt//rules/finetune.mxt:41:13: x.yaml: nothing is known to run on 'gfx1201': give finetune() a toolchain
                fail("%s: nothing is known to run on '%s': give finetune() a toolchain" % (recipe, platf...
                ^
    called from p/MXTBUILD:2
""",
    ),
    "a device for a section": (
        [("hardware:\n  platform: cpu", "hardware: cpu")],
        """\
error: p/x.yaml:1:11: 'hardware' must be a section with fields, not 'cpu'
    hardware: cpu
              ^
  hint: write 'hardware: {platform: cpu}'
""",
    ),
    "a name for a section": (
        [("hub:\n    repo: Qwen/Qwen3-8B", "hub: Qwen/Qwen3-8B")],
        """\
error: p/x.yaml:5:8: 'model.hub' must be a section with fields, not 'Qwen/Qwen3-8B'
      hub: Qwen/Qwen3-8B
           ^
  hint: write 'hub: {repo: Qwen/Qwen3-8B}'
""",
    ),
    "true for a section": (
        [("lora:\n    r: 16", "lora: true")],
        """\
error: p/x.yaml:15:9: 'train.lora' must be a section with fields, not true
      lora: true
            ^
  hint: write 'lora: {}' for its defaults, or some of its fields: r, alpha, dropout, targets, base
""",
    ),
    "true for dedupe": (
        [("pack:\n", "dedupe: true\n  pack:\n")],
        """\
error: p/x.yaml:9:11: 'data.dedupe' must be a section with fields, not true
      dedupe: true
              ^
  hint: write 'dedupe: {}' for its defaults, or some of its fields: exact, minhash, semdedup
""",
    ),
    "a task for a gate": (
        [("[talo.jsonl]", "[talo.jsonl]\n  gate: talo")],
        """\
error: p/x.yaml:20:9: 'eval.gate' must be a section with fields, not 'talo'
      gate: talo
            ^
  hint: write 'gate: {task: talo}'
""",
    ),
    "a repository without its owner": (
        [("Qwen/Qwen3-8B", "Qwen3-8B")],
        """\
error: p/x.yaml:6:5: 'model.hub.repo' is 'Qwen3-8B', and must be 'owner/name' as on the Hub
        repo: Qwen3-8B
        ^
  hint: write 'Qwen/Qwen3-8B'
""",
    ),
    "a repository's address": (
        [("Qwen/Qwen3-8B", "https://huggingface.co/acme/tiny")],
        """\
error: p/x.yaml:6:5: 'model.hub.repo' is 'https://huggingface.co/acme/tiny', and must be 'owner/name' as on the Hub
        repo: https://huggingface.co/acme/tiny
        ^
  hint: write 'acme/tiny'
""",
    ),
    "three betas": (
        [("lr: 1e-4", "lr: 1e-4\n  betas: [0.9, 0.95, 0.99]")],
        """\
error: p/x.yaml:13:10: 'train.betas' must have at most 2 items, and has 3
      betas: [0.9, 0.95, 0.99]
             ^
""",
    ),
    "one beta": (
        [("lr: 1e-4", "lr: 1e-4\n  betas: [0.9]")],
        """\
error: p/x.yaml:13:3: 'train.betas' lacks its item 2
      betas: [0.9]
      ^
""",
    ),
    "unknown attention": (
        [("autotune: {}", "autotune: {attention: [spda]}")],
        """\
error: p/x.yaml:3:24: 'autotune.attention.0': input should be 'sdpa', 'eager', 'flex', 'ck', 'aotriton', 'aiter', 'cudnn', 'flash', 'efficient', 'fa3' or 'fa4', not 'spda'
    autotune: {attention: [spda]}
                           ^
  hint: did you mean 'sdpa'?
""",
    ),
    "no attention": (
        [("autotune: {}", "autotune: {attention: []}")],
        """\
error: p/x.yaml:3:23: 'autotune.attention' must have at least 1 item, and has none
    autotune: {attention: []}
                          ^
""",
    ),
    "a metric that the task does not score": (
        [
            ("[talo.jsonl]", "[talo.jsonl]\n  gate: {task: scored, metric: accuracy}"),
            ("talo.yaml", "scored.yaml"),
        ],
        """\
error: p/x.yaml:20:24: 'eval.gate.metric' 'accuracy' is not scored by scored.yaml
      gate: {task: scored, metric: accuracy}
                           ^
  hint: it scores acc, acc_norm; what is scored stands in the file's metric_list
""",
    ),
    "a metric that is not usual": (
        [("[talo.jsonl]", "[talo.jsonl]\n  gate: {task: usual, metric: f1}"), ("talo.yaml", "usual.yaml")],
        """\
error: p/x.yaml:20:23: 'eval.gate.metric' 'f1' is not scored by usual.yaml
      gate: {task: usual, metric: f1}
                          ^
  hint: it scores acc, acc_norm; what is scored stands in the file's metric_list
""",
    ),
    "an adapter on no layer": (
        [("    r: 16", "    r: 16\n    targets: [q_porj]")],
        """\
error: p/x.yaml:17:5: 'train.lora.targets' has 'q_porj', and no layer of Qwen/Qwen3-8B is called so
        targets: [q_porj]
        ^
  hint: did you mean 'q_proj'? it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj
""",
    ),
    "an adapter on no layer of experts": (
        [("    r: 16", "    r: 16\n    targets: [router]"), ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B")],
        """\
error: p/x.yaml:17:5: 'train.lora.targets' has 'router', and no layer of Qwen/Qwen3-30B-A3B is called so
        targets: [router]
        ^
  hint: it has q_proj, k_proj, v_proj, o_proj, gate_up_proj, down_proj
""",
    ),
    "all inputs dropped": (
        [("    r: 16", "    r: 16\n    dropout: 1.0")],
        """\
error: p/x.yaml:17:14: 'train.lora.dropout': input should be less than 1, not 1.0
        dropout: 1.0
                 ^
""",
    ),
    "sequences of three": (
        [("1024", "3")],
        """\
error: p/x.yaml:10:17: 'data.pack.max_length': input should be greater than or equal to 8, not 3
        max_length: 3
                    ^
""",
    ),
    "two slips": (
        [("lr: 1e-4", "lr: fast"), ("batch_size", "batchsize")],
        """\
error: p/x.yaml:12:7: 'train.lr': input should be a valid number, not 'fast'
      lr: fast
          ^
p/x.yaml:14:3: unknown key 'batchsize', did you mean 'batch_size'?
      batchsize: 16
      ^
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_slip_is_explained(ws: Workspace, case: str) -> None:
    edits, expected = CASES[case]
    shown = said(ws, *edits)
    assert shown == expected
    for line in shown.splitlines():  # a terminal of 80 columns wraps it once; a list of names may be longer
        assert len(line) <= 115 or "lacks HSA" in line or "should be 'sdpa'" in line


@pytest.mark.parametrize("case", ["two GPUs", "a file that judges and trains"])
def test_the_command_itself_says_the_same(ws: Workspace, case: str) -> None:
    edits, expected = CASES[case]
    said(ws, *edits)
    for verb in (("build", "//p:x"), ("query", "//p:*")):
        done = ws.run(*verb)
        assert (done.code, done.out, done.err) == (1, "", expected)


def test_a_gated_model_wants_a_token_before_anything_runs(ws: Workspace) -> None:
    repo = "meta-llama/Llama-3.2-1B"
    assert said(ws, ("Qwen/Qwen3-8B", f"{repo}\n    revision: {'a' * 40}")) == ""  # keys need no token
    done = ws.build("//p:x.fetch_model", code=1, env={"HF_TOKEN": "", "HF_ENDPOINT": ""})
    assert done.err.startswith(
        f"error: //p:x.fetch_model: '{repo}' is gated, and HF_TOKEN is not set\n"
        f"  hint: accept its terms on the Hub's page of {repo}, then: export HF_TOKEN=...\n"
        "failed: nothing was run in "
    )
    assert done.finished == {}


def test_only_what_is_gated_without_doubt() -> None:
    some = ["meta-llama/Llama-3.2-1B", "google/gemma-3-1b-it", "google/gemma-4-12b", "Qwen/Qwen3-8B"]
    assert gated(some) == some[:2]


@pytest.mark.parametrize(
    ("device", "gpus"), [(name, gpus) for name, device in DEVICES.items() for gpus in device.gpus if gpus]
)
def test_what_a_device_allows_is_analysed(ws: Workspace, device: str, gpus: int) -> None:
    own = ', toolchain = "//:cuda"' if device in ("mi250x", "gfx1201") else ""  # for these none is known
    ws.write("p/MXTBUILD", BUILD.replace('"x.yaml"', f'"x.yaml"{own}'))
    parallel = [("lr: 1e-4", "lr: 1e-4\n  parallel: fsdp")] if gpus > 1 else []
    size = [("batch_size: 16", "batch_size: 32")]
    assert said(ws, (CPU, f"platform: {device}\n  gpus: {gpus}"), *parallel, *size) == ""
    ws.write("p/MXTBUILD", BUILD)
