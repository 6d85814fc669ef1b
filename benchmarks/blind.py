"""Changes that a fast null build might miss: which of them each tool notices.

Noticed means: after the next build every output is what a build from nothing would have made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks._measure import BenchmarkError, Result, Row, run, say
from benchmarks._peers import quiet_dvc
from benchmarks._settings import Settings
from benchmarks._worlds import BUILD, Worlds, peer_command

GREETING = "GREETING"


@dataclass
class Little:
    """A workspace of one tool: a leaf, a list of a folder, and a greeting from the environment.

    outputs: name -> path below root. greeting: what the environment says; mxt's stands in MXTBUILD.
    """

    tool: str
    root: Path
    command: list[str]
    env: dict[str, str]
    outputs: dict[str, str]

    def build(self) -> None:
        run(self.command, self.root, self.env)

    def found(self) -> dict[str, str]:
        def read(path: Path) -> str:
            return path.read_text() if path.exists() else "(missing)"

        return {name: read(self.root / path) for name, path in self.outputs.items()}


def measure(settings: Settings, worlds: Worlds) -> Result:
    """A table of changes by tool; the build before each change is a null build with nothing unsure left."""
    found: list[Row] = []
    notes = ["mxt's actions see declared variables only: for mxt one changed in MXTBUILD, else in the shell"]
    tools = ["mxt", *(t for t in ("ninja", "snakemake", "dvc") if t in worlds.peers)]
    for tool in tools:
        for change, (apply, expect) in CHANGES.items():
            if settings.quick and tool in ("snakemake", "dvc"):
                continue
            if change == "a link dropped" and tool != "mxt":
                continue
            little = MAKERS[tool](worlds)
            for _ in range(2 if tool == "mxt" else 1):
                little.build()
                time.sleep(0.05)  # nothing was written within a clock's tick of the last look
            before = little.found()
            assert before == {"leaf": "aaaa\n", "list": "1.txt\n2.txt\n", "greeting": "hello\n"}, (
                tool,
                before,
            )
            apply(little)
            try:
                little.build()
            except BenchmarkError as error:
                notes.append(f"{tool}, {change}: {str(error).splitlines()[-1]}")
            noticed = little.found() == {**before, **expect}
            found.append(Row(change, tool, 1, 0.0, note="noticed" if noticed else "NOT noticed"))
            say(f"  {tool:<10} {change:<40} {found[-1].note}")
    return Result("blind", settings.quick, found, notes=notes)


# ---- the changes ------------------------------------------------------------------------------------


def _leaf(little: Little) -> None:
    file = little.root / "src/leaf.txt"
    seen = file.stat()
    with file.open("r+b") as opened:  # in place: the inode stays, too
        opened.write(b"bbbb\n")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _added(little: Little) -> None:
    (little.root / "data/3.txt").write_text("3\n")


def _deleted(little: Little) -> None:
    Path(os.path.realpath(little.root / little.outputs["leaf"])).unlink()


def _link(little: Little) -> None:
    (little.root / "mxt-out/leaf").unlink()


def _environment(little: Little) -> None:
    little.env = {**little.env, GREETING: "goodbye"}
    if little.tool == "mxt":  # an action of mxt's sees declared variables only
        file = little.root / "MXTBUILD"
        file.write_text(file.read_text().replace('"hello"', '"goodbye"'))


CHANGES: dict[str, tuple[Callable[[Little], None], dict[str, str]]] = {
    "one leaf edited: same size, mtime put back": (_leaf, {"leaf": "bbbb\n"}),
    "a file added under a glob": (_added, {"list": "1.txt\n2.txt\n3.txt\n"}),
    "an output deleted": (_deleted, {}),
    "a link dropped": (_link, {}),
    "a variable of the environment changed": (_environment, {"greeting": "goodbye\n"}),
}


# ---- the same workspace for each tool -----------------------------------------------------------------


def _files(worlds: Worlds, tool: str) -> Path:
    root = worlds.fresh(f"blind-{tool}")
    for path, text in {"src/leaf.txt": "aaaa\n", "data/1.txt": "1\n", "data/2.txt": "2\n"}.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    return root


def _mxt(worlds: Worlds) -> Little:
    root = _files(worlds, "mxt")
    (root / "MXTBUILD").write_text(
        'platform(name = "here", arch = "x86_64", env = {"GREETING": "hello"})\n'
        'genrule(name = "leaf", srcs = ["src/leaf.txt"], outs = ["leaf.txt"], cmd = "cp $< $@")\n'
        'genrule(name = "list", srcs = glob(["data/*"]), outs = ["list.txt"], '
        'cmd = "for f in $(SRCS); do basename $$f; done > $@")\n'
        'genrule(name = "greeting", outs = ["greeting.txt"], '
        'cmd = "echo $$GREETING > $@", platform = ":here")\n'
    )
    outputs = {name: f"mxt-out/{name}/{name}.txt" for name in ("leaf", "list", "greeting")}
    return Little("mxt", root, BUILD, dict(worlds.env), outputs)


def _ninja(worlds: Worlds) -> Little:
    root = _files(worlds, "ninja")
    (root / "build.ninja").write_text(
        "rule cp\n  command = cp $in $out\nrule ls\n  command = ls $in > $out\n"
        "rule greet\n  command = echo $$GREETING > $out\n"
        # a folder as an input: the nearest to a glob that ninja has
        "build out/leaf: cp src/leaf.txt\nbuild out/list: ls data\nbuild out/greeting: greet\n"
    )
    return _peer(worlds, "ninja", root)


def _snakemake(worlds: Worlds) -> Little:
    root = _files(worlds, "snakemake")
    (root / "Snakefile").write_text(
        "from glob import glob\n"
        'rule all:\n    input: "out/leaf", "out/list", "out/greeting"\n'
        'rule leaf:\n    input: "src/leaf.txt"\n    output: "out/leaf"\n    shell: "cp {input} {output}"\n'
        'rule list:\n    input: sorted(glob("data/*"))\n    output: "out/list"\n'
        '    shell: "for f in {input}; do basename $f; done > {output}"\n'
        'rule greeting:\n    output: "out/greeting"\n    shell: "echo $GREETING > {output}"\n'
    )
    return _peer(worlds, "snakemake", root)


def _dvc(worlds: Worlds) -> Little:
    root = _files(worlds, "dvc")
    (root / "out").mkdir()
    (root / "dvc.yaml").write_text(
        "stages:\n"
        "  leaf: {cmd: cp src/leaf.txt out/leaf, deps: [src/leaf.txt], outs: [out/leaf]}\n"
        "  list: {cmd: ls data > out/list, deps: [data], outs: [out/list]}\n"
        "  greeting: {cmd: echo $GREETING > out/greeting, outs: [out/greeting]}\n"
    )
    little = _peer(worlds, "dvc", root)
    quiet_dvc(little.command[0], root, little.env)
    return little


def _peer(worlds: Worlds, tool: str, root: Path) -> Little:
    outputs = {name: f"out/{name}" for name in ("leaf", "list", "greeting")}
    return Little(tool, root, peer_command(worlds.peers, tool), {**worlds.env, GREETING: "hello"}, outputs)


MAKERS = {"mxt": _mxt, "ninja": _ninja, "snakemake": _snakemake, "dvc": _dvc}
