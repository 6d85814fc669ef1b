"""Layouts hold what they promise for any graph: boxes apart, edges forward, the same picture again."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxt.pages.layout import GAP, lay_out, spread

REPOSITORY = Path(__file__).resolve().parents[2]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    count = draw(st.integers(1, 24))
    names = [f"n{i}" for i in range(count)]
    pairs = list(itertools.combinations(names, 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=40)) if pairs else []
    sizes = {n: (196.0, draw(st.sampled_from([26.0, 44.0]))) for n in names}
    return sizes, edges


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_boxes_lie_apart_and_inside(
    graph: tuple[dict[str, tuple[float, float]], list[tuple[str, str]]],
) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    assert set(layout.nodes) == set(sizes)
    for (a, (ax, ay)), (b, (bx, by)) in itertools.combinations(layout.nodes.items(), 2):
        apart = (
            ax + sizes[a][0] <= bx
            or bx + sizes[b][0] <= ax
            or ay + sizes[a][1] <= by
            or by + sizes[b][1] <= ay
        )
        assert apart, (a, b)
    for name, (x, y) in layout.nodes.items():
        assert x >= 0
        assert y >= 0
        assert x + sizes[name][0] <= layout.width
        assert y + sizes[name][1] <= layout.height
    drawn = [pair for route in layout.routes for pair in route.edges] + layout.inner
    assert sorted(drawn) == sorted(edges)
    axis = 0 if layout.across else 1
    for a, b in edges:
        assert layout.nodes[a][axis] + sizes[a][axis] <= layout.nodes[b][axis]


def test_like_cells_become_one_block() -> None:
    """Ten shards, each with a source of its own and one that all share."""
    edges = [(f"raw{i}", f"shard{i}") for i in range(10)]
    edges += [("schema", f"shard{i}") for i in range(10)] + [(f"shard{i}", "all") for i in range(10)]
    names = dict.fromkeys(name for edge in edges for name in edge)
    layout = lay_out(dict.fromkeys(names, (196.0, 44.0)), edges)
    assert [frame[4] for frame in layout.frames] == [10]
    assert sorted(layout.inner) == [(f"raw{i}", f"shard{i}") for i in range(10)]
    assert sorted(len(route.edges) for route in layout.routes) == [10, 10]


def test_few_and_unlike_ones_do_not() -> None:
    edges = [(f"shard{i}", "all") for i in range(5)] + [(f"other{i}", "all") for i in range(3)]
    edges += [(f"x{i}", f"other{i}") for i in range(3)] + [("y", "other0"), ("y", "other1")]
    names = dict.fromkeys(name for edge in edges for name in edge)
    assert lay_out(dict.fromkeys(names, (196.0, 44.0)), edges).frames == []


@pytest.mark.parametrize("seed", [8, 14])
def test_of_two_mirrored_orders_the_given_one(seed: int) -> None:
    """igraph lays these two graphs out the wrong way round."""
    r = random.Random(seed)
    names = [f"n{i}" for i in range(14)]
    edges = sorted({(names[r.randrange(i)], names[i]) for i in range(1, 14) for _ in range(2)})
    layout = lay_out(dict.fromkeys(names, (100.0, 44.0)), edges)
    assert not layout.across
    rows: dict[float, list[tuple[float, int]]] = {}
    for name, (x, y) in layout.nodes.items():
        rows.setdefault(y, []).append((x, names.index(name)))
    beside = [pair for row in rows.values() for pair in itertools.pairwise(n for _, n in sorted(row))]
    assert sum(a > b for a, b in beside) * 2 <= len(beside)


def test_nothing_and_cycles() -> None:
    assert lay_out({}, []).nodes == {}
    with pytest.raises(ValueError, match="cycle"):
        lay_out({"a": (1.0, 1.0), "b": (1.0, 1.0)}, [("a", "b"), ("b", "a")])


def test_spread_takes_the_wishes_that_fit() -> None:
    centres = [0.0, 0.0, 0.0]
    spread([0, 1, 2], [10, 10, 10], centres, [0, 100, 300])
    assert centres == [0, 100, 300]
    spread([0, 1, 2], [10, 10, 10], centres, [50, 50, 50])
    assert centres == [50 - 10 - GAP, 50, 50 + 10 + GAP]


def test_the_picture_is_the_same_under_another_hash_seed() -> None:
    code = """
import random
from mxt.pages.picture import PictureNode, svg
r = random.Random(5)
names = [f"n{i}" for i in range(80)]
edges = [(names[r.randrange(i)], names[i]) for i in range(1, 80) for _ in range(r.randrange(3))]
edges += [(f"s{i}", "n9") for i in range(9)]
nodes = [PictureNode(n, n, "genrule", "hit", 1.0, 2) for n in [*names, *(f"s{i}" for i in range(9))]]
print(svg(nodes, edges))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].count('class="node hit"') == 89


def test_five_hundred_boxes_fill_a_sheet() -> None:
    """However wide the graph, its picture has the proportions of a screen, not of a ribbon."""
    r = random.Random(7)
    names = [f"n{i}" for i in range(500)]
    edges = [(names[r.randrange(max(0, i - 60), i)], names[i]) for i in range(1, 500) for _ in range(2)]
    layout = lay_out(dict.fromkeys(names, (196.0, 44.0)), list(dict.fromkeys(edges)))
    assert 1 / 6 < layout.width / layout.height < 6
