"""Random edits to a random workspace: after each, the incremental result is what a clean build makes."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace, b3

PACKAGES = ("", "p", "p/q", "r")
TARGETS = 40


class World:
    """A workspace of 40 genrules in four packages, and the model of what their outputs should be."""

    def __init__(self, ws: Workspace, seed: int) -> None:
        self.ws = ws
        self.random = random.Random(seed)
        self.sources: dict[str, str] = {}
        self.salt = ["" for _ in range(TARGETS)]
        self.srcs: list[list[str]] = []
        for package in PACKAGES:
            for i in range(3):
                self.sources[os.path.join(package, "src", f"{i}.txt")] = f"{package}{i}\n"
        for i in range(TARGETS):
            self.srcs.append(self.some_sources(i))

    def some_sources(self, i: int) -> list[str]:
        """Labels: earlier targets, files of the target's package, or its whole glob."""
        chosen = [self.label(j) for j in self.random.sample(range(i), min(i, self.random.randint(0, 3)))]
        kind = self.random.random()
        if kind < 0.3 or not chosen:
            chosen.append("src/0.txt")
        elif kind < 0.45:
            chosen.append("*")
        return chosen

    def package(self, i: int) -> str:
        return PACKAGES[i % len(PACKAGES)]

    def label(self, i: int) -> str:
        return f"//{self.package(i)}:t{i}"

    def write(self) -> None:
        for package in PACKAGES:
            folder = self.ws.root / package / "src"
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():
                if os.path.relpath(file, self.ws.root) not in self.sources:
                    file.unlink()
            rules = []
            for i in range(TARGETS):
                if self.package(i) == package:
                    named = ", ".join(f'"{s}"' for s in self.srcs[i] if s != "*")
                    globbed = ' + glob(["src/*"])' if "*" in self.srcs[i] else ""
                    # every other target forgets most of what it reads: early cutoff has something to cut
                    cmd = (
                        "cat $(SRCS) > $$TMPDIR/all; head -c 3 $$TMPDIR/all > $@"
                        if i % 2
                        else "cat $(SRCS) > $@"
                    )
                    rules.append(
                        f'genrule(name = "t{i}", outs = ["t{i}.out"], srcs = [{named}]{globbed}, '
                        f'cmd = "{cmd}; echo {i}{self.salt[i]} >> $@")\n'
                    )
            self.put(os.path.join(package, "MXTBUILD"), "".join(rules))
        for path, text in self.sources.items():
            self.put(path, text)

    def put(self, path: str, text: str) -> None:
        file = self.ws.root / path
        if not file.exists() or file.read_text() != text:
            file.write_text(text)

    def edit(self) -> str:
        """One random change; says which."""
        kind = self.random.choice(
            ["source", "same size", "add", "remove", "cmd", "srcs", "touch", "out", "link", "undo"]
        )
        path = self.random.choice(sorted(self.sources))
        i = self.random.randrange(TARGETS)
        if kind == "source":
            self.sources[path] += f"{self.random.random()}\n"
        elif kind == "same size":
            self.sources[path] = self.sources[path].swapcase()
        elif kind == "add":
            self.sources[os.path.join(self.package(i), "src", f"n{self.random.randrange(5)}.txt")] = "new\n"
        elif kind == "remove" and not path.endswith("/0.txt") and path != "src/0.txt":
            del self.sources[path]
        elif kind == "cmd":
            self.salt[i] += "x"
        elif kind == "srcs":
            self.srcs[i] = self.some_sources(i)
        elif kind == "touch":
            os.utime(self.ws.root / path)
        elif kind in ("out", "link"):
            link = self.ws.root / "mxt-out" / self.package(i) / f"t{i}"
            if link.is_symlink():
                real = Path(os.path.realpath(link))
                link.unlink() if kind == "link" else shutil.rmtree(real, ignore_errors=True)
        elif kind == "undo":
            self.salt[i] = ""
        return f"{kind} {path} {i}"

    def expected(self) -> dict[str, str]:
        """Output text by label, computed here."""
        made: dict[str, str] = {}
        for i in range(TARGETS):
            read, seen = "", set()
            for source in self.srcs[i]:
                if source.startswith("//"):
                    read += made[source]
                    continue
                folder = os.path.join(self.package(i), "src")
                files = [f for f in sorted(self.sources) if os.path.dirname(f) == folder]
                for file in files if source == "*" else [os.path.join(self.package(i), source)]:
                    if file not in seen:
                        seen.add(file)
                        read += self.sources[file]
            made[self.label(i)] = (read[:3] if i % 2 else read) + f"{i}{self.salt[i]}\n"
        return made

    def found(self) -> dict[str, str]:
        return {
            self.label(i): self.ws.read(os.path.join("mxt-out", self.package(i), f"t{i}", f"t{i}.out"))
            for i in range(TARGETS)
        }


@pytest.mark.parametrize("seed", [1, 2])
def test_incremental_equals_clean(ws: Workspace, seed: int, tmp_path: Path) -> None:
    world = World(ws, seed)
    world.write()
    ws.run("build", "//...")
    for step in range(12):
        done = [world.edit() for _ in range(world.random.randint(1, 3))]
        world.write()
        result = ws.run("build", "//...")
        assert result.code == 0, (step, done, result.err)
        assert world.found() == world.expected(), (step, done)
        if world.random.random() < 0.3:
            assert ws.run("build", "//...").out.startswith(("up to date", "  mxt-out")), (step, done)
            assert world.found() == world.expected(), (step, done)
    keys = {e["label"]: e["key"] for e in ws.build("//...").events if e["event"] == "action_finished"}
    clean = ws.build("//...", "--store", str(tmp_path / "clean"))
    assert {e["label"]: e["key"] for e in clean.events if e["event"] == "action_finished"} == keys
    assert world.found() == world.expected()
    assert {b3(t.encode()) for t in world.found().values()} == {
        b3(t.encode()) for t in world.expected().values()
    }
