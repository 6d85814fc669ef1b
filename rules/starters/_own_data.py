"""A starter's recipe changed to train on the user's own rows, which are looked at first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxt.errors import UsageError
from rules._forms import detect, known_forms, normalise
from rules._lines import BadRow, read_rows
from rules.starters._recipe_text import add_field, replace_field, replace_section

LOOKED_AT = 1000  # rows; the build looks at all
MAX_ROW_BYTES = 1_000_000
CORPUS_CHARACTERS = 400_000
FOLDER = "data"  # beside the recipe

NO_EVAL = """\
# No `eval` section: without questions of your own nothing can be asked of the model. A task file of lm-eval
# and at least 200 rows that are not trained on make .eval_base, .eval and .gate:
#
# eval:
#   tasks: [data/task.yaml]
#   files: [data/held-out.jsonl]
#   gate:
#     task: task
"""


def own_data(recipe: str, data: Sequence[Path]) -> tuple[str, dict[str, str | Path]]:
    """The recipe for these rows, and the files that it names. Raises UsageError naming file and line."""
    files: dict[str, str | Path] = {}
    forms: dict[str, Path] = {}
    corpus: list[str] = []
    for path in data:
        if path.name in {Path(p).name for p in files}:
            raise UsageError(f"two files of --data are called '{path.name}'", hint="rename one of them")
        if any(c in path.name for c in "*?[]{}:\\\n"):
            raise UsageError(f"the name of '{path.name}' has a character that globs use", hint="rename it")
        form, texts = _look(path)
        forms[form] = path
        corpus += texts
        files[f"recipes/{FOLDER}/{path.name}"] = path
    if len(forms) > 1:
        listed = ", ".join(f"{path.name} is '{form}'" for form, path in sorted(forms.items()))
        raise UsageError(f"the files of --data have different forms: {listed}", hint="one recipe takes one")
    form = next(iter(forms))
    files[f"recipes/{FOLDER}/corpus.txt"] = _documents(corpus)
    listed = ", ".join(json.dumps(f"{FOLDER}/{path.name}", ensure_ascii=False) for path in data)
    recipe = replace_field(
        recipe, "meta.description", json.dumps(f"a tiny Qwen3 tuned on {data[0].name}", ensure_ascii=False)
    )
    recipe = replace_field(recipe, "model.init.corpus", f"[tiny/corpus.txt, {FOLDER}/corpus.txt]")
    recipe = replace_field(recipe, "data.files", f"[{listed}]")
    recipe = replace_field(recipe, "data.format", form)
    recipe = add_field(
        recipe,
        "data.pack",
        "overlong: truncate # the tiny model reads no more; raise max_length with a larger one",
    )
    recipe = replace_section(recipe, "eval", NO_EVAL)
    # what stood above the first section speaks of the example data
    body = recipe.partition("meta:\n")[2]
    head = f"# Tunes a tiny model, made and pre-trained here, on {data[0].name}. Larger ones: model.hub.\n"
    return f"{head}meta:\n{body}", files


def _look(path: Path) -> tuple[str, list[str]]:
    """The form of a file's rows, and the text in the first of them."""
    if path.suffix not in (".jsonl", ".json", ".parquet"):
        raise UsageError(
            f"'{path.name}' is no JSONL or Parquet file by its name",
            where=str(path),
            hint="one JSON object a line, in NAME.jsonl",
        )
    form, texts, size = "", [], 0
    try:
        for count, row in enumerate(read_rows(path, MAX_ROW_BYTES)):
            if count == LOOKED_AT:
                break
            where = f"{path}:{row.number}"
            if row.bad is not None:
                raise UsageError(row.bad.reason, where=where, hint=row.bad.hint)
            if not form:
                form = detect(row.value) or ""
                if not form:
                    columns = ", ".join(sorted(row.value)) or "nothing"
                    raise UsageError(
                        f"the row has none of the known forms (it has {columns})",
                        where=where,
                        hint=f"forms and their columns: {known_forms()}",
                    )
            try:
                plain = normalise(row.value, form)
            except BadRow as bad:
                raise UsageError(bad.reason, where=where, hint=bad.hint) from None
            if size < CORPUS_CHARACTERS:
                texts.append(_text(plain))
                size += len(texts[-1])
    except BadRow as bad:
        raise UsageError(bad.reason, where=str(path), hint=bad.hint) from None
    except OSError as error:
        raise UsageError(
            f"cannot read the data: {(error.strerror or str(error)).lower()}", where=str(path)
        ) from None
    if not form:
        raise UsageError("the file has no rows", where=str(path), hint="one JSON object a line")
    return form, texts


def _text(row: Mapping[str, Any]) -> str:
    if "text" in row:
        return str(row["text"])
    return "\n".join(str(turn["content"]) for turn in row["messages"])


def _documents(texts: Sequence[str]) -> str:
    """Plain text as the tokenizer's corpus: documents apart by blank lines."""
    return "\n\n".join(" ".join(text.split()) for text in texts) + "\n"
