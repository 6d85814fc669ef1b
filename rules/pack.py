"""Tokenizes the kept rows of a shard through the model's chat template and packs them into sequences.

Labels cover what the assistant says only, by the template's {% generation %}; of plain text, all.
Output packed.parquet, one row a sequence: input_ids and labels (int32, -100 where nothing is
learned) and seq_lengths (int32), the lengths of the documents in it, which never see each other.

A plain text of more than max_length tokens can be cut (data.pack.overlong: split) into pieces that are
documents of their own: each token stands in one piece, and the first of a piece is read and not learned, as
what it would be predicted from stands in the piece before.

A message that contains a control token's text, such as <|im_end|>, is a bad row: tokenized it would
end a turn. Plain text may hold them, as it has no turns but those that it writes itself.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mxt.rule import Attributes, Config, Label, Labels, Resources, Run
from rules._model_folder import check_config
from rules._pieces import UNKEYED, line_of, pieces_of, provenance, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mxt.graph.target import Target

__all__ = ["KEYED", "UNKEYED", "VERSION", "Attrs", "actions", "pack"]
VERSION = 1
ESTIMATE = "_estimate.pack"
KEYED = (
    "model.trust_remote_code",
    "data.pack.max_length",
    "data.pack.strategy",
    "data.pack.overlong",
    "data.on_bad_rows",
)
# tokenizers that are what tokenizer.json says and nothing more
PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
IGNORED = -100


class Attrs(Attributes):
    """model: for its tokenizer. shards: the rows. keep: which of them stay. template: a Jinja file.

    files, fetched: as of shards, for messages.
    """

    config: Config
    model: Label
    shards: Label
    keep: Label | None = None
    files: Labels = ()
    fetched: Label | None = None
    template: Label | None = None


class Document(NamedTuple):
    """One row's tokens, and for each what is to be predicted there, or IGNORED."""

    ids: array[int]  # packed integers: a list of them takes ten times the memory
    labels: array[int]


def actions(target: Target) -> None:
    """One action a shard."""
    attrs = target.attrs
    kept = {h.name.removeprefix("keep-"): h for h in target.outputs(attrs.keep)} if attrs.keep else {}
    shards = target.outputs(attrs.shards)
    passed_over = {h.action: h for h in shards if h.name == "passed_over"}
    sources = {f"{i:04d}": piece for i, piece in enumerate(pieces_of(target))}
    for rows in shards:
        if rows.name != "rows":
            continue
        inputs: dict[str, Any] = {"model": attrs.model, "rows": rows, "passed_over": passed_over[rows.action]}
        if attrs.keep:
            inputs["keep"] = kept[rows.action]
        if attrs.template:
            inputs["template"] = attrs.template
        target.action(
            run=pack,
            name=rows.action,
            mnemonic="Pack",
            inputs=inputs,
            outputs={"packed": "packed.parquet"},
            unkeyed=provenance(sources[rows.action]) if rows.action in sources else {},
            resources=Resources(cpus=1, memory_mb=800),
        )


def pack(run: Run) -> None:
    """Write the shard's sequences, and a report of lengths, fill and what was left out."""
    import os

    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
    run.report(note="loading the tokenizer")
    from rules._bins import best_fit_decreasing

    capacity = run.config["data.pack.max_length"]
    check_length(run, capacity)
    tokenizer = plain_tokenizer(run.inputs["model"], run.config.get("model.trust_remote_code"))
    control = control_tokens(tokenizer)
    encode = Encoder(run, tokenizer)
    dropped: Counter[str] = Counter()
    truncated = cut = rows = 0
    documents: list[Document] = []
    for number, row in kept_rows(run):
        token = control_token_in(row, control)
        if token is not None:
            if run.config["data.on_bad_rows"] == "stop":
                raise run.fail(
                    f"a message contains the control token '{token}'",
                    where=place(run, number),
                    hint=f"the row begins {beginning(row)}; the model would take it for the end or start of "
                    "a turn: mend the row, or set data.on_bad_rows: skip to leave such rows out",
                )
            dropped["control token in a message"] += 1
            continue
        document = encode(row, number)
        pieces = [document]
        if len(document.ids) > capacity:
            policy = run.config["data.pack.overlong"]
            if policy == "stop":
                raise run.fail(
                    f"a row has {len(document.ids)} tokens, more than data.pack.max_length {capacity}",
                    where=place(run, number),
                    hint=f"it begins {beginning(row)}; raise max_length, or set data.pack.overlong to "
                    + ("'split', 'truncate' or 'drop'" if "text" in row else "'truncate' or 'drop'"),
                )
            if policy == "drop":
                dropped["longer than max_length"] += 1
                continue
            if policy == "split":
                pieces = split(document, capacity)
                cut += 1
            else:
                pieces = [Document(document.ids[:capacity], document.labels[:capacity])]
                truncated += 1
        if all(label == IGNORED for piece in pieces for label in piece.labels):
            dropped["nothing to learn within max_length"] += 1
            continue
        documents += pieces
        rows += 1
        if rows % 500 == 0:
            run.report(step=rows, note=f"{rows} rows tokenized")

    if run.config["data.pack.strategy"] == "bfd":
        bins = best_fit_decreasing([len(d.ids) for d in documents], capacity)
    else:
        bins = [[i] for i in range(len(documents))]
    write_parquet(run.outputs["packed"], [[documents[i] for i in b] for b in bins])
    write_report(run, documents, len(bins), capacity, dropped, rows=rows, truncated=truncated, cut=cut)


def split(document: Document, capacity: int) -> list[Document]:
    """A document of more than capacity tokens in pieces of capacity, the last one of what is left.

    The last piece is never one token alone, of which nothing could be learned: it takes one from the piece
    before.
    """
    count = len(document.ids)
    starts = list(range(0, count, capacity))
    if starts[-1] == count - 1 and capacity > 1:
        starts[-1] -= 1
    return [
        Document(document.ids[a:b], array("i", [IGNORED, *document.labels[a + 1 : b]]))
        for a, b in zip(starts, [*starts[1:], count], strict=True)
    ]


def check_length(run: Run, capacity: int) -> None:
    """Raises StageError where the model cannot take sequences of capacity tokens."""
    check_config(run.inputs["model"])
    config = json.loads((run.inputs["model"] / "config.json").read_text(encoding="utf-8"))
    longest = (config.get("text_config") or config).get("max_position_embeddings")
    if longest is not None and capacity > longest:
        raise run.fail(
            f"data.pack.max_length {capacity} is longer than the model's {longest} positions",
            hint=f"set it to {longest} or less",
        )


def kept_rows(run: Run) -> Iterator[tuple[int, dict[str, Any]]]:
    """The shard's rows that dedupe kept, each with its number (from 0)."""
    keep = None
    if "keep" in run.inputs:
        keep = set(json.loads(run.inputs["keep"].read_text()))
    with run.inputs["rows"].open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file):
            if keep is None or number in keep:
                yield number, json.loads(line)


def place(run: Run, number: int) -> str:
    """The file and line of a row, from its number in what .shards made."""
    source = run.unkeyed.get("source")
    if source is None or "passed_over" not in run.inputs:
        return f"{run.inputs['rows'].name}:{number + 1}"
    passed_over = json.loads(run.inputs["passed_over"].read_text())
    return where(source, line_of(number, passed_over, run.unkeyed["first_line"]))


def plain_tokenizer(folder: Path, code: str | None = None) -> Any:
    """The folder's tokenizer; without importing torch (a second) where it needs no class of its own.

    code: model.trust_remote_code.
    """
    path = folder / "tokenizer_config.json"
    if (folder / "tokenizer.json").is_file() and path.is_file():
        named = json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class")
        if named in PLAIN_CLASSES:
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    from rules._runtime import load_tokenizer

    return load_tokenizer(folder, code)


def control_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """Finds the text of any special token; None where there are none."""
    tokens = {t.content for t in tokenizer.added_tokens_decoder.values() if t.special and t.content.strip()}
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))) if tokens else None


def control_token_in(row: dict[str, Any], control: re.Pattern[str] | None) -> str | None:
    """The first control token in what a row's messages say."""
    for message in row.get("messages", ()) if control else ():
        found = control.search(message["content"]) if control else None
        if found:
            return found.group()
    return None


def beginning(row: dict[str, Any]) -> str:
    """The first words of a row, quoted, by which a person finds it."""
    text = row["text"] if "text" in row else row["messages"][0]["content"]
    return repr(text[:60]) + ("..." if len(text) > 60 else "")


class Encoder:
    """Turns a row into tokens and labels. Raises StageError for a missing or unfit chat template."""

    def __init__(self, run: Run, tokenizer: Any) -> None:
        self._run = run
        self._tokenizer = tokenizer
        self._template: str | None = None
        if "template" in run.inputs:
            self._template = run.inputs["template"].read_text(encoding="utf-8")

    def __call__(self, row: dict[str, Any], number: int) -> Document:
        return self._text(row["text"]) if "text" in row else self._chat(row["messages"], number)

    def _text(self, text: str) -> Document:
        ids = list(self._tokenizer(text, add_special_tokens=True)["input_ids"])
        end = self._tokenizer.eos_token_id
        if end is not None and (not ids or ids[-1] != end):
            ids.append(end)
        # its first token would be predicted from the document before it
        return Document(array("i", ids), array("i", [IGNORED, *ids[1:]]))

    def _chat(self, messages: list[dict[str, str]], number: int) -> Document:
        from jinja2.exceptions import TemplateError

        if self._template is None:
            self._template = self._own_template()
        self._check_generation(self._template)
        try:
            made = self._tokenizer.apply_chat_template(
                messages,
                chat_template=self._template,
                tokenize=True,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
        except TemplateError as error:
            raise self._run.fail(
                f"the chat template refuses a row: {error}",
                where=place(self._run, number),
                hint=f"it begins {beginning({'messages': messages})}; mend it, or set data.chat_template "
                "to a template that takes it",
            ) from None
        ids, mask = list(made["input_ids"]), made["assistant_masks"]
        if not any(mask):
            raise self._run.fail(
                "the chat template marks no token of a row as the assistant's",
                where=place(self._run, number),
                hint="{% generation %} must enclose each assistant message, its end token included",
            )
        labels = [i if m else IGNORED for i, m in zip(ids, mask, strict=True)]
        return Document(array("i", ids), array("i", [IGNORED, *labels[1:]]))

    def _own_template(self) -> str:
        template = self._tokenizer.chat_template
        if not template:
            raise self._run.fail(
                "the model's tokenizer has no chat template",
                hint="set data.chat_template to a Jinja file with {% generation %} around assistant messages;"
                " plain text (data.format: text) needs none",
            )
        return str(template)

    def _check_generation(self, template: str) -> None:
        if not re.search(r"\{%-?\s*generation\s*-?%\}", template):
            raise self._run.fail(
                "the chat template has no {% generation %}: what the assistant says cannot be told",
                hint="copy it into the package, put {% generation %}...{% endgeneration %} around assistant "
                "messages, and name the file in data.chat_template",
            )


def write_parquet(path: Path, sequences: list[list[Document]]) -> None:
    """The same bytes for the same sequences: no statistics, no schema of the writer's own."""
    import pyarrow
    from pyarrow import parquet

    def column(lists: Iterable[Iterable[array[int]]]) -> Any:
        values, offsets = array("i"), [0]
        for parts in lists:
            for part in parts:
                values.extend(part)
            offsets.append(len(values))
        flat = pyarrow.Array.from_buffers(pyarrow.int32(), len(values), [None, pyarrow.py_buffer(values)])
        return pyarrow.ListArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), flat)

    table = pyarrow.table(
        {
            "input_ids": column((d.ids for d in s) for s in sequences),
            "labels": column((d.labels for d in s) for s in sequences),
            "seq_lengths": column([array("i", (len(d.ids) for d in s))] for s in sequences),
        }
    )
    parquet.write_table(
        table, path, compression="zstd", compression_level=3, write_statistics=False, store_schema=False
    )


def write_report(
    run: Run,
    documents: list[Document],
    sequences: int,
    capacity: int,
    dropped: Counter[str],
    *,
    rows: int,
    truncated: int,
    cut: int,
) -> None:
    """report.json in the evidence: counts, lengths in tokens, and the filled part of all sequences."""
    lengths = sorted(len(d.ids) for d in documents)
    report = {
        "rows": rows,
        "documents": len(documents),
        "sequences": sequences,
        "tokens": sum(lengths),
        "learned_tokens": sum(label != IGNORED for d in documents for label in d.labels),
        "fill": round(sum(lengths) / (sequences * capacity), 4) if sequences else None,
        "lengths": {
            "shortest": lengths[0],
            "median": lengths[len(lengths) // 2],
            "longest": lengths[-1],
        }
        if lengths
        else None,
        "truncated": truncated,
        "split": cut,
        "dropped": dict(sorted(dropped.items())),
    }
    run.evidence.mkdir(parents=True, exist_ok=True)
    (run.evidence / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    from rules import _panels

    counts = {"rows trained on": rows, **dict(sorted(dropped.items()))}
    if truncated:
        counts["of these cut to max_length"] = truncated
    if cut:
        counts["of these cut into pieces"] = cut
    _panels.dropped(run, "pack", counts)
    packed = (
        ("sequences", sequences),
        ("places for tokens in them", sequences * capacity),
        ("filled with tokens", report["tokens"]),
        ("learned, not only read", report["learned_tokens"]),
    )
    table = [[what, count] for what, count in packed]
    run.panel(
        "table", "Packed sequences", section=_panels.DATA, columns=["what", "count"], rows=table, add_up=True
    )
