"""Functions over random graphs, held against networkx."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import pytest

from mxt.errors import UsageError
from mxt.loading.workspace import Workspace
from mxt.query import matching
from mxt.query.evaluate import Evaluation, attribute, in_order
from mxt.query.expression import parse
from mxt.query.targets import Targets, _declared


class World:
    """One package of filegroups, without a disk."""

    def __init__(self, root: Path, edges: dict[str, list[str]]) -> None:
        self.root = root
        (root / "MXTBUILD").touch()
        self.targets = {
            name: SimpleNamespace(
                rule="filegroup", name=name, attrs={"srcs": [f":{d}" for d in deps]}, where=""
            )
            for name, deps in edges.items()
        }

    def package(self, name: str) -> Any:
        assert name == ""
        return SimpleNamespace(targets=self.targets)

    def definition(self, name: str) -> Any:
        raise AssertionError(name)

    def rules(self) -> list[str]:
        return ["bundle", "filegroup", "genrule"]

    def packages_below(self, folder: str) -> list[str]:
        assert folder == ""
        return [""]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[dict[str, list[str]], str], list[str]]:
    def asked(edges: dict[str, list[str]], text: str) -> list[str]:
        workspace = Workspace(tmp_path, tmp_path / "cache")
        evaluation = Evaluation(Targets(World(tmp_path, edges)), workspace, text)
        return [label.removeprefix("//:") for label in evaluation.evaluate(parse(text))]

    return asked


Ask = Callable[[dict[str, list[str]], str], list[str]]


def edges_of(seed: int, *, acyclic: bool) -> dict[str, list[str]]:
    r = random.Random(seed)
    return {
        f"n{i}": [f"n{j}" for j in range(i + 1 if acyclic else 0, 12) if j != i and r.random() < 0.2]
        for i in range(12)
    }


@pytest.mark.parametrize("seed", range(12))
def test_functions_agree_with_networkx(ask: Ask, seed: int) -> None:
    edges = edges_of(seed, acyclic=seed % 3 != 0)
    graph = nx.DiGraph(edges)
    for start in ("n0", "n5"):
        below = nx.descendants(graph, start) | {start}
        assert set(ask(edges, f"deps(:{start})")) == below
        for depth in (0, 1, 2):
            near = nx.single_source_shortest_path_length(graph, start, cutoff=depth)
            assert set(ask(edges, f"deps(:{start}, {depth})")) == set(near)
        for end in ("n7", "n11"):
            inside = graph.subgraph(below)
            above = (nx.ancestors(inside, end) | {end}) if end in below else set()
            assert set(ask(edges, f"rdeps(:{start}, :{end})")) == above
            assert set(ask(edges, f"allpaths(:{start}, :{end})")) == above
            path = ask(edges, f"somepath(:{start}, :{end})")
            assert bool(path) == (end in below)
            if path:
                assert len(path) == nx.shortest_path_length(graph, start, end) + 1
                assert (path[0], path[-1]) == (start, end)
                assert all(graph.has_edge(a, b) for a, b in itertools.pairwise(path))
            direct = {a for a in graph.predecessors(end) if a in below} | ({end} & below)
            assert set(ask(edges, f"rdeps(:{start}, :{end}, 1)")) == direct


def test_operators_go_from_left_to_right(ask: Ask) -> None:
    edges: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    assert ask(edges, ":a + :b - :a + :c") == ["b", "c"]
    assert ask(edges, ":a + :b ^ :b") == ["b"]
    assert ask(edges, ":a + (:b ^ :c)") == ["a"]
    assert ask(edges, "let x = :a + :b in //... - $x") == ["c"]
    assert ask(edges, "let x = :a in (let x = :b in $x) + $x") == ["b", "a"]
    assert ask(edges, "some(:c + :b + :a, 2)") == ["a", "b"]
    with pytest.raises(UsageError, match="no 'let y"):
        ask(edges, ":a + $y")


def test_a_malformed_regex_is_pointed_at(ask: Ask) -> None:
    with pytest.raises(UsageError) as caught:
        ask({"a": []}, "kind('ab(', :a)")
    assert caught.value.excerpt == "    kind('ab(', :a)\n            ^"


def test_order_and_cycles(tmp_path: Path) -> None:
    edges = {"app": ["b", "a"], "a": ["base"], "b": ["base"], "base": [], "x": ["y"], "y": ["x"]}
    targets = Targets(World(tmp_path, edges))
    found = dict.fromkeys(f"//:{n}" for n in reversed(edges))
    assert in_order(targets, found) == ["//:app", "//:a", "//:b", "//:base", "//:x", "//:y"]


def test_attributes_as_text() -> None:
    attrs = {"tags": ["a", "b"], "on": True, "n": 3, "recipe": {"train": {"lr": "1e-4"}}, "none": None}
    assert attribute(attrs, "tags") == ["[a, b]"]
    assert attribute(attrs, "on") == ["1"]
    assert attribute(attrs, "n") == ["3"]
    assert attribute(attrs, "recipe.train.lr") == ["1e-4"]
    assert attribute(attrs, "recipe.train") == ["{lr: 1e-4}"]
    assert attribute(attrs, "none") == attribute(attrs, "nope") == attribute(attrs, "n.x") == []


def test_a_regex_that_never_ends_is_stopped(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "LIMIT_S", 0.3)
    name = "a" * 40
    with pytest.raises(UsageError, match=f"takes too long on '//:{name}'"):
        ask({name: []}, "filter('(a+)+$', :all) + filter('(a+)+b', :all)")
    assert ask({name: []}, "filter('a+$', :all)") == [name]  # no bound is left behind


def test_of_a_recipe_only_what_the_rule_declares() -> None:
    recipe = {"train": {"lr": 1e-4, "seed": 1, "lora": {"r": 8, "alpha": 16}}, "eval": None}
    fields = ("train.lora.r", "train.lora", "train.lr", "eval.tasks", "gone.far.away")
    declared = _declared(recipe, fields)
    assert attribute({"config": declared}, "config.train.lr") == ["0.0001"]
    assert attribute({"config": declared}, "config.train.lora") == ["{r: 8, alpha: 16}"]
    assert attribute({"config": declared}, "config.train.seed") == []
    assert recipe["train"] == {"lr": 1e-4, "seed": 1, "lora": {"r": 8, "alpha": 16}}


def test_names_that_nothing_has_are_doubted(tmp_path: Path) -> None:
    def doubts(text: str) -> list[str]:
        world = World(tmp_path, {"tiny_train": [], "tiny_eval": []})
        world.targets["tiny_train"].attrs["tags"] = ["manual"]
        evaluation = Evaluation(Targets(world), Workspace(tmp_path, tmp_path / "cache"), text)
        evaluation.evaluate(parse(text))
        return list(evaluation.doubts)

    assert doubts("attr(tgas, x, :all)") == ["nothing here has an attribute 'tgas', did you mean 'tags'?"]
    assert doubts("labels(src, :all)") == ["nothing here has an attribute 'src', did you mean 'srcs'?"]
    assert doubts("kind(filegruop, :all)") == ["no kind matches 'filegruop', did you mean 'filegroup'?"]
    assert doubts("attr(tags, '\\bmanaul\\b', :all)") == [
        "nothing here has the tag 'manaul', did you mean 'manual'?"
    ]
    assert doubts("filter(tniy, :all)") == ["no label here contains 'tniy', did you mean 'tiny'?"]
    # finding nothing is an answer, where the names are right
    for fine in (
        "attr(tags, slow, :all)",
        "kind(genrule, :all)",
        "filter(quantize, :all)",
        "attr(tags, m, :all)",
    ):
        assert doubts(fine) == []
