"""Repositories of the Hub that want a licence accepted: said before anything runs where there is no token."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from mxt.rule import Need

# only what asks without doubt: others say so themselves, when the download begins
GATED = (
    "meta-llama/*",
    "google/gemma-2b*",
    "google/gemma-7b*",
    "google/gemma-2-*",
    "google/gemma-3-*",
    "google/codegemma-*",
    "google/paligemma*",
    "bigcode/starcoder*",
    "bigcode/the-stack*",
    "Idavidrein/gpqa",
    "cais/hle",
)


def needs(*repos: str | None) -> tuple[Need, ...]:
    """A token for each repository that is known to be gated; a mirror (HF_ENDPOINT) may want none."""
    return tuple(_need(repo) for repo in repos if repo is not None and gated([repo]))


def gated(repos: Iterable[str]) -> list[str]:
    """Those of the repositories that are known to be gated."""
    return [repo for repo in repos if any(fnmatchcase(repo, pattern) for pattern in GATED)]


def _need(repo: str) -> Need:
    return Need(
        ("HF_TOKEN", "HF_ENDPOINT"),
        f"'{repo}' is gated, and HF_TOKEN is not set",
        f"accept its terms on the Hub's page of {repo}, then: export HF_TOKEN=...",
    )
