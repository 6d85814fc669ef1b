"""Where the boxes of a graph's picture lie: blocks of like nodes, layers by igraph, sizes kept apart.

Real graphs are wide: two hundred shards, each with its own source, that one action reads. Drawn node by
node that is a strip nobody can look at. So nodes that stand to the rest of the graph in the same way,
each with what only it reads (its *cell*), become one *block*, a grid with one edge in and one edge out.
igraph orders what is left within its layers (Sugiyama's method); places follow from the order and the sizes.

Everything here is a function of the nodes' and edges' order: the same graph gives the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LIKE = 6  # from so many on, like cells become a block
CELL = 6  # nodes that a cell may hold
GAP, CELL_GAP, INSIDE, LAYER_GAP, PAD, MARGIN = 16.0, 12.0, 22.0, 46.0, 12.0, 14.0
CAPTION = 18.0  # above a block's grid
ASPECT = 1.5  # width by height that a picture should have

Point = tuple[float, float]
Size = tuple[float, float]


@dataclass
class Block:
    """What is placed: a node, or a framed grid of like cells. members: node -> top left corner inside."""

    members: dict[str, Point]
    size: Size
    framed: bool = False
    cells: int = 1


@dataclass
class Route:
    """An edge between blocks: its points, and the edges of the graph that it stands for."""

    points: list[Point]
    edges: list[tuple[str, str]]


@dataclass
class Layout:
    """In pixels. nodes: top left corners. frames: x, y, width, height, cells. inner: edges inside blocks."""

    nodes: dict[str, Point] = field(default_factory=dict)
    frames: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    inner: list[tuple[str, str]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    across: bool = False


def lay_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> Layout:
    """Places for nodes of those sizes. edges: (what is read, its reader); they must form no cycle.

    Flows downwards or to the right, whichever gives the better proportions.
    """
    downwards = _lay_out(sizes, edges, across=False)
    if downwards.width <= 760 or not sizes:
        return downwards
    rightwards = _lay_out(sizes, edges, across=True)
    return min(downwards, rightwards, key=_misfit)


def _misfit(layout: Layout) -> float:
    return abs(math.log(layout.width / layout.height / ASPECT))


def _lay_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]], *, across: bool) -> Layout:
    blocks, block_of = _blocks(sizes, edges, across)
    layout = Layout(across=across)
    bundled: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for a, b in edges:
        if block_of[a] == block_of[b]:
            layout.inner.append((a, b))
        else:
            bundled.setdefault((block_of[a], block_of[b]), []).append((a, b))
    # along: in the direction of the flow; beside: across it
    along = [b.size[0] if across else b.size[1] for b in blocks]
    beside = [b.size[1] if across else b.size[0] for b in blocks]
    net = _Net(len(blocks), list(bundled))
    centres = net.place(beside)
    extents = [0.0] * (max(net.layer, default=0) + 1)
    for n, layer in enumerate(net.layer[: len(blocks)]):
        extents[layer] = max(extents[layer], along[n])
    begins, place = [], MARGIN
    for extent in extents:
        begins.append(place)
        place += extent + LAYER_GAP
    low = min((c - s / 2 for c, s in zip(centres, beside, strict=False)), default=0.0) - MARGIN
    low = min([low, *(c - MARGIN for c in centres[len(blocks) :])])

    def turn(forward: float, sideways: float) -> Point:
        return (forward, sideways - low) if across else (sideways - low, forward)

    corners: list[Point] = []
    for n, block in enumerate(blocks):
        # centred in its layer
        forward = begins[net.layer[n]] + (extents[net.layer[n]] - along[n]) / 2
        corner = turn(forward, centres[n] - beside[n] / 2)
        corners.append(corner)
        for name, (x, y) in block.members.items():
            layout.nodes[name] = (corner[0] + x, corner[1] + y)
        if block.framed:
            layout.frames.append((*corner, *block.size, block.cells))
    for (start, end), stood_for in bundled.items():
        layer = net.layer[start]
        first = turn(begins[layer] + (extents[layer] + along[start]) / 2, centres[start])
        layer = net.layer[end]
        last = turn(begins[layer] + (extents[layer] - along[end]) / 2, centres[end])
        points = [first]
        for dummy in net.trunk(start, end):
            begin = begins[net.layer[dummy]]
            points += [turn(begin, centres[dummy]), turn(begin + extents[net.layer[dummy]], centres[dummy])]
        layout.routes.append(Route([*points, last], stood_for))
    right = [x + blocks[n].size[0] for n, (x, _) in enumerate(corners)]
    below = [y + blocks[n].size[1] for n, (_, y) in enumerate(corners)]
    far = [p for route in layout.routes for p in route.points]
    layout.width = max([*right, *(p[0] for p in far)], default=0.0) + MARGIN
    layout.height = max([*below, *(p[1] for p in far)], default=0.0) + MARGIN
    return layout


# ---- blocks ------------------------------------------------------------------------------------


def _blocks(
    sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]], across: bool
) -> tuple[list[Block], dict[str, int]]:
    """Every node in exactly one block, in a fixed order; and the block of each node."""
    reads: dict[str, list[str]] = {name: [] for name in sizes}
    readers: dict[str, list[str]] = {name: [] for name in sizes}
    for a, b in edges:
        reads[b].append(a)
        readers[a].append(b)
    order = _topological(reads, readers)
    cells: dict[str, list[str]] = {}  # a node and what only it reads, recursively; empty if too many
    shapes: dict[str, object] = {}
    for name in order:
        own = [p for p in reads[name] if len(readers[p]) == 1]
        whole = [name, *(m for p in own for m in cells[p])]
        small = len(whole) <= CELL and all(cells[p] for p in own)
        cells[name] = whole if small else []
        shared = tuple(sorted(p for p in reads[name] if len(readers[p]) > 1))
        shapes[name] = (
            (sizes[name], shared, tuple(sorted((shapes[p] for p in own), key=repr))) if small else 0
        )
    like: dict[object, list[str]] = {}
    for name in sizes:
        if cells[name] and (reads[name] or readers[name]):
            like.setdefault((shapes[name], tuple(sorted(readers[name]))), []).append(name)
    taken: dict[str, int] = {}
    blocks: list[Block] = []
    group_of = {name: group for group in like.values() for name in group}
    for name in reversed(order):  # readers first: the largest cells win
        group = group_of.get(name, [])
        if name in taken or len(group) < LIKE or any(m in taken for g in group for m in cells[g]):
            continue
        for member in (m for g in group for m in cells[g]):
            taken[member] = len(blocks)
        blocks.append(_grid([_cell(g, reads, readers, sizes, across) for g in group]))
    for name in sizes:
        if name not in taken:
            taken[name] = len(blocks)
            blocks.append(Block({name: (0.0, 0.0)}, sizes[name]))
    return blocks, taken


def _topological(reads: Mapping[str, list[str]], readers: Mapping[str, list[str]]) -> list[str]:
    waiting = {name: len(found) for name, found in reads.items()}
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows while it is walked
        for reader in readers[name]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(ready) != len(reads):
        raise ValueError("the graph has a cycle")
    return ready


def _cell(
    name: str,
    reads: Mapping[str, list[str]],
    readers: Mapping[str, list[str]],
    sizes: Mapping[str, Size],
    across: bool,
) -> Block:
    """A node after the cells that only it reads, which stand beside each other."""
    own = [_cell(p, reads, readers, sizes, across) for p in reads[name] if len(readers[p]) == 1]
    if not own:
        return Block({name: (0.0, 0.0)}, sizes[name])
    width, height = sizes[name]
    members: dict[str, Point] = {}
    if across:
        deep, wide = max(b.size[0] for b in own), sum(b.size[1] + 6 for b in own) - 6
        total = max(wide, height)
        at = (total - wide) / 2
        for block in own:
            members.update({m: (deep - block.size[0] + x, at + y) for m, (x, y) in block.members.items()})
            at += block.size[1] + 6
        members[name] = (deep + INSIDE, (total - height) / 2)
        return Block(members, (deep + INSIDE + width, total))
    deep, wide = max(b.size[1] for b in own), sum(b.size[0] + 6 for b in own) - 6
    total = max(wide, width)
    at = (total - wide) / 2
    for block in own:
        members.update({m: (at + x, deep - block.size[1] + y) for m, (x, y) in block.members.items()})
        at += block.size[0] + 6
    members[name] = ((total - width) / 2, deep + INSIDE)
    return Block(members, (total, deep + INSIDE + height))


def _grid(cells: Sequence[Block]) -> Block:
    """Cells of one size in rows, in a frame of good proportions."""
    width = max(c.size[0] for c in cells) + CELL_GAP
    height = max(c.size[1] for c in cells) + CELL_GAP
    columns = max(1, min(len(cells), round(math.sqrt(len(cells) * height * ASPECT / width))))
    rows = -(-len(cells) // columns)
    columns = -(-len(cells) // rows)
    members: dict[str, Point] = {}
    for n, cell in enumerate(cells):
        left, top = PAD + n % columns * width, PAD + CAPTION + n // columns * height
        members.update({m: (left + x, top + y) for m, (x, y) in cell.members.items()})
    full = (2 * PAD + columns * width - CELL_GAP, 2 * PAD + CAPTION + rows * height - CELL_GAP)
    return Block(members, full, framed=True, cells=len(cells))


# ---- layers ------------------------------------------------------------------------------------


class _Net:
    """Blocks in layers. An edge that passes layers runs through dummies, shared with others of its start."""

    def __init__(self, count: int, edges: Sequence[tuple[int, int]]) -> None:
        self.count = count
        self.layer = self._layers(count, edges)
        self._trunks: dict[int, list[int]] = {}
        self.steps: dict[tuple[int, int], None] = {}
        for a, b in edges:
            trunk = self._trunks.setdefault(a, [])
            while len(trunk) < self.layer[b] - self.layer[a] - 1:
                dummy = len(self.layer)
                self.layer.append(self.layer[a] + len(trunk) + 1)
                self.steps[trunk[-1] if trunk else a, dummy] = None
                trunk.append(dummy)
            passed = self.trunk(a, b)
            self.steps[passed[-1] if passed else a, b] = None

    def trunk(self, a: int, b: int) -> list[int]:
        """The dummies between two blocks."""
        return self._trunks[a][: self.layer[b] - self.layer[a] - 1]

    @staticmethod
    def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
        """The longest way from a start; then what nothing stands before moves next to its first reader."""
        into: list[list[int]] = [[] for _ in range(count)]
        out: list[list[int]] = [[] for _ in range(count)]
        for a, b in edges:
            into[b].append(a)
            out[a].append(b)
        layer = [0] * count
        waiting = [len(found) for found in into]
        order = [n for n in range(count) if not waiting[n]]
        for n in order:
            for m in out[n]:
                layer[m] = max(layer[m], layer[n] + 1)
                waiting[m] -= 1
                if not waiting[m]:
                    order.append(m)
        for n in reversed(order):
            if not into[n] and out[n]:
                layer[n] = min(layer[m] for m in out[n]) - 1
        return layer

    def place(self, sizes: Sequence[float]) -> list[float]:
        """A centre across the flow for every block and dummy, none of them overlapping in its layer."""
        if not self.layer:
            return []
        import igraph

        graph = igraph.Graph(n=len(self.layer), edges=list(self.steps), directed=True)
        order = [x for x, _ in graph.layout_sugiyama(layers=self.layer, maxiter=200).coords]
        rows: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        for n, layer in enumerate(self.layer):
            rows[layer].append(n)
        # a mirrored order crosses as little: take the one that people know from the files
        pairs = [(row[i - 1], row[i]) for row in rows for i in range(1, len(row)) if row[i] < self.count]
        if sum(order[a] > order[b] for a, b in pairs) * 2 > len(pairs):
            order = [-x for x in order]
        beside: list[list[int]] = [[] for _ in self.layer]
        for a, b in self.steps:
            beside[a].append(b)
            beside[b].append(a)
        full = [*sizes, *[0.0] * (len(self.layer) - self.count)]
        centres = [0.0] * len(self.layer)
        for row in rows:
            row.sort(key=lambda n: (order[n], n))
            spread(row, full, centres, [0.0] * len(row))
        dummy = [n >= self.count for n in range(len(self.layer))]
        pulls = [
            # a line that turns is worse than a box that is off, and a box off its like worse than off a line
            [(m, 8.0 if dummy[n] and dummy[m] else 1.0 if dummy[n] or dummy[m] else 3.0) for m in found]
            for n, found in enumerate(beside)
        ]
        for sweep in range(24 if len(self.layer) < 4000 else 8):
            for row in rows if sweep % 2 else reversed(rows):
                wish = [
                    sum(centres[m] * pull for m, pull in pulls[n]) / sum(pull for _, pull in pulls[n])
                    if pulls[n]
                    else centres[n]
                    for n in row
                ]
                spread(row, full, centres, wish)
        return centres


def spread(row: Sequence[int], sizes: Sequence[float], centres: list[float], wish: Sequence[float]) -> None:
    """Set the centres of a row as near to the wishes as its order and sizes allow (least squares)."""
    offsets, total = [], 0.0
    for i, n in enumerate(row):
        if i:
            total += (sizes[row[i - 1]] + sizes[n]) / 2 + GAP
        offsets.append(total)
    # with the offsets taken away only the order is left: neighbours that violate it share their mean
    pools: list[tuple[float, int]] = []
    for i, wanted in enumerate(wish):
        mean, count = wanted - offsets[i], 1
        while pools and pools[-1][0] >= mean:
            other, many = pools.pop()
            mean = (mean * count + other * many) / (count + many)
            count += many
        pools.append((mean, count))
    i = 0
    for mean, count in pools:
        for _ in range(count):
            centres[row[i]] = round(mean + offsets[i], 1)
            i += 1
