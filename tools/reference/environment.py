"""docs/reference/environment.md: variables that mxt reads, and the files that it makes.

What a variable means is said here; that none is missing or gone is looked up in the code.
"""

from __future__ import annotations

import re
from pathlib import Path

from reference.declared import rule_modules
from reference.markdown import code, document, head, table

REPOSITORY = Path(__file__).resolve().parents[2]
INTRO = """
None of these is in a key: they say where things are and how a build runs, never what it makes.
An action sees none of them; what it may see of the host is listed below.
"""
VARIABLES = {
    "MXT_WORKSPACE": "the workspace's root; as `--workspace`",
    "MXT_STORE": "where results are kept; as `--store`",
    "MXT_KEY_FILE": "the key that signs results and receipts; made on first use",
    "MXT_SANDBOX": "`none` runs actions on copies of their inputs, without isolation; as `--no-sandbox`",
    "MXT_CONTAINER": "what launches container toolchains: `podman`, `docker` or a path",
    "MXT_CONTAINER_ARGS": "further arguments for it, for odd machines",
    "MXT_LOAD_TIMEOUT": "seconds that a package may take to load; default 10",
    "MXT_PYTHON": "for a checkout's `mxtw`: the Python 3.11 to make `.venv` with",
    "MXT_HOME": "for the `mxtw` that `mxt init` made: a checkout of mxt to use instead of fetching one",
    "MXT_DEBUG": "any text: a defect of mxt itself shows its traceback",
}
# between mxt and the processes that it starts
INTERNAL = {"MXT_ACTION", "MXT_CONTAINER_MARK", "MXT_REPORT_FD"}
OTHERS = {
    "NO_COLOR, FORCE_COLOR": "colours off, on",
    "CI": "any text but `0`, `false`, `no`: no live lines, as in a pipe",
    "COLUMNS": "the width of tables, where there is no terminal",
    "XDG_CONFIG_HOME, XDG_CACHE_HOME": "in the place of `~/.config` and `~/.cache`",
    "HF_TOKEN, HF_ENDPOINT": "for private and gated repositories of the Hub, and another address of it",
    "https_proxy, no_proxy": "and the like, as everywhere; for actions that may use the network",
    "PIP_INDEX_URL, PIP_EXTRA_INDEX_URL": "pip's own; for the set-up that `mxtw` does once",
}
FILES = {
    "MXTBUILD": "makes its folder a package; that of the highest folder is the workspace's root",
    "*.mxt": "macros, for `load()`",
    "rules/*.py": "the workspace's own rules; loaded after `mxt trust`",
    "NAME.plan.json": "a plan that `mxt plan pin` wrote: takes the probe's place",
    "toolchains/*.lock.json": "locks of environments; committed",
    "mxt-out/PACKAGE/TARGET": "a link to the newest result of a target; with a receipt, a folder with "
    "`receipt.dsse.json` and `report.html`",
    "cache/": "the store; see below",
    ".mxt/": "the mxt that a workspace's own `mxtw` fetched",
    "~/.config/mxt/": "the signing key, and which rules of which workspaces are trusted",
    "~/.cache/mxt/": "what was found out about this machine's environments; may be deleted",
}


def page() -> str:
    """Raises SystemExit where the code reads a variable that is not explained here, or none does."""
    _compare()
    lines = head("Environment and files", INTRO)
    lines += ["## Variables of mxt", ""]
    lines += table(("variable", "is"), [(code(n), what) for n, what in VARIABLES.items()])
    lines += ["## Others that it heeds", ""]
    rows = [(", ".join(code(p) for p in n.split(", ")), what) for n, what in OTHERS.items()]
    lines += table(("variable", "is"), rows)
    lines += ["## What actions see of the host's", ""]
    lines += [
        "Nothing, but for those that may use the network, and only these names (values are in no key and",
        "no record), beside those of a proxy:",
        "",
    ]
    lines += table(("stages", "variables"), _passed())
    lines += ["## Files", ""]
    lines += table(("path", "is"), [(code(n), what) for n, what in FILES.items()])
    lines += ["## The store", ""]
    text = (REPOSITORY / "cache/README.md").read_text("utf-8")
    lines += [row for row in text.split("\n") if row.startswith("|")]
    lines += ["", "All of it may be deleted at any time: the next build runs everything again.", ""]
    return document(lines)


def _compare() -> None:
    found = set()
    for folder in ("mxt", "rules", "mxtw", "tools/setup.sh"):
        place = REPOSITORY / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found |= set(re.findall(r"\bMXT_[A-Z_]*[A-Z]\b", path.read_text("utf-8", "replace")))
    odd = (found - INTERNAL) ^ set(VARIABLES)
    if odd:
        raise SystemExit(f"tools/reference/environment.py and the code differ on {', '.join(sorted(odd))}")


def _passed() -> list[tuple[str, str]]:
    """Variables by the rules that let them through; proxies as one word."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in rule_modules():
        source = (REPOSITORY / "rules" / f"{name}.py").read_text("utf-8")
        for match in re.finditer(r"\bpassthrough=(\([^)]*\)|PASSTHROUGH)", source):
            names = _hub() if match[1] == "PASSTHROUGH" else tuple(re.findall(r'"(\w+)"', match[1]))
            groups.setdefault(names, []).append(code(name))
    return [(", ".join(rules), ", ".join(code(n) for n in names)) for names, rules in groups.items()]


def _hub() -> tuple[str, ...]:
    from rules import _hub as module

    return tuple(module.PASSTHROUGH)
