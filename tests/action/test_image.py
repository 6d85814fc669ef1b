"""An image's declaration: names as registries understand them, and what stands in keys."""

from __future__ import annotations

import pytest

from mxt.action.image import UNPINNED, Image, problem_of_digest, problem_of_name

DIGEST = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("name", "registry", "repository", "tag"),
    [
        ("debian", "docker.io", "library/debian", "latest"),
        ("debian:12-slim", "docker.io", "library/debian", "12-slim"),
        ("rocm/primus:v26.2", "docker.io", "rocm/primus", "v26.2"),
        ("docker.io/rocm/primus:v26.2", "docker.io", "rocm/primus", "v26.2"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io", "nvidia/pytorch", "25.10-py3"),
        ("localhost/mine", "localhost", "mine", "latest"),
        ("localhost:5000/mine", "localhost:5000", "mine", "latest"),
        ("127.0.0.1:5000/a/b/c:x", "127.0.0.1:5000", "a/b/c", "x"),
    ],
)
def test_names(name: str, registry: str, repository: str, tag: str) -> None:
    image = Image("//:t", name, DIGEST)
    assert (image.registry, image.repository, image.tag) == (registry, repository, tag)
    assert image.reference == f"{registry}/{repository}@{DIGEST}"
    assert problem_of_name(name) == ""


def test_a_key_knows_the_bytes_and_the_architecture_and_no_name() -> None:
    one = Image("//:a", "rocm/primus:v1", DIGEST, "amd64", "MXTBUILD:1:1")
    assert one.key == f"linux/amd64@{DIGEST}"
    assert Image("//b:c", "elsewhere.example/other", DIGEST).key == one.key
    assert one._replace(arch="arm64").key != one.key
    unpinned = one._replace(digest=UNPINNED)
    assert not unpinned.pinned
    assert unpinned.key == "linux/amd64@unpinned:rocm/primus:v1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        DIGEST[:-1],
        DIGEST + "0",
        DIGEST.upper(),
        "sha512:" + "a" * 128,
        DIGEST + "\n",
        "latest",
    ],
)
def test_what_is_no_digest(text: str) -> None:
    assert "is not the digest of an image" in problem_of_digest(text)


def test_what_is_no_name() -> None:
    assert problem_of_digest(DIGEST) == problem_of_digest(UNPINNED) == ""
    assert "has a digest in its name" in problem_of_name(f"rocm/primus@{DIGEST}")
    for name in ("", "Rocm/primus", "a b", "/a", "a//b", "a:", "a/", "-a", "--privileged"):
        assert "is not the name of an image" in problem_of_name(name), name
