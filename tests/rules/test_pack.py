"""Packing: no token lost or doubled, documents whole and apart, labels only where the assistant speaks."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxt.errors import StageError
from mxt.rule import Run
from rules._bins import best_fit_decreasing
from rules.pack import IGNORED, Document, split, write_parquet
from tests.rules.data_run import chat
from tests.rules.tiny_model import make_model

CAPACITY = 64


# ---------------------------------------------------------------------------------- which go together


@given(
    st.integers(1, 300).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=200)))
)
def test_bins_hold_each_document_once_and_never_too_much(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    bins = best_fit_decreasing(lengths, capacity)
    assert sorted(i for b in bins for i in b) == list(range(len(lengths)))
    assert all(0 < sum(lengths[i] for i in b) <= capacity for b in bins)
    # it is best fit: no bin's content would fit beside that of another one
    fills = sorted(sum(lengths[i] for i in b) for b in bins)
    assert len(fills) < 2 or fills[0] + fills[1] > capacity


@given(st.lists(st.integers(1, 20), max_size=60))
def test_bins_are_those_of_the_plain_algorithm(lengths: list[int]) -> None:
    """Against the textbook: longest first, into the fullest bin with room, the last opened of equal ones."""
    room: list[int] = []
    wanted: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [r for r in room if r >= lengths[i]]
        if fitting:
            number = room.index(min(fitting))
        else:
            number = len(room)
            room.append(20)
            wanted.append([])
        room[number] -= lengths[i]
        wanted[number].append(i)
    got = best_fit_decreasing(lengths, 20)
    assert sorted(20 - sum(lengths[i] for i in b) for b in got) == sorted(room)


@pytest.mark.parametrize("length", [0, 21])
def test_a_document_that_cannot_fit_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} tokens does not fit"):
        best_fit_decreasing([length], 20)


# ------------------------------------------------------------------------------------- the whole stage


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Any:
    from rules._runtime import load_tokenizer

    return load_tokenizer(model)


def document(ids: list[int], labels: list[int]) -> Document:
    return Document(array("i", ids), array("i", labels))


class Packed:
    """What pack made of some rows: sequences as dicts of lists, and its report."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        rows: list[dict[str, Any]],
        *,
        keep: list[int] | None = None,
        template: str | None = None,
        max_length: int = CAPACITY,
        strategy: str = "bfd",
        overlong: str = "stop",
        on_bad_rows: str = "stop",
        unkeyed: dict[str, Any] | None = None,
        passed_over: str = "[]",
    ) -> None:
        from pyarrow import parquet

        from rules.pack import pack

        folder.mkdir(parents=True, exist_ok=True)
        inputs: dict[str, Path] = {"model": model, "rows": folder / "rows.jsonl"}
        inputs["rows"].write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
        if keep is not None:
            inputs["keep"] = folder / "keep.json"
            inputs["keep"].write_text(json.dumps(keep))
        if template is not None:
            inputs["template"] = folder / "template.jinja"
            inputs["template"].write_text(template)
        inputs["passed_over"] = folder / "passed_over.json"
        inputs["passed_over"].write_text(passed_over)
        self.path = folder / "packed.parquet"
        config = {"max_length": max_length, "strategy": strategy, "overlong": overlong}
        pack(
            Run(
                config={f"data.pack.{k}": v for k, v in config.items()} | {"data.on_bad_rows": on_bad_rows},
                unkeyed=unkeyed or {},
                inputs=inputs,
                outputs={"packed": self.path},
                evidence=folder / "evidence",
            )
        )
        self.sequences: list[dict[str, list[int]]] = parquet.read_table(self.path).to_pylist()
        self.report = json.loads((folder / "evidence/report.json").read_text())

    def documents(self) -> list[Document]:
        """Cut apart again at the boundaries."""
        found = []
        for s in self.sequences:
            assert sum(s["seq_lengths"]) == len(s["input_ids"]) == len(s["labels"])
            at = 0
            for length in s["seq_lengths"]:
                found.append(document(s["input_ids"][at : at + length], s["labels"][at : at + length]))
                at += length
        return found


said = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=12).filter(
    str.strip
)
chats = st.lists(
    st.lists(said, min_size=2, max_size=4).filter(lambda s: len(s) % 2 == 0), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talks=chats, texts=st.lists(said, max_size=4), strategy=st.sampled_from(["bfd", "none"]))
def test_no_token_is_lost_or_doubled_and_labels_are_the_assistants(
    tmp_path: Path, model: Path, tokenizer: Any, talks: list[list[str]], texts: list[str], strategy: str
) -> None:
    rows: list[dict[str, Any]] = [*(chat(*talk) for talk in talks), *({"text": t} for t in texts)]
    made = Packed(tmp_path, model, rows, max_length=256, strategy=strategy)
    wanted = []
    for talk in talks:
        whole, learned = "", list[bool]()
        for i, text in enumerate(talk):
            role = ("user", "assistant")[i % 2]
            for piece, learn in (
                (f"<|im_start|>{role}\n", False),
                (f"{text}<|im_end|>", i % 2 == 1),
                ("\n", False),
            ):
                whole += piece
                learned += [learn] * len(piece)
        encoded = tokenizer(whole, return_offsets_mapping=True, add_special_tokens=False)
        # a token is learned where its first character is the assistant's
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        labels = [token if learned[at] else IGNORED for token, (at, _) in pairs]
        wanted.append(document(encoded["input_ids"], labels))
    for text in texts:
        ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        wanted.append(document(ids, [IGNORED, *ids[1:]]))
    got = made.documents()
    assert sorted(got) == sorted(wanted)
    assert all(d.labels[0] == IGNORED for d in got)  # else it would be predicted from another document
    assert all(len(s["input_ids"]) <= 256 for s in made.sequences)
    if strategy == "none":
        assert [len(s["seq_lengths"]) for s in made.sequences] == [1] * len(rows)
    assert made.report["tokens"] == sum(len(d.ids) for d in wanted)
    assert made.report["learned_tokens"] == sum(i != IGNORED for d in wanted for i in d.labels)


def test_only_kept_rows_are_packed(tmp_path: Path, model: Path, tokenizer: Any) -> None:
    rows = [chat("a", "one"), chat("b", "two"), chat("c", "three")]
    texts = [tokenizer.decode(d.ids) for d in Packed(tmp_path, model, rows, keep=[0, 2]).documents()]
    assert sorted("two" in t for t in texts) == [False, False]
    assert len(texts) == 2


LONG = chat("cat", " ".join(["dog"] * 100))
LONG_QUESTION = chat(" ".join(["dog"] * 100), "cat")
SHORT = chat("the cat", "sat")


def test_an_overlong_row_stops(tmp_path: Path, model: Path) -> None:
    with pytest.raises(
        StageError, match=r"a row has \d+ tokens, more than data.pack.max_length 64"
    ) as caught:
        Packed(tmp_path, model, [SHORT, LONG])
    assert caught.value.where == "rows.jsonl:2"
    assert "it begins 'cat'" in caught.value.hint
    assert "'truncate' or 'drop'" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "place"), [("data/my.jsonl", "data/my.jsonl:103"), ("a.parquet", "a.parquet:row 103")]
)
def test_an_overlong_row_is_named_by_the_users_file(
    tmp_path: Path, model: Path, source: str, place: str
) -> None:
    unkeyed = {"source": source, "first_line": 101}
    with pytest.raises(StageError) as caught:  # line 2 of the shard was blank
        Packed(tmp_path, model, [SHORT, LONG], unkeyed=unkeyed, passed_over="[2]")
    assert caught.value.where == place


CONTROL = chat("the cat <|im_end|> sat", "one")


def test_a_control_token_in_a_message_is_a_bad_row(tmp_path: Path, model: Path, tokenizer: Any) -> None:
    with pytest.raises(StageError, match=r"a message contains the control token '<\|im_end\|>'") as caught:
        Packed(tmp_path / "stop", model, [SHORT, CONTROL])
    assert caught.value.where == "rows.jsonl:2"
    assert "data.on_bad_rows: skip" in caught.value.hint
    made = Packed(tmp_path / "skip", model, [SHORT, CONTROL], on_bad_rows="skip")
    assert len(made.documents()) == 1
    assert made.report["dropped"] == {"control token in a message": 1}
    plain = Packed(tmp_path / "text", model, [{"text": "the cat <|im_end|>"}]).documents()
    assert plain[0].ids[-1] == tokenizer.eos_token_id


def test_the_tokenizer_comes_without_torch_and_is_the_same(model: Path, tokenizer: Any) -> None:
    import subprocess
    import sys

    text = "the cat <|im_end|> sat é\n"
    script = (
        "import sys; from pathlib import Path; from rules.pack import plain_tokenizer\n"
        "t = plain_tokenizer(Path(sys.argv[1])); print(t(sys.argv[2])['input_ids'], t.eos_token_id)\n"
        "m = [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]\n"
        "print(t.apply_chat_template(m, tokenize=True, return_dict=True,\n"
        "    return_assistant_tokens_mask=True)['assistant_masks'])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"{tokenizer(text)['input_ids']} {tokenizer.eos_token_id}"
    assert "1" in second


def test_an_overlong_row_is_dropped_and_reported(tmp_path: Path, model: Path) -> None:
    made = Packed(tmp_path, model, [SHORT, LONG], overlong="drop")
    assert len(made.documents()) == 1
    assert made.report["dropped"] == {"longer than max_length": 1}


def test_an_overlong_row_is_truncated_unless_nothing_to_learn_is_left(tmp_path: Path, model: Path) -> None:
    made = Packed(tmp_path, model, [SHORT, LONG, LONG_QUESTION], overlong="truncate")
    assert max(len(d.ids) for d in made.documents()) == CAPACITY
    assert made.report["truncated"] == 2
    assert made.report["dropped"] == {"nothing to learn within max_length": 1}


@given(st.integers(1, 12), st.integers(1, 60))
def test_a_cut_document_is_whole_and_learned_but_for_each_first_token(capacity: int, more: int) -> None:
    length = capacity + more
    ids = list(range(100, 100 + length))
    pieces = split(document(ids, [IGNORED, *ids[1:]]), capacity)
    assert [i for p in pieces for i in p.ids] == ids
    for piece in pieces:
        assert list(piece.labels) == [IGNORED, *piece.ids[1:]]
    sizes = [len(p.ids) for p in pieces]
    assert max(sizes) <= capacity
    assert len(sizes) == -(-length // capacity)  # no more than needed
    if capacity > 2:
        assert min(sizes) > 1


def test_an_overlong_text_is_cut_into_documents_of_their_own(
    tmp_path: Path, model: Path, tokenizer: Any
) -> None:
    long = " ".join(["the big dog ran under a red tree"] * 20)
    rows = [{"text": "the cat sat"}, {"text": long}]
    with pytest.raises(StageError, match=r"more than data\.pack\.max_length 64") as caught:
        Packed(tmp_path / "stop", model, rows)
    assert "'split', 'truncate' or 'drop'" in caught.value.hint

    made = Packed(tmp_path / "split", model, rows, overlong="split")
    short, ids = ([*tokenizer(r["text"])["input_ids"], tokenizer.eos_token_id] for r in rows)
    wanted = [ids[a : a + CAPACITY] for a in range(0, len(ids), CAPACITY)]
    assert len(wanted) > 2
    assert sorted(list(d.ids) for d in made.documents()) == sorted([short, *wanted])
    report = made.report
    assert (report["rows"], report["split"], report["documents"]) == (2, 1, 1 + len(wanted))
    assert report["learned_tokens"] == report["tokens"] - report["documents"]
    assert report["dropped"] == {}


def test_a_sequence_longer_than_the_model_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(StageError, match="max_length 513 is longer than the model's 512 positions"):
        Packed(tmp_path, model, [SHORT], max_length=513)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "no {% generation %}"),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}{% generation %}{% endgeneration %}",
            "marks no token of a row",
        ),
        (
            "{{ raise_exception('no such role') }}{% generation %}{% endgeneration %}",
            "refuses a row: no such role",
        ),
        ("{% for %}{% generation %}{% endgeneration %}", "refuses a row: "),
    ],
)
def test_an_unfit_template_is_refused(tmp_path: Path, model: Path, template: str, said: str) -> None:
    with pytest.raises(StageError) as caught:
        Packed(tmp_path, model, [SHORT], template=template)
    assert said in caught.value.message


def test_a_recipes_template_takes_the_models_place(tmp_path: Path, model: Path, tokenizer: Any) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}Q {{ m.content }} A{% endif %}{% endfor %}"
    )
    made = Packed(tmp_path, model, [SHORT], template=template)
    assert tokenizer.decode(made.sequences[0]["input_ids"]) == "Q the cat Asat"
    assert tokenizer.decode([i for i in made.sequences[0]["labels"] if i != IGNORED]) == "sat"


def test_a_model_without_a_template_is_named_unless_the_rows_are_plain_text(
    tmp_path: Path, model: Path
) -> None:
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(StageError, match="no chat template") as caught:
        Packed(tmp_path / "a", bare, [SHORT])
    assert "data.chat_template" in caught.value.hint
    assert len(Packed(tmp_path / "b", bare, [{"text": "the cat"}]).sequences) == 1


def test_an_empty_shard_gives_no_sequences(tmp_path: Path, model: Path) -> None:
    made = Packed(tmp_path, model, [SHORT], keep=[])
    assert made.sequences == []
    assert made.report["fill"] is None


def test_the_same_sequences_give_the_same_bytes(tmp_path: Path) -> None:
    first = [document([1, 2, 3], [IGNORED, 2, 3])]
    second = [document([4], [IGNORED]), document([5, 6], [IGNORED, 6])]
    for name in ("a", "b"):
        write_parquet(tmp_path / name, [first, second])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
