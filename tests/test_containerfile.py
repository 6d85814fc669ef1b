"""toolchains/Containerfile is built by hand, as it fetches 0.45 GB; here is looked at what can rot."""

from __future__ import annotations

import re
from pathlib import Path

from mxt.action.image import problem_of_name

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT = (REPOSITORY / "toolchains/Containerfile").read_text(encoding="utf-8")


def test_it_copies_what_is_there_and_all_that_mxtw_needs() -> None:
    copied = [
        source for line in re.findall(r"^COPY (.+)$", TEXT, re.MULTILINE) for source in line.split()[:-1]
    ]
    assert {"mxtw", "mxt/", "rules/", "tools/setup.sh", "toolchains/cpu-py311.txt"} <= set(copied)
    assert [source for source in copied if not (REPOSITORY / source).exists()] == []


def test_it_installs_as_mxtw_does() -> None:
    setup = (REPOSITORY / "tools/setup.sh").read_text(encoding="utf-8")
    for option in ("--no-deps", "--use-pep517"):
        assert option in TEXT
        assert option in setup
    for package in ("bubblewrap", "g++", "python3.11-dev", "python3.11-venv"):
        assert package in TEXT
        assert package in setup


def test_its_base_is_named_without_a_registry() -> None:
    base = re.search(r"^ARG BASE=(\S+)$", TEXT, re.MULTILINE)
    assert base is not None
    assert problem_of_name(base[1]) == ""
    assert "/" not in base[1]
