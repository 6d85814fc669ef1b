"""The picture of a graph: boxes and lines, as one SVG that stands alone or inside a page."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mxt.pages.layout import Layout, Point, Route, lay_out
from mxt.pages.page import COLOURS, escape
from mxt.words import duration, middle_out, size

STATES = ("hit", "executed", "stale", "failed", "refused", "skipped", "source", "waiting")
WORDS = {"refused": "cannot run"}  # what people read, where it is not the state's name
WIDTH, HEIGHT, FLAT = 214.0, 44.0, 26.0
TITLE_CHARS, DETAIL_CHARS = 24, 36

STYLE = """\
svg:root { color-scheme: light dark }
.mxt-picture { font: 12px/1.3 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif }
.mxt-picture .box { fill: var(--paper); stroke: var(--line); stroke-width: 1.2 }
.mxt-picture .bar { fill: var(--state) }
.mxt-picture .title { fill: var(--ink); font-weight: 600 }
.mxt-picture .detail { fill: var(--quiet); font-size: 10.5px }
.mxt-picture .state { fill: var(--state); font-weight: 600 }
.mxt-picture .hit { --state: var(--hit) }
.mxt-picture .executed { --state: var(--executed) }
.mxt-picture .stale { --state: var(--stale) }
.mxt-picture .failed { --state: var(--failed) }
.mxt-picture .refused { --state: var(--refused) }
.mxt-picture .skipped { --state: var(--skipped) }
.mxt-picture .waiting { --state: var(--waiting) }
.mxt-picture .source { --state: var(--source) }
.mxt-picture .stale .box, .mxt-picture .waiting .box, .mxt-picture .skipped .box,
.mxt-picture .refused .box { stroke-dasharray: 5 3 }
.mxt-picture .refused .box { stroke: var(--refused) }
.mxt-picture .failed .box { stroke: var(--failed); stroke-width: 2.2 }
.mxt-picture .source .box { fill: var(--sheet) }
.mxt-picture .source .title { font-weight: 400 }
.mxt-picture .frame { fill: var(--sheet); fill-opacity: .55; stroke: var(--line) }
.mxt-picture .caption { fill: var(--quiet); font-size: 11px }
.mxt-picture .edge { fill: none; stroke: var(--quiet); stroke-opacity: .6; stroke-width: 1.3 }
.mxt-picture .many { stroke-width: 2.6 }
.mxt-picture .saves { stroke-dasharray: 1.5 4; stroke-linecap: round; stroke-width: 1.8 }
.mxt-picture .ground { fill: var(--paper) }
.mxt-picture .tip { fill: var(--quiet); fill: context-stroke }
.mxt-picture a:focus-visible .box { stroke: var(--accent); stroke-width: 3 }
@media print { .mxt-picture { --paper: #fff; --ink: #000 } }
"""

_MARKER = (
    '<defs><marker id="mxt-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0.8 8 4 0 7.2z"/></marker></defs>'
)


# of its own, as a picture by itself may lie on a page of any colour
_GROUND = '<rect class="ground" width="100%" height="100%"/>'


@dataclass(frozen=True)
class PictureNode:
    """name: unique. title: what is shown. kind: a rule, or "source file". state: one of STATES.

    wall_s: seconds that it took. size: bytes of its outputs. href: where a click on it leads. note: a word
    that belongs to its state.
    """

    name: str
    title: str
    kind: str
    state: str
    wall_s: float | None
    size: int | None
    href: str = ""
    note: str = ""


def svg(
    nodes: Sequence[PictureNode],
    edges: Sequence[tuple[str, str]],
    *,
    saves: Sequence[tuple[str, str]] = (),
    label: str = "graph",
) -> str:
    """A complete <svg>; the same nodes and edges in the same order give the same bytes.

    edges: (what is read, its reader), by names of nodes; the flow goes from the first to the second.
    saves: (what only saves another one time, that one), drawn dotted.
    label: what a screen reader calls the picture. Raises ValueError for a cycle and for an unknown state.
    """
    sizes = {n.name: (WIDTH, FLAT if n.state == "source" else HEIGHT) for n in nodes}
    known = [(a, b) for a, b in dict.fromkeys([*edges, *saves]) if a in sizes and b in sizes and a != b]
    dotted = set(saves) - set(edges)
    layout = lay_out(sizes, known)
    places = {name: n for n, name in enumerate(sizes)}
    width, height = round(layout.width), round(layout.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mxt-picture" role="group" '
        f'aria-label="{escape(label)}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    )
    parts = [head, f"<style>\n{COLOURS}{STYLE}</style>", _MARKER, _GROUND, '<g class="view">']
    for x, y, w, h, cells in layout.frames:
        parts.append(
            f'<g class="block"><rect class="frame" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" '
            f'rx="10"/><text class="caption" x="{_n(x + 12)}" y="{_n(y + 19)}">{cells} alike</text></g>'
        )
    parts += [_route(route, layout.across, places, dotted) for route in layout.routes]
    for a, b in layout.inner:
        first, last = _between(layout, sizes, a, b)
        parts.append(_route(Route([first, last], [(a, b)]), layout.across, places, dotted))
    parts += [_node(node, places[node.name], layout.nodes[node.name]) for node in nodes]
    parts.append("</g>\n</svg>")
    return "\n".join(parts) + "\n"


def _between(layout: Layout, sizes: dict[str, tuple[float, float]], a: str, b: str) -> tuple[Point, Point]:
    (ax, ay), (bx, by) = layout.nodes[a], layout.nodes[b]
    (aw, ah), (bw, bh) = sizes[a], sizes[b]
    if layout.across:
        return (ax + aw, ay + ah / 2), (bx, by + bh / 2)
    return (ax + aw / 2, ay + ah), (bx + bw / 2, by)


def _route(route: Route, across: bool, places: dict[str, int], dotted: AbstractSet[tuple[str, str]]) -> str:
    """Curves from layer to layer, straight through each."""
    (x, y), *rest = route.points
    path = [f"M{_n(x)} {_n(y)}"]
    for i, (to_x, to_y) in enumerate(rest):
        if i % 2:
            path.append(f"L{_n(to_x)} {_n(to_y)}")
        elif across:
            half = (x + to_x) / 2
            path.append(f"C{_n(half)} {_n(y)} {_n(half)} {_n(to_y)} {_n(to_x)} {_n(to_y)}")
        else:
            half = (y + to_y) / 2
            path.append(f"C{_n(x)} {_n(half)} {_n(to_x)} {_n(half)} {_n(to_x)} {_n(to_y)}")
        x, y = to_x, to_y
    stood_for = " ".join(f"{places[a]}-{places[b]}" for a, b in route.edges)
    kind = " many" if len(route.edges) > 1 else ""
    line = f'data-e="{stood_for}" marker-end="url(#mxt-tip)" d="{"".join(path)}"'
    if all(edge in dotted for edge in route.edges):
        return f'<path class="edge saves{kind}" {line}><title>saves time, changes no byte</title></path>'
    return f'<path class="edge{kind}" {line}/>'


def _node(node: PictureNode, place: int, corner: Point) -> str:
    if node.state not in STATES:
        raise ValueError(f"'{node.state}' is no state of a node; there are {', '.join(STATES)}")
    source = node.state == "source"
    height = FLAT if source else HEIGHT
    detail = describe(node)
    hover = escape(f"{node.name}\n{detail}" if detail else node.name)
    words, _, facts = detail.partition(" · ")
    inner = (
        f"<title>{hover}</title>"
        f'<rect class="box" width="{_n(WIDTH)}" height="{_n(height)}" rx="6"/>'
        f'<path class="bar" d="M0 6a6 6 0 0 1 5-5.9v{_n(height - 0.2)}a6 6 0 0 1-5-5.9z"/>'
        f'<text class="title" x="14" y="17">{escape(middle_out(node.title, TITLE_CHARS + 3 * source))}</text>'
    )
    if not source:
        facts = middle_out(facts, DETAIL_CHARS - len(words))
        inner += (
            f'<text class="detail" x="14" y="34"><tspan class="state">{escape(words)}</tspan>'
            f"{escape(' · ' + facts if facts else '')}</text>"
        )
    if node.href:
        inner = f'<a href="{escape(node.href)}">{inner}</a>'
    x, y = corner
    return f'<g class="node {node.state}" data-n="{place}" transform="translate({_n(x)} {_n(y)})">{inner}</g>'


def describe(node: PictureNode) -> str:
    """State, time and size in words: "executed · 12.3 s · 4.0 MiB"."""
    parts = [node.kind if node.state == "source" else WORDS.get(node.state, node.state)]
    if node.note:
        parts.append(node.note)
    if node.wall_s is not None:
        parts.append(duration(node.wall_s))
    if node.size is not None:
        parts.append(size(node.size))
    return " · ".join(parts)


def _n(value: float) -> str:
    """A coordinate, without digits that nobody sees."""
    return f"{value:.1f}".removesuffix(".0")
