"""Models and datasets of the Hub by pinned commit, over real HTTP; and each way in which that can fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import b3
from tests.rules.fake_hub import COMMIT, TOKEN, Hub, fake_hub
from tests.rules.stage import command

MODEL = {
    "config.json": b'{"model_type": "qwen3"}',
    "model-00001-of-00002.safetensors": b"weights one" * 1000,
    "model-00002-of-00002.safetensors": b"weights two" * 1000,
    "model.safetensors.index.json": b"{}",
    "consolidated.safetensors": b"the same again",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "LICENSE": b"free",
    "README.md": b"read me",
    "pytorch_model.bin": b"a pickle",
    "original/model.safetensors": b"another one",
}
DATA = {"data/train-0.jsonl": b'{"text": "a"}\n', "data/train-1.parquet": b"PAR1", "README.md": b"read me"}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with fake_hub() as made:
        made.repos[("model", "acme/tiny")] = dict(MODEL)
        made.repos[("dataset", "acme/rows")] = dict(DATA)
        yield made


class Stage:
    """A finished process. error: what a user would see."""

    def __init__(self, entry: str, folder: Path, task: dict[str, Any], **env: str) -> None:
        import subprocess

        argv, environment = command(entry, folder, task)
        environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_ETAG_TIMEOUT": "5", **env}
        done = subprocess.run(
            argv,
            env=environment,
            cwd=folder / "work",
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self.code = done.returncode
        self.out = done.stdout
        self.error = done.stderr
        self.files = {
            str(p.relative_to(folder / "model")): p.read_bytes()
            for p in (folder / "model").rglob("*")
            if p.is_file()
        }
        self.folder = folder


def model(
    hub: Hub,
    folder: Path,
    *,
    repo: str = "acme/tiny",
    revision: str = COMMIT,
    code: str | None = None,
    **env: str,
) -> Stage:
    task = {
        "config": {
            "model.hub.repo": repo,
            "model.hub.revision": revision,
            "model.trust_remote_code": code,
        },
        "outputs": {"model": "model/"},
        "progress": str(folder.parent / "progress"),
    }
    return Stage("rules.fetch_model:fetch_model", folder, task, **{"HF_ENDPOINT": hub.endpoint, **env})


def data(hub: Hub, folder: Path, files: list[str]) -> Stage:
    task = {
        "config": {"data.hub.repo": "acme/rows", "data.hub.revision": COMMIT, "data.hub.files": files},
        "outputs": {f"{i:04d}": f"{i:04d}{Path(f).suffix}" for i, f in enumerate(files)},
    }
    return Stage("rules.fetch_data:fetch_data", folder, task, HF_ENDPOINT=hub.endpoint)


def test_a_model_is_its_safetensors_settings_and_tokenizer(hub: Hub, tmp_path: Path) -> None:
    got = model(hub, tmp_path / "a")
    assert got.code == 0, got.error
    unwanted = {
        "README.md",
        "pytorch_model.bin",
        "original/model.safetensors",
        "consolidated.safetensors",
    }
    assert got.files == {n: d for n, d in MODEL.items() if n not in unwanted}
    reports = [json.loads(x) for x in got.out.splitlines() if x.startswith("{")]
    total = sum(map(len, got.files.values()))
    assert reports[-1]["of"] == total
    assert reports[-1]["step"] == total


def test_files_already_there_are_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    hub.broken.add("tokenizer.json")
    first = model(hub, tmp_path / "a")
    assert "error: acme/tiny: 'tokenizer.json' came with other bytes than its commit names" in first.error
    hub.broken.clear()
    hub.served.clear()
    second = model(hub, tmp_path / "b")
    assert second.code == 0, second.error
    assert "tokenizer.json" in hub.served
    assert "config.json" not in hub.served
    assert second.files["config.json"] == MODEL["config.json"]


def test_altered_weights_are_noticed(hub: Hub, tmp_path: Path) -> None:
    hub.broken.add("model-00002-of-00002.safetensors")
    got = model(hub, tmp_path / "a")
    assert got.code == 1
    assert "'model-00002-of-00002.safetensors' came with other bytes" in got.error
    assert got.files == {}


def test_a_gated_model_needs_a_token(hub: Hub, tmp_path: Path) -> None:
    hub.gated.add("acme/tiny")
    got = model(hub, tmp_path / "a")
    assert "access to model 'acme/tiny' is gated" in got.error
    assert "set HF_TOKEN" in got.error
    assert model(hub, tmp_path / "b", HF_TOKEN=TOKEN).code == 0


CODE = {"modeling_a.py": b"import torch\n", "inner/parts.py": b"x = 1\n"}
DIGEST = "".join(f"{b3(CODE[n])}  {n}\n" for n in ("inner/parts.py", "modeling_a.py"))


def with_code(hub: Hub) -> None:
    config = json.dumps({"model_type": "a", "auto_map": {"AutoModel": "modeling_a.A"}}).encode()
    hub.repos[("model", "acme/own")] = {**MODEL, "config.json": config, **CODE}


def test_a_model_with_code_is_refused_before_anything_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    with_code(hub)
    got = model(hub, tmp_path / "a", repo="acme/own")
    assert got.code == 1
    assert got.error == (
        "error: model 'acme/own' comes with code of its own: inner/parts.py, modeling_a.py\n"
        "  hint: set model.trust_remote_code: unpinned and run 'mxt pin RECIPE', which shows the code and "
        "how to trust it; or, if transformers has this model's class itself, "
        "model.trust_remote_code: ignore\n"
    )
    assert hub.served == []


def test_code_is_fetched_where_the_recipe_has_its_digest(hub: Hub, tmp_path: Path) -> None:
    with_code(hub)
    got = model(hub, tmp_path / "a", repo="acme/own", code=b3(DIGEST.encode()))
    assert got.code == 0, got.error
    assert {n: got.files[n] for n in CODE} == CODE


def test_other_code_than_was_trusted_is_shown_before_weights_are_downloaded(hub: Hub, tmp_path: Path) -> None:
    with_code(hub)
    hub.repos[("model", "acme/own")]["modeling_a.py"] = b"import os\n"
    got = model(hub, tmp_path / "a", repo="acme/own", code=b3(DIGEST.encode()))
    found = b3(DIGEST.replace(b3(b"import torch\n"), b3(b"import os\n")).encode())
    assert got.error == (
        "error: the code of model 'acme/own' is not what model.trust_remote_code trusts: its digest is "
        f"{found}, not {b3(DIGEST.encode())}\n"
        f"    {b3(b'x = 1' + bytes([10]))}  inner/parts.py\n"
        f"    {b3(b'import os' + bytes([10]))}  modeling_a.py\n"
        "  hint: compare with what 'mxt pin' showed when it was trusted, read what differs, pin it again\n"
    )
    assert not [n for n in hub.served if n.endswith(".safetensors")]


def test_code_that_is_ignored_stays_away(hub: Hub, tmp_path: Path) -> None:
    with_code(hub)
    got = model(hub, tmp_path / "a", repo="acme/own", code="ignore")
    assert got.code == 0, got.error
    assert not [n for n in got.files if n.endswith(".py")]


def test_code_of_another_repository_is_refused_although_no_file_of_it_is_there(
    hub: Hub, tmp_path: Path
) -> None:
    config = json.dumps({"auto_map": {"AutoModel": "evil/code--modeling.A"}}).encode()
    hub.repos[("model", "acme/own")] = {**MODEL, "config.json": config}
    got = model(hub, tmp_path / "a", repo="acme/own")
    assert "error: model 'acme/own' wants code of its own: evil/code--modeling.A\n" in got.error
    got = model(hub, tmp_path / "b", repo="acme/own", code="0" * 64)
    assert "error: model 'acme/own' wants code of another repository: evil/code\n" in got.error
    assert not [n for n in hub.served if n.endswith(".safetensors")]


def test_a_digest_without_code_is_too_much(hub: Hub, tmp_path: Path) -> None:
    got = model(hub, tmp_path / "a", code="0" * 64)
    assert "error: model 'acme/tiny' comes with no code of its own\n" in got.error
    assert "hint: leave model.trust_remote_code out" in got.error


def test_an_unknown_repository_and_an_unknown_commit_are_named(hub: Hub, tmp_path: Path) -> None:
    got = model(hub, tmp_path / "a", repo="acme/tinny")
    assert "the Hub knows no model 'acme/tinny'" in got.error
    assert "HF_TOKEN" in got.error
    got = model(hub, tmp_path / "b", revision="f" * 40)
    assert f"model 'acme/tiny' has no commit {'f' * 40}" in got.error


def test_pickles_alone_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.repos[("model", "acme/old")] = {"config.json": b"{}", "pytorch_model.bin": b"a pickle"}
    got = model(hub, tmp_path / "a", repo="acme/old")
    assert "model 'acme/old' has no safetensors at this commit, but pytorch_model.bin" in got.error
    assert (
        "hint: pickles can run code when they are loaded, so they are not; if you trust this one" in got.error
    )
    assert hub.served == []


def test_without_a_network_the_error_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    with socket.socket() as taken:  # a port on which nobody listens
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        got = model(hub, tmp_path / "a", HF_ENDPOINT=endpoint)
    assert got.code == 1
    assert f"acme/tiny: cannot reach the Hub at {endpoint}" in got.error
    assert "once on a machine with a network; or copy the model's folder into the package" in got.error
    assert "model.path" in got.error
    assert "Traceback" not in got.error


def test_a_failing_hub_is_said_to_fail(hub: Hub, tmp_path: Path) -> None:
    hub.failing = True
    got = model(hub, tmp_path / "a")
    assert "the Hub failed" in got.error
    assert "Traceback" not in got.error


def test_the_page_of_a_proxy_is_no_answer(hub: Hub, tmp_path: Path) -> None:
    hub.portal = True
    got = model(hub, tmp_path / "a")
    assert got.error.startswith(f"error: acme/tiny: what {hub.endpoint} answers is not a Hub's: ")
    assert "does anything between here and there want a login?" in got.error
    assert "Traceback" not in got.error


def test_a_name_that_leads_elsewhere_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.repos[("model", "acme/tiny")]["../../out.py"] = b""
    got = model(hub, tmp_path / "a", code="0" * 64)
    assert got.error == (
        "error: acme/tiny: the Hub lists a file by a name that no file may have: '../../out.py'\n"
    )
    assert hub.served == []


def test_a_password_in_the_endpoint_is_used_and_never_said(hub: Hub, tmp_path: Path) -> None:
    endpoint = hub.endpoint.replace("http://", "http://me:s%40cret@")
    hub.password = "me:s@cret"
    assert model(hub, tmp_path / "refused").code == 1
    got = model(hub, tmp_path / "a", HF_ENDPOINT=endpoint)
    assert got.code == 0, got.error
    assert "config.json" in got.files
    hub.failing = True
    failed = model(hub, tmp_path / "b", HF_ENDPOINT=endpoint)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://me:s%40cret@127.0.0.1:{taken.getsockname()[1]}"
        unreachable = model(hub, tmp_path / "c", HF_ENDPOINT=nobody)
    assert "cannot reach the Hub at http://127.0.0.1" in unreachable.error
    for stage in (got, failed, unreachable):
        assert not [x for x in ("cret", "me:s") if x in stage.error + stage.out]


def test_data_files_become_numbered_shards(hub: Hub, tmp_path: Path) -> None:
    got = data(hub, tmp_path / "a", ["data/train-1.parquet", "data/train-0.jsonl"])
    assert got.code == 0, got.error
    assert (got.folder / "0000.parquet").read_bytes() == DATA["data/train-1.parquet"]
    assert (got.folder / "0001.jsonl").read_bytes() == DATA["data/train-0.jsonl"]


def test_a_missing_data_file_is_named_with_the_nearest(hub: Hub, tmp_path: Path) -> None:
    got = data(hub, tmp_path / "a", ["data/train-0.json"])
    assert (
        "'acme/rows' has no file 'data/train-0.json' at this commit, did you mean 'data/train-0.jsonl'?"
        in got.error
    )
