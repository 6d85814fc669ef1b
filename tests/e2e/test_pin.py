"""mxt pin: only the values that it looked up change, in all files or in none, and each failure is said."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, Result, Workspace, b3
from tests.rules.fake_hub import COMMIT, OLDER, TOKEN, Hub, fake_hub

TODAY = datetime.now(UTC).date().isoformat()
CODE = {"modeling_own.py": b"import torch\n", "parts/more.py": b"x = 1\n"}
MODEL = {"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"{}"}

# comments, quotes, blank lines and odd spaces, all of which must stay
RECIPE = """\
# A recipe of somebody who writes by hand.
model:
  hub: {repo: acme/tiny, revision: 'unpinned'}   # in one line

data:
  hub:
    repo:    acme/rows
    revision: "v1"
    files: [data/train-*.parquet, extra.jsonl]

  dedupe:
    semdedup:   # rows of the same meaning
      threshold: 0.9

  pack: {max_length: 64}

eval:
  tasks: [mmlu]
  revisions:
    cais/mmlu: unpinned   # questions of school
"""
PINNED = f"""\
# A recipe of somebody who writes by hand.
model:
  hub: {{repo: acme/tiny, revision: '{COMMIT}'}}   # in one line

data:
  hub:
    repo:    acme/rows
    revision: "{OLDER}" # pinned: v1 on {TODAY}
    files: # pinned: from data/train-*.parquet extra.jsonl
      - data/train-00000-of-00003-with-a-long-name.parquet
      - data/train-00001-of-00003-with-a-long-name.parquet
      - data/train-00002-of-00003-with-a-long-name.parquet
      - extra.jsonl

  dedupe:
    semdedup:   # rows of the same meaning
      threshold: 0.9
      revision: {COMMIT} # pinned: main on {TODAY}

  pack: {{max_length: 64}}

eval:
  tasks: [mmlu]
  revisions:
    cais/mmlu: {COMMIT}   # questions of school
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with fake_hub() as made:
        yield made


@pytest.fixture
def hub(server: Hub) -> Hub:
    server.__init__(server.endpoint)  # type: ignore[misc]
    for name in ("acme/tiny", "sentence-transformers/all-MiniLM-L6-v2"):
        server.repos[("model", name)] = dict(MODEL)
    server.repos[("model", "acme/own")] = {**MODEL, **CODE}
    train = {f"data/train-0000{i}-of-00003-with-a-long-name.parquet": b"PAR1" for i in range(3)}
    more = {
        "data/test-0.parquet": b"",
        "data/deeper/train-9.parquet": b"",
        "extra.jsonl": b"",
        "README.md": b"",
    }
    server.repos[("dataset", "acme/rows")] = {**train, **more}
    server.repos[("dataset", "cais/mmlu")] = {"a.parquet": b""}
    return server


class Pinning:
    """A workspace with recipes, and `mxt pin` in it."""

    def __init__(self, ws: Workspace, hub: Hub) -> None:
        self.ws = ws
        self.hub = hub
        self.names: list[str] = []
        shutil.copy(REPOSITORY / "MXTBUILD", ws.root)
        shutil.copytree(REPOSITORY / "toolchains", ws.root / "toolchains")

    def add(self, name: str, text: str) -> Path:
        """A recipe recipes/NAME.yaml and its target."""
        self.names.append(name)
        calls = "".join(f'finetune(name = "{n}", recipe = "{n}.yaml")\n' for n in self.names)
        self.ws.write("recipes/MXTBUILD", f'load("@mxt//rules:finetune.mxt", "finetune")\n{calls}')
        path = self.ws.root / f"recipes/{name}.yaml"
        path.write_bytes(text.encode())
        return path

    def __call__(self, *args: str, code: int = 0, **env: str) -> Result:
        done = self.ws.run("pin", *args, env={"HF_ENDPOINT": self.hub.endpoint, **env})
        assert done.code == code, done.out + done.err
        return done


@pytest.fixture
def pin(ws: Workspace, hub: Hub) -> Pinning:
    return Pinning(ws, hub)


def model(repo: str = "acme/tiny", revision: str = "unpinned", more: str = "") -> str:
    return f"model:\n  hub:\n    repo: {repo}\n    revision: {revision}\n{more}"


def test_only_what_was_looked_up_changes(pin: Pinning) -> None:
    path = pin.add("a", RECIPE)
    path.chmod(0o640)
    done = pin("recipes/a.yaml")
    assert path.read_text() == PINNED
    assert path.stat().st_mode & 0o777 == 0o640
    assert done.out == (
        "recipes/a.yaml\n"
        "     3  model.hub.revision             unpinned -> 0123456789ab  main of acme/tiny\n"
        "     8  data.hub.revision              v1 -> 111111111111  v1 of acme/rows\n"
        "     9  data.hub.files                 data/train-*.parquet, extra.jsonl -> 4 files  of acme/rows\n"
        "    12  data.dedupe.semdedup.revision  (not given) -> 0123456789ab"
        "  main of sentence-transformers/all-MiniLM-L6-v2\n"
        "    20  eval.revisions.cais/mmlu       unpinned -> 0123456789ab  main of cais/mmlu\n"
        "5 values in 1 recipe pinned\n"
    )
    assert done.err == ""
    assert sorted(p.name for p in path.parent.iterdir()) == ["MXTBUILD", "a.yaml"]
    assert pin("recipes/a.yaml").out == "1 recipe: everything is pinned\n"
    assert pin("--check", "//recipes:a").out == "1 recipe: everything is pinned\n"


def test_check_asks_nobody_and_names_each_value(pin: Pinning) -> None:
    path = pin.add("a", RECIPE)
    pin.add("b", model(revision=COMMIT))
    done = pin("--check", "//...", code=1)
    assert done.out == (
        "recipes/a.yaml:3: model.hub.revision is unpinned\n"
        "recipes/a.yaml:8: data.hub.revision is v1\n"
        "recipes/a.yaml:9: data.hub.files is data/train-*.parquet, extra.jsonl\n"
        "recipes/a.yaml:12: data.dedupe.semdedup.revision is not given\n"
        "recipes/a.yaml:20: eval.revisions.cais/mmlu is unpinned\n"
        "5 values unpinned; look them up: mxt pin //...\n"
    )
    assert pin.hub.asked == []
    assert path.read_text() == RECIPE


COMMENTS = (
    "from Ann: this is the release, do not move",
    "reviewed by Ann on 2026-01-02",
    "reviewed on 2026-01-02",
    "ask Bob before running `mxt pin` here!",
    "pinned: by Ann on 2026-01-02",
)


def test_a_comment_of_somebodys_own_stays_whatever_it_says(pin: Pinning) -> None:
    paths = [pin.add(f"r{i}", model(revision=f"unpinned # {said}")) for i, said in enumerate(COMMENTS)]
    pin("//recipes:all")
    assert [p.read_text() for p in paths] == [model(revision=f"{COMMIT} # {said}") for said in COMMENTS]
    pin.hub.asked.clear()
    stays = pin("--update", "//recipes:all").out
    assert stays.count("model.hub.revision stays: no '# pinned: NAME on DATE' behind it") == len(COMMENTS)
    assert pin.hub.asked == []


def test_files_that_are_not_read_are_left_out_of_a_pattern_and_said(pin: Pinning) -> None:
    files = pin.hub.repos[("dataset", "acme/rows")]
    files.update({f"odd/{name}": b"" for name in ("a.jsonl", "b.csv", "c.jsonl.gz", ".lock", "d")})
    data = "data:\n  hub:\n    repo: acme/rows\n    files: [odd/*]\n  pack: {max_length: 64}\n"
    path = pin.add("a", model() + data)
    done = pin("recipes/a.yaml")
    assert "of acme/rows, without odd/.lock, odd/b.csv, odd/c.jsonl.gz: not read\n" in done.out
    assert "    files: [odd/a.jsonl, odd/d] # pinned: from odd/*\n" in path.read_text()
    assert pin("--check", "//recipes:a").out == "1 recipe: everything is pinned\n"


def test_a_windows_file_stays_one(pin: Pinning) -> None:
    text = "\ufeff" + RECIPE.replace("\n", "\r\n")
    path = pin.add("a", text)
    pin("//recipes:a")
    assert path.read_bytes().decode() == "\ufeff" + PINNED.replace("\n", "\r\n")


def test_two_recipes_of_one_repository_ask_once(pin: Pinning) -> None:
    paths = [pin.add(n, model(revision="main")) for n in "abc"]
    done = pin("//recipes:all")
    assert done.out.endswith("3 values in 3 recipes pinned\n")
    assert len(pin.hub.asked) == 1
    assert {p.read_text() for p in paths} == {model(revision=f"{COMMIT} # pinned: main on {TODAY}")}


def test_targets_of_stages_and_labels_of_files_mean_their_recipe(pin: Pinning) -> None:
    for name in ("//recipes:a.fetch_model", "//recipes:a.yaml", "recipes/a.yaml"):
        path = pin.add("a", model())
        pin.names.clear()
        pin(name)
        assert COMMIT in path.read_text(), name


def test_update_moves_what_has_the_name_behind_it(pin: Pinning) -> None:
    path = pin.add("a", RECIPE)
    pin("recipes/a.yaml")
    stay = "".join(
        f"recipes/a.yaml:{place} stays: no '# pinned: NAME on DATE' behind it says what it was\n"
        for place in ("3: model.hub.revision", "25: eval.revisions.cais/mmlu")
    )
    assert pin("--update", "recipes/a.yaml").out == f"{stay}1 recipe: nothing has moved\n"
    new = "2" * 40
    pin.hub.refs = {"main": new, "v1": new, "old": COMMIT, "older": OLDER}
    pin.hub.repos[("dataset", "acme/rows")]["data/train-00003.parquet"] = b""
    would = pin("--update", "--check", "recipes/a.yaml", code=1)
    assert path.read_text() == PINNED
    moved = pin("--update", "recipes/a.yaml")
    assert would.out == moved.out.replace("recipes/a.yaml\n", "recipes/a.yaml would change\n").replace(
        "3 values in 1 recipe pinned", "3 values in 1 recipe would be pinned"
    )
    last = "      - data/train-00002-of-00003-with-a-long-name.parquet\n"
    wanted = PINNED.replace(last, last + "      - data/train-00003.parquet\n")
    wanted = wanted.replace(OLDER, new).replace(f"revision: {COMMIT} #", f"revision: '{new}' #")
    assert path.read_text() == wanted  # what has another comment, or none, stays; digits alone need quotes


def test_code_is_shown_and_trusted_only_when_asked(pin: Pinning) -> None:
    path = pin.add("a", model("acme/own", more="  trust_remote_code: unpinned\n"))
    listed = "".join(f"{b3(data)}  {name}\n" for name, data in CODE.items())
    shown = (
        "recipes/a.yaml:5: model.trust_remote_code would allow this code to run:\n"
        f"       13 B  {b3(CODE['modeling_own.py'])}  modeling_own.py\n"
        f"        6 B  {b3(CODE['parts/more.py'])}  parts/more.py\n"
        f"  to be read at {pin.hub.endpoint}/acme/own/tree/{COMMIT}\n"
        "  read it; then write its digest with --trust-code\n"
    )
    done = pin("//recipes:a", code=1)
    assert done.out.startswith(shown)
    assert done.out.endswith(
        "1 value in 1 recipe pinned\n"
        "left as they are, until somebody has read the code: model.trust_remote_code\n"
    )
    pinned = model("acme/own", f"{COMMIT} # pinned: main on {TODAY}")
    assert path.read_text() == f"{pinned}  trust_remote_code: unpinned\n"
    done = pin("--trust-code", "//recipes:a")
    assert done.out.startswith(shown.rpartition("  read it")[0].replace("would allow", "allows"))
    comment = f"# pinned: 2 files, trusted on {TODAY}"
    assert path.read_text() == f"{pinned}  trust_remote_code: {b3(listed.encode())} {comment}\n"

    new = "2" * 40
    pin.hub.refs["main"] = new
    pin.hub.older[("model", "acme/own", COMMIT)] = dict(pin.hub.repos[("model", "acme/own")])
    files = pin.hub.repos[("model", "acme/own")]
    files["modeling_own.py"] = b"import os\n"
    files["new.py"] = files.pop("parts/more.py")
    done = pin("--update", "//recipes:a", code=1)
    assert done.out.startswith(
        "recipes/a.yaml:5: model.trust_remote_code would allow this code to run:\n"
        f"  changed       10 B  {b3(files['modeling_own.py'])}  modeling_own.py\n"
        f"  new            6 B  {b3(files['new.py'])}  new.py\n"
        "  removed  parts/more.py\n"
    )
    assert done.out.endswith(
        "left as they are, until somebody has read the code: model.trust_remote_code, model.hub.revision\n"
    )
    assert f"revision: {COMMIT} #" in path.read_text()
    assert b3(listed.encode()) in path.read_text()
    pin("--update", "--trust-code", "//recipes:a")
    assert f"revision: '{new}' #" in path.read_text()
    assert b3(listed.encode()) not in path.read_text()


def test_code_of_a_folder_in_the_package_is_trusted_likewise(pin: Pinning) -> None:
    for name, data in CODE.items():
        pin.ws.write(f"recipes/m/{name}", data)
    path = pin.add("a", "model:\n  path: m\n  trust_remote_code: unpinned\n")
    pin("--trust-code", "//recipes:a")
    listed = "".join(f"{b3(data)}  {name}\n" for name, data in CODE.items())
    assert f"trust_remote_code: {b3(listed.encode())} # pinned: 2 files" in path.read_text()
    assert pin.hub.asked == []


HAS = "it has data/train-00000-of-00003-with-a-long-name.parquet, "
HAS += (
    "data/train-00001-of-00003-with-a-long-name.parquet, data/train-00002-of-00003-with-a-long-name.parquet, "
)
HAS += "data/test-0.parquet, data/deeper/train-9.parquet, extra.jsonl"
ODD = "dataset 'acme/rows' has the file 'odd/[x].jsonl' at v1, whose name would be taken for a pattern again"
GATED = "recipes/a.yaml:4: access to model 'acme/gated' is gated"
NO_CODE = "model 'acme/tiny' comes with no code of its own"
UNREAD = "nothing in recipes/MXTBUILD reads 'recipes/loose.yaml' as a recipe"


# ---- what can go wrong ----------------------------------------------------------------------------


def test_all_or_nothing(pin: Pinning) -> None:
    good, bad = pin.add("a", model()), pin.add("b", model("acme/none"))
    done = pin("//recipes:a", "//recipes:b", code=1)
    assert done.err == (
        "error: recipes/b.yaml:4: the Hub knows no model 'acme/none'\n"
        "  hint: check the name; if it is private or gated, accept its terms on the Hub and set HF_TOKEN\n"
        "nothing was written\n"
    )
    assert good.read_text() == model()
    done = pin("-k", "//recipes:a", "//recipes:b", code=1)
    assert done.out.endswith("1 value in 1 recipe pinned\n")
    assert COMMIT in good.read_text()
    assert bad.read_text() == model("acme/none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            model(revision="v2"),
            "recipes/a.yaml:4: model 'acme/tiny' has no branch or tag 'v2'\n  hint: see {hub}/acme/tiny",
        ),
        (
            RECIPE.replace("train-*", "tarin-*"),
            f"recipes/a.yaml:9: dataset 'acme/rows' has no file like 'data/tarin-*.parquet' at v1\n  hint: {HAS}",
        ),
        (
            RECIPE.replace("extra.jsonl", "exra.jsonl"),
            "recipes/a.yaml:9: dataset 'acme/rows' has no file 'exra.jsonl' at v1, did you mean 'extra.jsonl'?",
        ),
        (
            RECIPE.replace("data/train-*.parquet", "odd/*.jsonl"),
            f"recipes/a.yaml:9: {ODD}\n  hint: such a file cannot be named: write patterns that leave it out",
        ),
        (
            RECIPE.replace("data/train-*.parquet", "READ*.md"),
            "recipes/a.yaml:9: of dataset 'acme/rows', 'READ*.md' means README.md at v1, which is not read\n",
        ),
        (
            model("acme/gated"),
            f"{GATED}\n  hint: accept its terms at {{hub}}, then set HF_TOKEN",
        ),
        (
            model(more="  trust_remote_code: unpinned\n"),
            f"recipes/a.yaml:5: {NO_CODE}\n  hint: leave model.trust_remote_code out",
        ),
        (
            "model:\n  path: nowhere\n  trust_remote_code: unpinned\n",
            "recipes/a.yaml:3: nowhere: there is no such folder\n  hint: see model.path",
        ),
    ],
)
def test_what_the_hub_does_not_have_is_said_at_the_value(pin: Pinning, text: str, said: str) -> None:
    pin.hub.repos[("model", "acme/gated")] = dict(MODEL)
    pin.hub.gated.add("acme/gated")
    if "odd/" in text:
        pin.hub.repos[("dataset", "acme/rows")]["odd/[x].jsonl"] = b""
    path = pin.add("a", text)
    done = pin("recipes/a.yaml", code=1)
    assert f"error: {said.format(hub=pin.hub.endpoint)}".rstrip("\n") + "\n" in done.err
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["../out.py", "/etc/x.py", "a\x1b[2Jb.py"])
def test_names_that_no_file_may_have_are_refused_before_anything_is_written(pin: Pinning, name: str) -> None:
    pin.hub.repos[("model", "acme/own")][name] = b""
    path = pin.add("a", model("acme/own", more="  trust_remote_code: unpinned\n"))
    done = pin("--trust-code", "//recipes:a", code=1)
    assert f"acme/own: the Hub lists a file by a name that no file may have: {name!r}" in done.err
    assert COMMIT not in path.read_text()


def test_the_page_of_a_proxy_is_no_answer(pin: Pinning) -> None:
    pin.hub.portal = True
    pin.add("a", model())
    done = pin("//recipes:a", code=1)
    assert f"acme/tiny: what {pin.hub.endpoint} answers is not a Hub's: " in done.err


def test_a_token_opens_what_is_gated(pin: Pinning) -> None:
    pin.hub.repos[("model", "acme/gated")] = dict(MODEL)
    pin.hub.gated.add("acme/gated")
    path = pin.add("a", model("acme/gated"))
    pin("//recipes:a", HF_TOKEN=TOKEN)
    assert COMMIT in path.read_text()


def test_without_a_network_it_is_said_once_for_all(pin: Pinning) -> None:
    pin.add("a", RECIPE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = pin("//recipes:a", code=1, HF_ENDPOINT=nobody)
    assert done.err.count("error:") == 1
    assert done.err.startswith(f"error: recipes/a.yaml:3: acme/tiny: cannot reach the Hub at {nobody}: ")
    assert done.err.endswith(
        ", also recipes/a.yaml:8, recipes/a.yaml:9, recipes/a.yaml:12, recipes/a.yaml:20\n"
        "  hint: pin on a machine with a network, or write commits by hand\n"
    )


def test_a_read_only_file_is_said_before_anybody_is_asked(pin: Pinning) -> None:
    pin.add("a", model()).chmod(0o444)
    done = pin("//recipes:a", code=1)
    assert done.err == (
        "error: recipes/a.yaml: is read-only\n  hint: make the file and its folder writable\n"
    )
    assert pin.hub.asked == []


def test_a_file_that_changes_meanwhile_is_not_overwritten(pin: Pinning) -> None:
    path, other = pin.add("a", model()), pin.add("b", model(revision="main"))
    pin.hub.when_asked = lambda: path.write_text("# mine\n" + model())
    done = pin("//recipes:a", "//recipes:b", code=1)
    assert done.err == (
        "error: recipes/a.yaml: has been changed meanwhile; nothing was written\n  hint: pin it again\n"
    )
    assert path.read_text() == "# mine\n" + model()
    assert other.read_text() == model(revision="main")
    assert sorted(p.name for p in path.parent.iterdir()) == ["MXTBUILD", "a.yaml", "b.yaml"]


def test_a_recipe_that_a_macro_changes_is_pinned_by_its_file(pin: Pinning) -> None:
    path = pin.add("a", model())
    pin.ws.write(
        "recipes/sweep.mxt",
        """
        load("@mxt//rules:finetune.mxt", "finetune")
        def sweep():
            for seed in [1, 2]:
                finetune(name = "s%d" % seed, recipe = "a.yaml", overrides = {"meta.seed": seed})
        """,
    )
    pin.ws.write("recipes/MXTBUILD", 'load("sweep.mxt", "sweep")\nsweep()\n')
    assert pin("--check", "//recipes:s1.fetch_model", code=1).out.startswith("recipes/a.yaml:4: ")
    pin("//recipes:s1")
    assert path.read_text() == model(revision=f"{COMMIT} # pinned: main on {TODAY}")
    path.write_text(model())
    sweep = pin.ws.root / "recipes/sweep.mxt"
    sweep.write_text(sweep.read_text().replace('"meta.seed": seed', '"model.hub.revision": "v%d" % seed'))
    done = pin("//recipes:s1")
    said = "warning: recipes/a.yaml: model.hub.revision is set by a macro: pin it there by hand\n"
    assert (done.out, done.err) == ("1 recipe: everything else is pinned\n", said)
    assert path.read_text() == model()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["recipes/b.yaml"], "there is no file 'recipes/b.yaml', did you mean 'a.yaml'?"),
        (["//recipes:b"], "there is no target '//recipes:b'"),
        (["//recipes:words"], "'//recipes:words' is made from no recipe\n  hint: name a recipe's YAML file"),
        (
            ["recipes/loose.yaml"],
            f'{UNREAD}\n  hint: declare it there, as in finetune(name = "...", recipe = "loose.yaml")',
        ),
    ],
)
def test_what_is_no_recipe_is_said(pin: Pinning, args: list[str], said: str) -> None:
    pin.add("a", model())
    pin.ws.write("recipes/loose.yaml", model())
    with (pin.ws.root / "recipes/MXTBUILD").open("a") as file:
        file.write('genrule(name = "words", outs = ["w"], cmd = "echo x > $@")\n')
    assert pin(*args, code=2).err == f"error: {said}\n"


def test_a_build_refuses_what_is_not_pinned_and_says_what_to_do(pin: Pinning) -> None:
    pin.add("a", model(more="  trust_remote_code: unpinned\n"))
    done = pin.ws.build("//recipes:a", code=1)
    assert done.executed == set()
    assert "error: //recipes:a.fetch_model: model.hub.revision is not pinned\n" in done.err
    assert "mxt pin" in done.err


def test_after_pinning_the_build_reads_exactly_those_files(pin: Pinning) -> None:
    rows = [json.dumps({"text": f"row {i}"}).encode() + b"\n" for i in range(3)]
    for i, row in enumerate(rows):
        pin.hub.repos[("dataset", "acme/rows")][f"plain/part-{i}.jsonl"] = row
    data = 'data:\n  hub:\n    repo: acme/rows\n    files: ["plain/*.jsonl"]\n  pack: {max_length: 64}\n'
    path = pin.add("a", model() + data)
    assert "//recipes:a.shards[0001]" not in pin.ws.run("build", "-n", "//recipes:a.shards").out
    pin("//recipes:a")
    assert (
        f"    revision: {COMMIT} # pinned: main on {TODAY}\n    files: [plain/part-0.jsonl, "
        in path.read_text()
    )
    built = pin.ws.build("//recipes:a.shards", env={"HF_ENDPOINT": pin.hub.endpoint})
    assert built.executed == {"//recipes:a.fetch_data", *(f"//recipes:a.shards[000{i}]" for i in range(3))}
