"""What is given as data and as a model: which files are read, and what is said of those that are not."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import REPOSITORY, Workspace
from tests.rules.fake_hub import COMMIT, Hub, fake_hub

ROWS = [{"text": f"row {i}"} for i in range(6)]
JSONL = "".join(json.dumps(r) + "\n" for r in ROWS)


@pytest.fixture
def sources(ws: Workspace) -> Workspace:
    shutil.copy(REPOSITORY / "MXTBUILD", ws.root)
    shutil.copytree(REPOSITORY / "toolchains", ws.root / "toolchains")
    ws.write(
        "recipes/MXTBUILD",
        'load("@mxt//rules:finetune.mxt", "finetune")\nfinetune(name = "a", recipe = "a.yaml")\n',
    )
    return ws


def recipe(ws: Workspace, data: str, model: str = "path: m") -> None:
    ws.write("recipes/a.yaml", f"model:\n  {model}\ndata:\n{data}  pack: {{max_length: 64}}\n")
    (ws.root / "recipes/m").mkdir(exist_ok=True)


def test_jsonl_arrays_and_parquet_side_by_side_and_the_first_rows_of_all(sources: Workspace) -> None:
    """Eleven rows, one of which repeats an earlier one: the first nine of those left, in the order of the files."""
    import pyarrow as pa
    from pyarrow import parquet

    sources.write("recipes/d/0.jsonl", "\ufeff" + JSONL.replace("\n", "\r\n"))
    sources.write("recipes/d/1.json", json.dumps([ROWS[5], {"text": "new"}], indent=1))
    (sources.root / "recipes/d/2.parquet").touch()
    parquet.write_table(pa.table({"text": ["newer", "newest"]}), sources.root / "recipes/d/2.parquet")
    sources.write("recipes/d/3.jsonl", '{"text": "beyond"}\n')
    recipe(sources, "  files: [d/*.jsonl, d/*.json, d/*.parquet]\n  limit: 9\n  dedupe: {exact: true}\n")
    built = sources.build("//recipes:a.dedupe")
    assert built.executed == {"//recipes:a.dedupe", *(f"//recipes:a.shards[000{i}]" for i in range(4))}
    folder = sources.output("recipes/a.dedupe")
    keep = {p.name: json.loads(p.read_text()) for p in folder.iterdir()}
    assert keep == {
        "keep-0000.json": [0, 1, 2, 3, 4, 5],
        "keep-0001.json": [1],
        "keep-0002.json": [0, 1],
        "keep-0003.json": [],
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "d/x.jsonl.gz",
            ("error: //recipes:a.shards: data.files: 'recipes/d/x.jsonl.gz' is compressed, which is not read\n"
            "  hint: unpack it (gunzip -k recipes/d/x.jsonl.gz), or make it Parquet, which compresses\n"),
        ),
        (
            "d/x.csv",
            ("error: //recipes:a.shards: data.files: 'recipes/d/x.csv' is CSV, which is not read\n"
            "  hint: convert it; files that end in .jsonl, .json, .parquet are read\n"),
        ),
    ],
)  # fmt: skip
def test_other_files_are_refused_at_once(sources: Workspace, name: str, said: str) -> None:
    sources.write(f"recipes/{name}", gzip.compress(JSONL.encode()))
    recipe(sources, "  files: ['d/*']\n")
    done = sources.build("//recipes:a.shards", "-n", code=1)
    assert done.err == said


def test_a_pattern_that_matches_nothing_is_named(sources: Workspace) -> None:
    recipe(sources, "  files: [d/*.jsnl]\n")
    done = sources.build("//recipes:a", code=1)
    assert "d/*.jsnl" in done.err


def test_a_file_is_no_model(sources: Workspace) -> None:
    sources.write("recipes/d/0.jsonl", JSONL)
    sources.write("recipes/m.safetensors", b"x")
    recipe(sources, "  files: [d/*.jsonl]\n", "path: m.safetensors")
    done = sources.build("//recipes:a.pack", code=1)
    assert "the model 'm.safetensors' is a file" in done.err
    assert "hint: give the folder that save_pretrained wrote" in done.err


# ---- the Hub ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with fake_hub() as made:
        made.repos[("dataset", "acme/rows")] = {
            "d/0.json": json.dumps(ROWS).encode(),
            "d/1.jsonl": JSONL.encode(),
        }
        yield made


def on_hub(ws: Workspace, files: str) -> None:
    recipe(ws, f"  hub: {{repo: acme/rows, revision: {COMMIT}, files: {files}}}\n")


def test_files_of_the_hub_become_shards_whatever_they_are(sources: Workspace, hub: Hub) -> None:
    on_hub(sources, "[d/1.jsonl, d/0.json]")
    sources.build("//recipes:a.shards", env={"HF_ENDPOINT": hub.endpoint})
    folder = sources.output("recipes/a.shards")
    texts = [(folder / f"000{i}" / "rows.jsonl").read_text() for i in range(2)]
    assert texts[0] == texts[1] == "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in ROWS)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            "['d/*.json']",
            ("error: //recipes:a.fetch_data: data.hub.files has the pattern 'd/*.json'\n"
            "  hint: write the files that it matches into the recipe: mxt pin //recipes:a.fetch_data\n"),
        ),
        ("[d/0.json, d/0.json]", "error: //recipes:a.fetch_data: data.hub.files: 'd/0.json' is given twice\n"),
        (
            "[d/0.json.gz]",
            ("error: //recipes:a.fetch_data: data.hub.files: 'd/0.json.gz' is compressed, which is not read\n"
            "  hint: name its Parquet or JSONL files; of most datasets the Hub keeps Parquet at the revision "
            "refs/convert/parquet\n"),
        ),
        (
            "[data.bin]",
            ("error: //recipes:a.fetch_data: data.hub.files: 'data.bin' is no JSONL or Parquet file\n"
            "  hint: files that end in .jsonl, .json, .parquet can be read\n"),
        ),
    ],
)  # fmt: skip
def test_files_that_cannot_be_fetched_are_refused_at_once(sources: Workspace, files: str, said: str) -> None:
    on_hub(sources, files)
    done = sources.build("//recipes:a.shards", code=1)
    assert done.executed == set()
    assert done.err.startswith(said), done.err


def test_a_gated_model_without_a_token_is_said_at_once(sources: Workspace, hub: Hub) -> None:
    hub.repos[("model", "acme/gated")] = {
        "config.json": b"{}",
        "model.safetensors": b"w",
        "tokenizer.json": b"{}",
    }
    hub.gated.add("acme/gated")
    on_hub(sources, "[d/0.json]")
    text = (sources.root / "recipes/a.yaml").read_text()
    model = f"hub: {{repo: acme/gated, revision: {COMMIT}}}"
    sources.write("recipes/a.yaml", text.replace("path: m", model))
    done = sources.build("//recipes:a.fetch_model", code=1, env={"HF_ENDPOINT": hub.endpoint})
    assert "access to model 'acme/gated' is gated" in done.err
    assert f"hint: accept its terms at {hub.endpoint}, then set HF_TOKEN" in done.err
