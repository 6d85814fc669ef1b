"""The real pipeline in a workspace of its own: with the tiny recipe, or one whose stages take seconds."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.e2e.conftest import REPOSITORY, Result, Workspace, kill_tree, wait_for

MICRO = "//recipes:micro"
SHARDS = ("0000", "0001", "0002")

# All stages but quantization, which costs ten seconds whatever its size.
RECIPE = """\
meta:
  description: as small as it gets
  seed: 7
hardware:
  platform: cpu
  price_per_hour: 1.5
autotune:
  budget_s: 5
  attention: [sdpa]
  compile: [none]
  micro_batch: [2]
model:
  init:
    corpus: [micro/corpus.txt]
    vocab_size: 300
    hidden_size: 32
    intermediate_size: 64
    num_hidden_layers: 1
    num_attention_heads: 2
    num_key_value_heads: 1
    head_dim: 16
    max_position_embeddings: 96
  pretrain:
    steps: 30
    batch_size: 2
    length: 16
    warmup_steps: 2
    checkpoint_steps: 10
data:
  files: [micro/rows-*.jsonl]
  format: messages
  dedupe:
    exact: true
    minhash:
      threshold: 0.95
      num_perm: 16
      ngram: 2
  pack:
    max_length: 64
    strategy: bfd
train:
  lora:
    r: 4
    alpha: 8
    targets: [q_proj, down_proj]
  lr: 3e-3
  epochs: 1
  batch_size: 4
  logging_steps: 4
  checkpoint_steps: 5
eval:
  tasks: [micro/count.yaml]
  files: [micro/count.jsonl]
  batch_size: 64
  gate:
    task: count
"""

TASK = """\
task: count
dataset_path: json
dataset_kwargs:
  data_files:
    test: count.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}} "
doc_to_choice: choices
doc_to_target: label
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""

NUMBERS = [
    *("none", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
]
THINGS = ["cups of tea", "red apples", "old books", "small dogs", "blue stones", "tall trees", "warm coats"]


def row(question: str, answer: str) -> str:
    """A training row."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": turns}) + "\n"


def write_data(ws: Workspace) -> None:
    """recipes/micro: corpus, three shards of 16 rows, and 200 held-out questions; the same every time."""
    dice = random.Random(3)
    some = dice.choice
    lines = [f"{some(NUMBERS)} {some(THINGS)} and {some(NUMBERS)} more" for _ in range(250)]
    ws.write("recipes/micro/corpus.txt", "\n\n".join(lines) + "\n")
    for number in range(3):
        pairs = [(i % 12, THINGS[(i + i // 12 + number) % 7]) for i in range(16)]
        rows = [row(f"shard {number}: one more than {NUMBERS[a]} {b}?", NUMBERS[a + 1]) for a, b in pairs]
        ws.write(f"recipes/micro/rows-{number}.jsonl", "".join(rows))
    questions = []
    for number in range(200):
        a = dice.randrange(12)
        question = f"case {number}: what comes after {NUMBERS[a]}?"
        questions.append({"question": question, "choices": [NUMBERS[a + 1], NUMBERS[a]], "label": 0})
    ws.write("recipes/micro/count.jsonl", "".join(json.dumps(q) + "\n" for q in questions))
    ws.write("recipes/micro/count.yaml", TASK)


def write_micro(root: Path, home: Path, recipe: str = RECIPE) -> Workspace:
    """A workspace with the micro recipe, nothing built."""
    ws = Workspace(root, home)
    shutil.copy(REPOSITORY / "MXTBUILD", root)
    shutil.copytree(REPOSITORY / "toolchains", root / "toolchains")
    ws.write("recipes/micro.yaml", recipe)
    write_data(ws)
    ws.write(
        "recipes/MXTBUILD",
        'load("@mxt//rules:finetune.mxt", "finetune")\nfinetune(name = "micro", recipe = "micro.yaml")\n',
    )
    return ws


def write_tiny(root: Path, home: Path) -> Workspace:
    """A workspace with the project's own recipes, nothing built."""
    ws = Workspace(root, home)
    shutil.copy(REPOSITORY / "MXTBUILD", root)
    for folder in ("toolchains", "recipes"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    return ws


def copied(ws: Workspace, root: Path) -> Workspace:
    """A workspace with all that it has built, at another place, by the same operator."""
    root.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(ws.root), str(root)], check=True)
    home = root.with_name(f"{root.name}-home")
    shutil.copytree(ws.home, home)
    return Workspace(root, home)


def edit(ws: Workspace, old: str, new: str, path: str = "recipes/micro.yaml") -> None:
    """Replace the one place where `old` stands."""
    text = ws.read(path)
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    ws.write(path, text.replace(old, new))


def stages(result: Result, name: str = "micro") -> set[str]:
    """The executed actions of a recipe without its label: {"train", "pack[0001]"}."""
    prefix = f"//recipes:{name}."
    assert all(action.startswith(prefix) for action in result.executed), result.executed
    return {action.removeprefix(prefix) for action in result.executed}


ALL = {
    "init_model", "pretrain", "dedupe", "probe", "train", "eval_base", "eval", "gate",
    *(f"shards[{n}]" for n in SHARDS),
    *(f"pack[{n}]" for n in SHARDS),
}  # fmt: skip


def tree_bytes(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def stage_processes(ws: Workspace) -> list[int]:
    """Processes that run a stage's own code for this workspace, in a sandbox or not."""
    store = str(ws.root / "cache")
    found = []
    for place in Path("/proc").iterdir():
        try:
            if not place.name.isdigit() or b"execution/inside.py" not in (place / "cmdline").read_bytes():
                continue
            # the sandbox and the launcher bear the same words, but run another program
            if not (place / "exe").readlink().name.startswith("python"):
                continue
            seen = (place / "mountinfo").read_text() + (place / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if store in seen or store.replace(" ", "\\040") in seen:
            found.append(int(place.name))
    return found


def struck_in_training(ws: Workspace, target: str) -> dict[str, bytes]:
    """What a recipe's training ends in that is SIGKILLed once it has saved a checkpoint, and built to the end.

    Asserts that it went on from there, and that it makes the same files when it is run without interruption.
    """
    training = f"{target}.train"
    process = ws.start("build", training)
    saved = ws.root / "cache/progress"
    wait_for(lambda: process.poll() is not None or list(saved.glob("*/0*/checkpoint-*")), 300)
    assert process.poll() is None, f"over before it could be struck: {process.communicate()[1][-2000:]}"
    kill_tree(process)
    assert_nobody_works(ws)
    (started,) = [e for e in ws.build(training).events if e["event"] == "action_started"]
    assert (started["label"], bool(started["resumed"])) == (training, True)
    output = ws.output(training.removeprefix("//").replace(":", "/")).resolve()
    struck = tree_bytes(output)

    (record,) = (ws.root / "cache/ac").glob(f"*/{output.name}")
    shutil.move(record, ws.home / output.name)
    (started,) = [e for e in ws.build(training).events if e["event"] == "action_started"]
    assert (started["label"], bool(started["resumed"])) == (training, False)
    assert tree_bytes(output) == struck
    return struck


def assert_better(ws: Workspace, target: str) -> dict[str, Any]:
    """The verdict of a recipe's gate, which must have passed on enough rows of its own."""
    tested = ws.run("test", f"{target}.gate")
    assert tested.code == 0, tested.out + tested.err
    folder = ws.output(f"{target.removeprefix('//').replace(':', '/')}.gate")
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    assert verdict["passed"] is True
    assert verdict["rows"] >= 200
    assert verdict["shared_rows"] == 0
    assert verdict["standard_errors"] > 3
    return verdict


def assert_nobody_works(ws: Workspace) -> None:
    """Soon after a kill no stage runs, and what stages write to does not change any more."""
    wait_for(lambda: not stage_processes(ws), 5)
    before = _written(ws)
    time.sleep(0.4)
    assert _written(ws) == before


def _written(ws: Workspace) -> dict[str, tuple[int, int]]:
    folders = [ws.root / "cache" / name for name in ("progress", "tmp", "evidence")]
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}


def evidence(ws: Workspace, target: str, name: str, action: str = "") -> str:
    """An evidence file of the last run of a target, or of one of its actions."""
    done = ws.run("log", target, "--file", name, *(("--action", action) if action else ()))
    assert done.code == 0, done.err
    return done.out
