"""Writes docs/reference/ from the code: the recipe's fields, the commands, the rules, the environment.

    python tools/make_reference.py            write the pages
    python tools/make_reference.py --check    say which are out of date; exit 1 if any is

The pages are made from the schema, the argument parsers and the rules' declarations, and from nothing
else, so that they come out the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]
PLACE = "docs/reference"


def pages() -> dict[str, str]:
    """File name in docs/reference/ -> its text."""
    names = ("recipe", "commands", "rules", "environment")
    return {f"{name}.md": import_module(f"reference.{name}").page() for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/reference/ from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    args = parser.parse_args()
    folder = REPOSITORY / PLACE
    stale = []
    for name, text in pages().items():
        path = folder / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not args.check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {PLACE}/{name}")
    if stale and args.check:
        names = ", ".join(f"{PLACE}/{name}" for name in stale)
        print(f"out of date: {names}\n  hint: python tools/make_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
