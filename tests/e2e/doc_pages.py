"""Pages of documentation as a reader uses them: commands in a shell, in order, and what they should print.

A fenced block ```sh is run; a block ```text right after it is what its output must contain. A comment above a
block says what else holds:

    <!-- not run: needs a GPU -->     one of NOT_RUN
    <!-- exits 1 -->                  the last command fails, and with that code
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import REPOSITORY

NOT_RUN = {
    "needs a GPU",
    "needs an MI300X",
    "needs the network",
    "needs a container engine",
    "changes this machine",
    "takes many minutes",
    "runs until Ctrl-C",
    "an example of a form, not a command to type",
}
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """line: where it begins. not_run: why not; "" if it is run. code: how its last command ends."""

    page: str
    line: int
    text: str
    not_run: str = ""
    code: int = 0
    output: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All that is written for people and has commands, by path."""
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    return [str(p.relative_to(REPOSITORY)) for p in found]


def blocks(page: str) -> list[Block]:
    """The commands of a page. Raises ValueError for a mark that nobody knows."""
    text = (REPOSITORY / page).read_text("utf-8")
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        mark = match["mark"] or ""
        if match["kind"] == "sh":
            not_run, code = meaning(mark, f"{page}:{line}")
            found.append(Block(page, line, match["text"], not_run, code))
        elif match["kind"] == "text" and found and end and not text[end : match.start()].strip():
            last = found.pop()
            found.append(Block(page, last.line, last.text, last.not_run, last.code, match["text"]))
        end = match.end() if match["kind"] == "sh" else 0
    return found


def yaml_blocks(page: str) -> list[str]:
    """Pieces of recipes that a page shows."""
    text = (REPOSITORY / page).read_text("utf-8")
    return [match["text"] for match in _BLOCK.finditer(text) if match["kind"] == "yaml"]


def meaning(mark: str, place: str) -> tuple[str, int]:
    if mark.startswith("not run: "):
        reason = mark.removeprefix("not run: ")
        if reason not in NOT_RUN:
            raise ValueError(f"{place}: '{reason}' is no reason: {', '.join(sorted(NOT_RUN))}")
        return reason, 0
    if match := re.fullmatch(r"exits (\d)", mark):
        return "", int(match[1])
    return "", 0


class Reader:
    """Somebody with a fresh clone who types what pages say."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "mxt"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.state = folder / "state"
        self.state.mkdir()
        (self.state / "cwd").write_text(str(self.clone))
        (self.state / "variables").write_text("")
        make_clone(self.clone)
        programs = folder / "programs"
        programs.mkdir()
        (programs / "python3").symlink_to(sys.executable)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MXT_", "XDG_", "PYTHON"))},
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(REPOSITORY / ".venv/cache-of-tests"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }

    def read(self, page: str) -> None:
        """Type all commands of a page, and compare what they print."""
        for block in blocks(page):
            if not block.not_run:
                self.type(block)

    def type(self, block: Block) -> None:
        """One block; folder and exported variables stay for the next."""
        script = (
            f"source '{self.state}/variables'\ncd \"$(cat '{self.state}/cwd')\"\n"
            f'trap \'code=$?; export -p > "{self.state}/variables"; pwd > "{self.state}/cwd"; exit $code\' EXIT\n'
            f"set -euo pipefail\n{block.text}"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        said = f"{block.place}\n{block.text}\n{done.stdout}"
        assert done.returncode == block.code, f"exit {done.returncode}, not {block.code}: {said}"
        missing = first_missing(block.output, done.stdout)
        assert not missing, f"not printed: {missing!r}\n{said}"


def first_missing(expected: str, printed: str) -> str:
    """The first expected line that is not there, in the order given; "" if all are. '...' stands for any lines."""
    lines = [loosely(line) for line in printed.splitlines()]
    at = 0
    anywhere = True  # whether lines may be passed over before the next
    for line in expected.splitlines():
        if line.strip() == "...":
            anywhere = True
            continue
        wanted = loosely(line)
        places = range(at, len(lines)) if anywhere else range(at, min(at + 1, len(lines)))
        found = next((i for i in places if lines[i] == wanted), None)
        if found is None:
            return line
        at = found + 1
        anywhere = False
    return ""


def loosely(line: str) -> str:
    """Without what differs from run to run: keys, times, lines, figures, widths of columns."""
    line = re.sub(r"\b[0-9a-f]{8,64}\b", "KEY", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z?)?|\d{4}-\d\d-\d\d", "DATE", line)
    line = re.sub(r"\b\d+:\d\d(:\d\d)? (min|h)\b|\b\d+(\.\d+)? (s|ms|us|min|h)\b", "TIME", line)
    line = re.sub(r"\b\d+(\.\d+)? (B|KiB|MiB|GiB|kB|MB|GB)\b", "SIZE", line)
    line = re.sub(r"(MXTBUILD|\.mxt|\.yaml):\d+(:\d+)?", r"\1:LINE", line)
    line = re.sub(r"[+-]?\d+\.\d+", "FIGURE", line)
    return re.sub(r"\s+", " ", line).rstrip()


def make_clone(folder: Path) -> None:
    """The files of this checkout as they are now, but those that git ignores; its environment is lent."""
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-coz", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        source = REPOSITORY / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (folder / ".venv").symlink_to(REPOSITORY / ".venv")


# ---- links ------------------------------------------------------------------------------------------

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


def links(path: Path) -> list[str]:
    """Where a page links to."""
    text = _FENCED.sub("", path.read_text("utf-8"))
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", text))


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", _FENCED.sub("", path.read_text("utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 1
        while (unique := name if number == 1 else f"{name}-{number - 1}") in found:
            number += 1
        found.add(unique)
    return found
