"""config() with overrides: the recipe as if the values stood in it, errors that name what was overridden."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mxt.errors import LoadError
from mxt.loading.config import load_config
from mxt.loading.trust import trust
from tests.loading.conftest import Space
from tests.loading.test_config import SCHEMA


@pytest.fixture
def recipes(space: Space) -> Space:
    space.write("rules/toy.py", SCHEMA)
    space.write("p/MXTBUILD")
    space.write("p/r.yaml", "train:\n  steps: 3\n  betas: [0.5, 0.6]\n")
    trust(space.root, space.environ)
    return space


def load(space: Space, overrides: dict[str, Any]) -> Any:
    config = load_config(space.workspace, "p", "r.yaml", "toy", space.environ, overrides)
    return json.loads(config.text)


def test_a_value_takes_the_place_of_the_files_and_of_a_default(recipes: Space) -> None:
    train = load(recipes, {"train.lr": 1e-3, "train.steps": 4})["train"]
    assert (train["lr"], train["steps"], train["betas"]) == (1e-3, 4, [0.5, 0.6])


def test_an_absent_section_is_made_and_a_present_one_removed(recipes: Space) -> None:
    assert load(recipes, {"train.lora.r": 4})["train"]["lora"] == {"r": 4, "dropout": 0.0}
    assert load(recipes, {"serve": {"r": 2}})["serve"] == {"r": 2, "dropout": 0.0}
    recipes.write("p/r.yaml", "train:\n  steps: 3\n  lora: {r: 8}\n")
    assert load(recipes, {"train.lora": None})["train"]["lora"] is None


def test_a_problem_in_the_file_that_an_override_made_names_the_override(recipes: Space) -> None:
    recipes.write("p/r.yaml", "train:\n  steps: 3\n  betas: [x]\n")
    with pytest.raises(LoadError) as caught:
        load(recipes, {"train.lr": 1.0})
    assert (caught.value.where, caught.value.hint) == ("p/r.yaml:3:11", "")  # the file's own
    lone = SCHEMA.replace('"steps must not be 13"', "\"steps is given, and 'lr', too\\nleave one out\"")
    recipes.write("rules/toy.py", lone)
    trust(recipes.root, recipes.environ)
    recipes.write("p/r.yaml", "train:\n  steps: 13\n")
    with pytest.raises(LoadError) as caught:
        load(recipes, {"train.lr": 1.0, "train.mode": "free"})
    assert caught.value.where == "p/r.yaml:2:3"
    assert caught.value.hint == "leave one out; overridden here: train.lr"


def test_it_is_as_if_the_value_stood_in_the_file(recipes: Space) -> None:
    overridden = load(recipes, {"train.lr": 2e-4, "train.betas": [0.1]})
    recipes.write("p/r.yaml", "train:\n  steps: 3\n  betas: [0.1]\n  lr: 2e-4\n")
    assert load(recipes, {}) == overridden


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (
            {"train.lr": -1.0},
            "p/r.yaml with overrides: 'train.lr': input should be greater than 0, not -1.0",
            "overridden here: train.lr",
        ),
        (
            {"train.lrr": 1.0, "train.lr": 1.0},
            "p/r.yaml with overrides: unknown key 'lrr', did you mean 'lr'?",
            "overridden here: train.lr, train.lrr",
        ),
        (
            {"train.lora": {"r": 4, "alpa": 2}},
            "p/r.yaml with overrides: unknown key 'alpa'",
            "known here: r, dropout",
        ),
        (
            {"train.steps": 13},
            "p/r.yaml with overrides: 'train.steps' must not be 13",
            "overridden here: train.steps",
        ),
        (
            {"train.lr.x": 1},
            "p/r.yaml with overrides: 'train.lr': input should be a valid number",
            "overridden here: train.lr.x",
        ),
        (
            {"train.betas.x": 1},
            "override 'train.betas.x': 'train.betas' of p/r.yaml has no fields of its own",
            "a list or a value is overridden as a whole",
        ),
        ({"train..lr": 1}, "override 'train..lr' is no field", 'name it as in {"train.lr": 1e-4}'),
        (
            {"train.lora": None, "train.lora.r": 3},
            "overrides 'train.lora' and 'train.lora.r' set the same field twice",
            "",
        ),
    ],
)  # fmt: skip
def test_errors(recipes: Space, overrides: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(LoadError) as caught:
        load(recipes, overrides)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_what_is_wrong_in_the_file_is_shown_in_the_file(recipes: Space) -> None:
    recipes.write("p/r.yaml", "train:\n  stepz: 3\n")
    with pytest.raises(LoadError) as caught:
        load(recipes, {"train.steps": 3})
    assert str(caught.value).startswith("p/r.yaml:2:3: unknown key 'stepz', did you mean 'steps'?\n")
