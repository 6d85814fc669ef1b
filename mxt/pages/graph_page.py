"""The page of a graph: the picture with pan and zoom, search, focus on what belongs together, details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mxt.pages.page import escape, page, script_json
from mxt.pages.picture import STATES, WORDS, PictureNode, describe, svg

_HELP = """<template id="help"><h2>Details</h2>
<p class="quiet">Choose a box to see what it is, what it reads and who reads it; choose it again to see
only what it belongs to. A dotted line means: saves time, and changes no byte.</p>
<dl class="keys"><dt><kbd>Tab</kbd></dt><dd>to the boxes</dd>
<dt><kbd>&larr;</kbd> <kbd>&uarr;</kbd> <kbd>&rarr;</kbd> <kbd>&darr;</kbd></dt><dd>to the next box</dd>
<dt><kbd>Enter</kbd></dt><dd>only what it needs and what needs it</dd>
<dt><kbd>/</kbd></dt><dd>search; <kbd>Enter</kbd> goes on</dd>
<dt><kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd></dt><dd>nearer, farther, all of it</dd>
<dt><kbd>Esc</kbd></dt><dd>back</dd></dl></template>"""


@dataclass(frozen=True)
class GraphNode:
    """A box and what the panel says about it. facts: (name, value) in order."""

    picture: PictureNode
    facts: Sequence[tuple[str, str]] = field(default=())


def graph_page(
    title: str,
    summary: str,
    nodes: Sequence[GraphNode],
    edges: Sequence[tuple[str, str]],
    saves: Sequence[tuple[str, str]] = (),
) -> str:
    """One HTML file. edges: (what is read, its reader). saves: (what only saves it time, a box).

    The same input gives the same bytes.
    """
    pictures = [node.picture for node in nodes]
    drawn = svg(pictures, edges, saves=saves, label=title)
    counts = {state: sum(p.state == state for p in pictures) for state in STATES}
    chips = "".join(
        f'<button type="button" class="chip {state}" data-state="{state}" aria-pressed="false">'
        f"{count} {WORDS.get(state, state)}</button>"
        for state, count in counts.items()
        if count
    )
    data = [
        {
            "name": node.picture.name,
            "state": node.picture.state,
            "words": describe(node.picture),
            "facts": [["Kind", node.picture.kind], *map(list, node.facts)],
        }
        for node in nodes
    ]
    body = f"""<header><h1>{escape(title)}</h1><p class="quiet">{escape(summary)}</p></header>
<div class="tools screen" role="toolbar" aria-label="view">
<input id="search" type="search" placeholder="Search ( / )" aria-label="search by name" autocomplete="off">
<span id="found" class="quiet" aria-live="polite"></span>
{chips}
<button type="button" id="out" aria-label="zoom out">&minus;</button>
<button type="button" id="in" aria-label="zoom in">+</button>
<button type="button" id="fit">All</button><span id="zoom" class="quiet"></span></div>
<main><div id="picture">
{drawn}</div>
<aside id="details" class="screen" aria-live="polite" aria-label="details"></aside></main>
{_HELP}
<script type="application/json" id="nodes">{script_json(data)}</script>"""
    return page(title, body, script=_text("graph.js"), style=_text("graph.css"))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
