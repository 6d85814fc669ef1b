"""mxt query: questions about the target graph, in the language of `bazel query`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from mxt.cli.options import add_workspace
from mxt.cli.terminal import warn
from mxt.errors import EXIT_OK

if TYPE_CHECKING:
    from mxt.cli.session import Session
    from mxt.query.targets import Targets

EXAMPLES = """
examples:
  mxt query //...                                every target
  mxt query 'deps(//recipes:x.train)'            all that a stage needs
  mxt query 'deps(//recipes:x.train, 1)'         what it reads itself
  mxt query 'rdeps(//..., //recipes:r.jsonl)'    what a changed file reaches
  mxt query 'somepath(//recipes:x, //:data)'     why one needs the other
  mxt query 'kind("source", deps(//recipes:x))'  its files
  mxt query 'attr(tags, "\\bmanual\\b", //...)'    by an attribute
  mxt query 'tests(//...) - filter(tiny, //...)'  union +, except -, intersect ^
  mxt query 'deps(//:app)' --output graph | dot -Tsvg > app.svg

functions:
  deps(X[, DEPTH])             X and all it needs
  rdeps(UNIVERSE, X[, DEPTH])  all within deps(UNIVERSE) that needs X, and X
  allpaths(A, B)               all that lies between
  somepath(A, B)               one shortest path
  kind(REGEX, X)               of these kinds
  filter(REGEX, X)             with labels in which the regex is found
  attr(NAME, REGEX, X)         with such an attribute: a list is "[a, b]", True
                               is "1"; config.train.lr: a field of the recipe
                               that the rule declares
  labels(ATTRIBUTE, X)         what an attribute names
  tests(X)                     tests in X, and those that bundles in X group
  some(X[, COUNT])             the first by name
  set(a b)                     several labels at once
  let v = X in Y               $v stands for X in Y

Kinds are "genrule rule" and so on for every rule, "source file", "source folder", "generated
file" (what a genrule declares in outs), "missing file" (named, and not there). //pkg:all and //...
mean rules, "manual" ones too; //pkg:* also the files that the package's rules name.

Needs are what attributes name, files and toolchains and platforms (--no-tools leaves these two out)
and a recipe's YAML included. Nothing is run or hashed, no rule is carried out; a rule of the
workspace's own must be trusted. Results come sorted by name; somepath and allpaths, and --output
graph, from the top down. Quote what holds blanks, parentheses, commas or operators.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("expression", metavar="EXPR", help="what to look for; quote it for the shell")
    parser.add_argument(
        "--output",
        choices=["label", "label_kind", "json", "graph"],
        default="label",
        help="label (default); label_kind: kind before it; json: an array, one target a line; "
        "graph: Graphviz dot",
    )
    parser.add_argument("--no-tools", action="store_true", help="toolchains and platforms are no edges")
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.cli.session import Session
    from mxt.query.evaluate import Evaluation, in_order
    from mxt.query.expression import Call, parse
    from mxt.query.targets import Targets

    tree = parse(args.expression)
    session = Session(args)
    targets = Targets(_Packages(session), tools=not args.no_tools)
    evaluation = Evaluation(targets, session.workspace, args.expression)
    try:
        found = evaluation.evaluate(tree)
    finally:
        session.loader.close()
    for doubt in evaluation.doubts:
        warn(f"query: {doubt}")
    if args.output == "graph" or (isinstance(tree, Call) and tree.function == "allpaths"):
        labels = in_order(targets, found)
    elif isinstance(tree, Call) and tree.function == "somepath":
        labels = list(found)
    else:
        labels = sorted(found)
    if not labels:
        print("nothing matches", file=sys.stderr)
    sys.stdout.write(_OUTPUTS[args.output](targets, labels))
    return EXIT_OK


class _Packages:
    """A session as queries see it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.root = session.root
        self.package = session.package
        self.definition = session.definition

    def rules(self) -> list[str]:
        from mxt.graph.core_rules import CORE_RULES
        from mxt.loading.rule_modules import find_rules

        return list(find_rules(self._session.workspace, CORE_RULES))

    def packages_below(self, folder: str) -> list[str]:
        from mxt.loading.workspace import discover

        return discover(self._session.workspace, folder).packages


def _label(_: Targets, labels: list[str]) -> str:
    return "".join(f"{label}\n" for label in labels)


def _label_kind(targets: Targets, labels: list[str]) -> str:
    return "".join(f"{targets.node(label).kind} {label}\n" for label in labels)


def _json(targets: Targets, labels: list[str]) -> str:
    import json

    lines = []
    for label in labels:
        node = targets.node(label)
        fields = {
            "label": label,
            "kind": node.kind,
            "location": node.where,
            "deps": list(node.deps),
            "attributes": dict(node.attrs),
        }
        lines.append(json.dumps(fields, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def _graph(targets: Targets, labels: list[str]) -> str:
    shown = set(labels)
    lines = ["digraph mxt {", "  node [shape=box];"]
    for label in labels:
        lines.append(f"  {_quoted(label)};")
        lines += [f"  {_quoted(label)} -> {_quoted(d)};" for d in targets.node(label).deps if d in shown]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(label: str) -> str:
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"') + '"'


_OUTPUTS: dict[str, Callable[[Targets, list[str]], str]] = {
    "label": _label,
    "label_kind": _label_kind,
    "json": _json,
    "graph": _graph,
}
