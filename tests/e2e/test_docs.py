"""The documentation holds: commands run, print what the page shows, links lead somewhere, the reference is current."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import REPOSITORY, Workspace
from tests.e2e.doc_pages import (
    NOT_RUN,
    Reader,
    anchors,
    blocks,
    first_missing,
    links,
    meaning,
    pages,
    yaml_blocks,
)

SLOW = ("README.md", "docs/tutorial.md", "docs/sweep.md")  # they train
PAGES = sorted(
    str(p.relative_to(REPOSITORY)) for p in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
)


@pytest.mark.parametrize("page", [p for p in pages() if p not in SLOW and blocks(p)])
def test_what_a_page_says_works(page: str, tmp_path: Path) -> None:
    Reader(tmp_path).read(page)


@pytest.mark.slow
def test_the_readme(tiny_built: Workspace, tmp_path: Path) -> None:
    """With the recipe built already, as test_pipeline_full builds it, too."""
    reader = Reader(tmp_path)
    for name in ("cache", "mxt-out"):
        subprocess.run(["cp", "-a", tiny_built.root / name, f"{reader.clone}/"], check=True)
    shutil.copytree(tiny_built.home / ".config", reader.home / ".config")
    reader.read("README.md")


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Somebody who has been through the tutorial."""
    reader = Reader(tmp_path_factory.mktemp("learner"))
    reader.read("docs/tutorial.md")
    return reader


@pytest.mark.slow
def test_the_tutorial_and_then_a_sweep(learner: Reader) -> None:
    """docs/sweep.md goes on in the tutorial's workspace."""
    learner.read("docs/sweep.md")


def test_what_is_not_run_says_why() -> None:
    """A mark must be one of NOT_RUN, or blocks() raises; and most blocks have none."""
    found = [block for page in pages() for block in blocks(page)]
    assert {block.not_run for block in found if block.not_run} <= NOT_RUN
    assert sum(not block.not_run for block in found) > 30
    with pytest.raises(ValueError, match=r"^p.md:3: 'too lazy' is no reason: "):
        meaning("not run: too lazy", "p.md:3")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = REPOSITORY / page
    for link in links(path):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{page}: {link} is not there"
        assert target.is_relative_to(REPOSITORY)
        if anchor:
            assert anchor in anchors(target), f"{page}: {link}: no such heading"


@pytest.mark.parametrize("page", [p for p in pages() if yaml_blocks(p)])
def test_pieces_of_recipes_are_what_the_schema_takes(page: str) -> None:
    """Each section of a ```yaml block, by itself."""
    from pydantic import TypeAdapter

    from mxt.loading.recipe_yaml import parse_yaml
    from rules.recipe import Schema

    for text in yaml_blocks(page):
        for section, value in parse_yaml(text.encode(), page).value.items():
            TypeAdapter(Schema.model_fields[section].annotation).validate_python(value)


def test_every_page_is_in_the_index() -> None:
    index = REPOSITORY / "docs/README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    missing = [page for page in PAGES if page.startswith("docs/") and (REPOSITORY / page) not in listed]
    assert set(missing) <= {"docs/README.md"}


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "tools/make_reference.py", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_loose_comparison_is_not_too_loose() -> None:
    """What this file relies on: a wrong line is seen, and one in another order."""
    printed = "one 139c2757fdc0 in 0.3 s\ntwo\nthree 4.25\n"
    assert not first_missing("one 000000000000 in 12.0 s\n...\nthree 1.5\n", printed)
    assert first_missing("one 000000000000 in 12.0 s\nthree 1.5\n", printed) == "three 1.5"
    assert first_missing("two\n...\none 1 in 1 s", printed) == "one 1 in 1 s"
    assert first_missing("four", printed) == "four"
