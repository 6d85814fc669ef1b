"""config() gives a macro a validated, fully defaulted recipe, or every error of the file at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxt.errors import LoadError, UsageError
from mxt.loading.config import load_config
from mxt.loading.trust import trust
from tests.loading.conftest import Space

SCHEMA = """
from typing import Literal
from pydantic import BaseModel, ConfigDict, Field, model_validator

class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

class Lora(Section):
    r: int = Field(16, gt=0)
    dropout: float = 0.0

class Train(Section):
    lr: float = Field(1e-4, gt=0)
    steps: int
    lora: Lora | None = None
    mode: Literal["strict", "free"] = "strict"
    betas: list[float] = [0.9, 0.95]

    @model_validator(mode="after")
    def _check(self):
        if self.steps == 13:
            raise ValueError("steps must not be 13")
        return self

class Schema(Section):
    train: Train
    serve: Lora | None = None
"""


@pytest.fixture
def recipes(space: Space) -> Space:
    space.write("rules/toy.py", SCHEMA)
    space.write("p/MXTBUILD")
    trust(space.root, space.environ)
    return space


def check(space: Space, text: str, schema: str = "toy") -> object:
    space.write("p/r.yaml", text)
    return json.loads(load_config(space.workspace, "p", "r.yaml", schema, space.environ).text)


def error(space: Space, text: str) -> LoadError:
    with pytest.raises(LoadError) as caught:
        check(space, text)
    return caught.value


def test_defaults_and_absent_sections(recipes: Space) -> None:
    assert check(recipes, "train: {steps: 3}\n") == {
        "train": {"lr": 1e-4, "steps": 3, "lora": None, "mode": "strict", "betas": [0.9, 0.95]},
        "serve": None,
    }


def test_floats_stay_floats(recipes: Space) -> None:
    found = check(recipes, "train:\n  steps: 3\n  lr: 1\n  lora: {dropout: 0}\n  betas: [1.0, 1e-4]\n")
    train = found["train"]  # type: ignore[index]
    assert [repr(v) for v in (train["lr"], train["lora"]["dropout"], *train["betas"])] == [
        "1.0",
        "0.0",
        "1.0",
        "0.0001",
    ]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("train:\n  steps: 3\n  lrr: 1.0\n", "3:3", "unknown key 'lrr', did you mean 'lr'?"),
        ("trian:\n  steps: 3\ntrain: {steps: 1}\n", "1:1", "unknown key 'trian', did you mean 'train'?"),
        ("train:\n  steps: 3\n  lora: {r: 1, rank: 2}\n", "3:16", "unknown key 'rank'"),
        ("train:\n  lr: 1.0\n", "1:1", "'train' needs the key 'steps'"),
        ("serve: {r: 1}\n", "1:1", "the recipe needs the key 'train'"),
        ("train:\n  steps: 1.5\n", "2:10", "'train.steps': input should be a valid integer, not 1.5"),
        ("train:\n  steps: '3'\n", "2:10", "'train.steps': input should be a valid integer, not '3'"),
        ("train:\n  steps: 3\n  lr: -1.0\n", "3:7", "'train.lr': input should be greater than 0, not -1.0"),
        (
            "train:\n  steps: 3\n  betas: [0.9, x]\n",
            "3:16",
            "'train.betas.1': input should be a valid number, not 'x'",
        ),
        (
            "train:\n  steps: 3\n  mode: stric\n",
            "3:9",
            "'train.mode': input should be 'strict' or 'free', not 'stric'",
        ),
        ("train:\n  steps: 13\n", "2:3", "'train.steps' must not be 13"),
        ("train: 3\n", "1:8", "'train' must be a section with fields, not 3"),
    ],
)
def test_errors_stand_in_the_file(recipes: Space, text: str, place: str, message: str) -> None:
    problem = error(recipes, text)
    assert problem.where == f"p/r.yaml:{place}"
    assert problem.message == message
    assert "^" in problem.excerpt


def test_all_errors_at_once(recipes: Space) -> None:
    assert str(error(recipes, "train:\n  lr: 0.0\n  mod: free\nserve: {r: 0}\n")) == (
        "p/r.yaml:1:1: 'train' needs the key 'steps'\n"
        "    train:\n"
        "    ^\n"
        "p/r.yaml:2:7: 'train.lr': input should be greater than 0, not 0.0\n"
        "      lr: 0.0\n"
        "          ^\n"
        "p/r.yaml:3:3: unknown key 'mod', did you mean 'mode'?\n"
        "      mod: free\n"
        "      ^\n"
        "p/r.yaml:4:12: 'serve.r': input should be greater than 0, not 0\n"
        "    serve: {r: 0}\n"
        "               ^"
    )


@pytest.mark.parametrize(
    ("text", "says"), [("", "is empty"), ("- 1\n", "must be a mapping"), ("3", "must be a mapping")]
)
def test_not_a_mapping(recipes: Space, text: str, says: str) -> None:
    assert says in error(recipes, text).message


@pytest.mark.parametrize(
    "path", ["../r.yaml", "/etc/passwd", "//p:../x.yaml", "a\\b.yaml", "@mxt//rules:recipe.py"]
)
def test_bad_paths(recipes: Space, path: str) -> None:
    with pytest.raises(LoadError):
        load_config(recipes.workspace, "p", path, "toy", recipes.environ)


def test_a_link_out_of_the_workspace(recipes: Space, tmp_path: Path) -> None:
    (tmp_path / "out.yaml").write_text("train: {steps: 1}\n")
    (recipes.root / "p/out.yaml").symlink_to(tmp_path / "out.yaml")
    with pytest.raises(LoadError, match=r"leads out of the workspace"):
        load_config(recipes.workspace, "p", "out.yaml", "toy", recipes.environ)


def test_missing_file_and_schema(recipes: Space) -> None:
    recipes.write("p/r.yaml", "train: {steps: 1}\n")
    with pytest.raises(LoadError, match=r"no file 'p/q.yaml' for config\(\), did you mean 'r.yaml'\?"):
        load_config(recipes.workspace, "p", "q.yaml", "toy", recipes.environ)
    with pytest.raises(LoadError, match=r"no schema 'toyy' for config\(\), did you mean 'toy'\?"):
        load_config(recipes.workspace, "p", "r.yaml", "toyy", recipes.environ)
    with pytest.raises(LoadError, match=r"no schema '../toy'"):
        load_config(recipes.workspace, "p", "r.yaml", "../toy", recipes.environ)


def test_an_untrusted_schema_does_not_run(recipes: Space) -> None:
    recipes.write("rules/toy.py", SCHEMA + "\nraise SystemExit('ran')\n")
    with pytest.raises(UsageError, match=r"rules/toy.py changed"):
        check(recipes, "train: {steps: 1}\n")


def test_a_schema_reads_a_file_of_the_package_and_depends_on_it(recipes: Space) -> None:
    reading = SCHEMA.replace("(self):", "(self, info):").replace(
        "if self.steps == 13:", "if info.context['package'].text('few.txt') == 'few' and self.steps > 3:"
    )
    recipes.write("rules/toy.py", reading)
    trust(recipes.root, recipes.environ)
    assert check(recipes, "train: {steps: 13}\n")
    recipes.write("p/few.txt", "few")
    assert error(recipes, "train: {steps: 13}\n").message == "'train.steps' must not be 13"
    check(recipes, "train: {steps: 3}\n")
    config = load_config(recipes.workspace, "p", "r.yaml", "toy", recipes.environ)
    assert set(config.files) > {"p/few.txt", "p/r.yaml"}


def test_a_broken_schema(recipes: Space) -> None:
    recipes.write("rules/none.py", "x = 1\n")
    recipes.write(
        "rules/boom.py", SCHEMA.replace('raise ValueError("steps must not be 13")', "return 1 // 0")
    )
    trust(recipes.root, recipes.environ)
    with pytest.raises(LoadError, match=r"rules/none.py has no Schema"):
        check(recipes, "train: {steps: 1}\n", "none")
    with pytest.raises(LoadError, match=r"schema 'boom' failed on this file: ZeroDivisionError"):
        check(recipes, "train: {steps: 13}\n", "boom")


def test_from_starlark_and_back(recipes: Space) -> None:
    recipes.write("p/r.yaml", "train: {steps: 3, lr: 1, betas: [1.0, 0.1]}\n")
    recipes.write(
        "p/m.mxt", 'def m(name, path):\n    genrule(name = name, recipe = config(path, schema = "toy"))\n'
    )
    recipes.write("p/MXTBUILD", 'load(":m.mxt", "m")\nm(name = "x", path = "r.yaml")\n')
    package = recipes.load("p")
    recipe = package.targets["x"].attrs["recipe"]
    assert recipe["serve"] is None
    assert repr(recipe["train"]["lr"]) == "1.0"
    assert recipe["train"]["betas"] == [1.0, 0.1]
    assert {"p/MXTBUILD", "p/m.mxt", "p/r.yaml", "rules/toy.py"} <= set(package.reads.files)


def test_a_recipes_error_is_its_own_even_from_a_macro(recipes: Space) -> None:
    recipes.write("p/r.yaml", "train: {stepss: 3}\n")
    recipes.write("p/MXTBUILD", 'x = config("r.yaml", "toy")\n')
    with pytest.raises(LoadError) as caught:
        recipes.load("p")
    assert str(caught.value).startswith("p/r.yaml:1:1: 'train' needs the key 'steps'\n")
    assert "p/r.yaml:1:9: unknown key 'stepss', did you mean 'steps'?" in str(caught.value)
