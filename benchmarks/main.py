"""The command line of the benchmarks: which to run, how much of them, where results go."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks import _table
from benchmarks._measure import (
    REPOSITORY,
    BenchmarkError,
    Result,
    cores,
    load_now,
    load_result,
    save,
    say,
    warn_if_busy,
)
from benchmarks._peers import NAMES, Peers
from benchmarks._settings import Settings
from benchmarks._worlds import Worlds

BENCHMARKS = {
    "startup": "mxt --help and its like, beside python and ninja",
    "null": "null builds of 10 to 100,000 genrules, beside ninja, Snakemake and DVC",
    "blind": "changes that a null build might miss: which tool notices which",
    "one_leaf": "one of 10,000 leaves changed, beside ninja",
    "analysis": "cold analysis of 10,000 targets, and its phases",
    "actions": "1,000 trivial actions, plain and sandboxed, beside ninja, Snakemake and DVC",
    "hashing": "a source of 4 GiB, 20,000 small ones, an output of 4 GiB, beside b3sum",
    "overhead": "the tiny recipe: what is not the stages' own work",
    "scale": "10 to 100,000 targets, 1,000 to 1,000,000 files; draws docs/scale.svg",
}
RESULTS = REPOSITORY / "benchmarks/results"
QUICK_RESULTS = REPOSITORY / "benchmarks/.quick"

EXAMPLES = """
examples:
  benchmarks/run null                    one benchmark; its table, and its figures as JSON
  benchmarks/run all --quick             each in seconds: do they work?
  benchmarks/run null one_leaf --largest 10000 --without dvc,snakemake
  benchmarks/run all --write             everything, then the tables of README.md and docs/performance.md
  benchmarks/run tables                  the tables again, from the figures that are kept

Absolute times mean something on an idle machine only; ratios to a tool measured in the same run bear more.
"""


def main(argv: list[str] | None = None) -> int:
    """0, or 2 with a message where something cannot be measured."""
    args = _parse(argv)
    try:
        return _main(args)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 8


def _parse(argv: list[str] | None) -> argparse.Namespace:
    words = {**BENCHMARKS, "all": "all of these", "tables": "nothing new: the tables of the kept figures"}
    listing = "\n".join(f"  {name:<10}{text}" for name, text in words.items())
    parser = argparse.ArgumentParser(
        prog="benchmarks/run",
        description=f"Measures mxt beside other build tools.\n\nbenchmarks:\n{listing}",
        epilog=EXAMPLES.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "names", nargs="+", metavar="NAME", choices=[*BENCHMARKS, "all", "tables"], help="see above"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two runs: a smoke test, no figures")
    parser.add_argument("--largest", type=int, default=1_000_000, metavar="N", help="no size above N")
    parser.add_argument("--without", default="", metavar="TOOLS", help=f"leave out some of {','.join(NAMES)}")
    parser.add_argument(
        "--no-install", action="store_true", help="use the other tools only where they are already"
    )
    parser.add_argument(
        "--snakemake-to", type=int, default=1_000, metavar="N", help="null builds up to (default: 1000)"
    )
    parser.add_argument(
        "--dvc-to", type=int, default=1_000, metavar="N", help="null builds up to (default: 1000)"
    )
    parser.add_argument(
        "--work",
        metavar="DIR",
        help="where to build (default: a temporary folder); DIR stays, and serves again",
    )
    parser.add_argument("--out", metavar="DIR", help="where figures go (default: benchmarks/results)")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into README.md and docs/performance.md"
    )
    return parser.parse_args(argv)


def _main(args: argparse.Namespace) -> int:
    out = Path(args.out) if args.out else QUICK_RESULTS if args.quick else RESULTS
    if args.quick and args.write:
        raise BenchmarkError("--quick makes no figures that --write could write")
    names = list(dict.fromkeys(n for name in args.names for n in (BENCHMARKS if name == "all" else [name])))
    if "tables" in names:
        if names != ["tables"]:
            raise BenchmarkError("'tables' stands alone: it measures nothing")
    else:
        failed = _measure(args, names, out)
        if failed:
            raise BenchmarkError(f"not measured: {', '.join(failed)}")
    if "tables" in names or args.write:
        _tables(out, write=args.write)
    return 0


def _measure(args: argparse.Namespace, names: list[str], out: Path) -> list[str]:
    """Run benchmarks; the names of those that failed."""
    without = {name for name in args.without.split(",") if name}
    if without - set(NAMES):
        raise BenchmarkError(
            f"--without takes {', '.join(NAMES)}, not '{', '.join(sorted(without - set(NAMES)))}'"
        )
    settings = Settings(args.quick, args.largest, {"snakemake": args.snakemake_to, "dvc": args.dvc_to})
    peers = Peers(tuple(n for n in NAMES if n not in without), install=not args.no_install)
    folder = Path(args.work or tempfile.mkdtemp(prefix="mxt-bench-")).resolve()
    # one set of worlds for all: the first build of 100,000 actions takes minutes
    worlds = Worlds(folder, peers)
    failed = []
    try:
        for name in names:
            warn_if_busy()
            say(f"{name}: {BENCHMARKS[name]} (load {load_now():.2f} on {cores()} cores)")
            began, load = datetime.now(UTC), load_now()
            try:
                result: Result = import_module(f"benchmarks.{name}").measure(settings, worlds)
            except BenchmarkError as error:
                print(f"error: {name}: {error}", file=sys.stderr)
                failed.append(name)
                continue
            result.versions = peers.versions()
            path = save(result, out, began, load, folder)
            print(f"## {name}\n\n{_table.detail(result)}\n")
            for note in result.notes:
                print(f"- {note}")
            for fact, value in result.facts.items():
                print(f"- {fact}: {value}")
            print(flush=True)
            say(f"  figures in {path}")
    finally:
        if not args.work:
            shutil.rmtree(folder, ignore_errors=True)
    return failed


def _tables(out: Path, *, write: bool) -> None:
    results = [load_result(out / f"{name}.json") for name in BENCHMARKS if (out / f"{name}.json").exists()]
    if not results:
        raise BenchmarkError(f"no figures are kept in {out}: run some benchmark first")
    whole = _table.summary(results)
    details = "\n\n".join(f"### {r.benchmark}\n\n{_table.detail(r)}{_remarks(r)}" for r in results)
    if not write:
        print(f"{whole}\n\n{details}")
        return
    _table.write_between(REPOSITORY / "README.md", "all --write", whole)
    _table.write_between(REPOSITORY / "docs/performance.md", "all --write", f"{whole}\n\n{details}")
    say("wrote the tables of README.md and docs/performance.md")


def _remarks(result: Result) -> str:
    remarks = [*result.notes, *(f"{name}: {value}" for name, value in result.facts.items())]
    return "\n\n" + "\n".join(f"- {remark}" for remark in remarks) if remarks else ""
