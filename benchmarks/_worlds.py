"""Workspaces to measure in: N sources and N actions that copy one each, written for every tool alike."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks._measure import MXT, Case, cores, environment, run, say
from benchmarks._peers import Peers, quiet_dvc

BUILD = [*MXT, "build", "//..."]
# no sandbox, said without an option: the command is what people type, and its null build takes the same way
PLAIN = {"MXT_SANDBOX": "none"}


class Worlds:
    """Makes and keeps worlds below one folder: the same one serves several benchmarks of a run."""

    def __init__(self, folder: Path, peers: Peers) -> None:
        self.folder = folder
        self.peers = peers
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.env = environment(self.home)

    def fresh(self, name: str) -> Path:
        """An empty folder below ours."""
        root = self.folder / name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        return root

    def copies(self, n: int) -> World:
        """A world of n copying actions, built once by mxt (without a sandbox)."""
        world = World(self.folder / f"copies-{n}", n, {**self.env, **PLAIN}, self.peers)
        if not world.is_made("mxt"):
            say(f"  building {n:,} actions once with mxt, untimed ...")
            self.fresh(world.root.name)
            world.build_mxt()
        return world


class World:
    """n actions, in a folder a tool: `root` is mxt's, so that no tool's files lie in another's way."""

    def __init__(self, root: Path, n: int, env: dict[str, str], peers: Peers) -> None:
        self.root = root
        self.n = n
        self.env = env
        self.peers = peers

    def build_mxt(self) -> None:
        write_sources(self.root, self.n)
        write_mxt(self.root, self.n)
        run(BUILD, self.root, self.env)
        self._marker("mxt").touch()

    def _marker(self, tool: str) -> Path:
        return self.root.with_name(f"{self.root.name}-{tool}.made")

    def is_made(self, tool: str) -> bool:
        """Whether a tool's first build ended well, in this run or in an earlier one with the same --work."""
        return self._marker(tool).exists()

    def peer(self, tool: str) -> Case:
        """A build by a peer in a folder of its own, where one was made before, untimed."""
        root = self.root.with_name(f"{self.root.name}-{tool}")
        command = peer_command(self.peers, tool)
        if not self.is_made(tool):
            say(f"  building {self.n:,} actions once with {tool}, untimed ...")
            shutil.rmtree(root, ignore_errors=True)
            write_sources(root, self.n)
            WRITERS[tool](root, self.n)
            if tool == "dvc":
                # running 1,000 stages takes DVC twenty minutes; taking outputs that are there, seconds
                quiet_dvc(command[0], root, self.env)
                for i in range(self.n):
                    shutil.copy(root / f"src/{i}.txt", root / f"out/o{i}.txt")
                run([command[0], "commit", "-f", "-q"], root, self.env)
            run(command, root, self.env)
            self._marker(tool).touch()
        return Case(tool, command, root, self.env)


def peer_command(peers: Peers, tool: str) -> list[str]:
    """What builds everything with a peer, saying little."""
    own = {"ninja": [], "snakemake": ["--cores", str(cores()), "-q", "all"], "dvc": ["repro", "-q"]}
    return [peers.command(tool), *own[tool]]


def write_sources(root: Path, n: int) -> None:
    (root / "src").mkdir(parents=True)
    for i in range(n):
        (root / f"src/{i}.txt").write_text(f"{i}\n")


def write_mxt(root: Path, n: int) -> None:
    call = 'genrule(name = "t%d" % i, srcs = ["src/%d.txt" % i], outs = ["o%d.txt" % i], cmd = "cp $< $@")'
    (root / "MXTBUILD").write_text(f"[{call} for i in range({n})]\n")


def write_ninja(root: Path, n: int) -> None:
    lines = ["rule cp\n  command = cp $in $out\n"]
    lines += [f"build ninja-out/o{i}.txt: cp src/{i}.txt\n" for i in range(n)]
    (root / "build.ninja").write_text("".join(lines))


def write_snakemake(root: Path, n: int) -> None:
    (root / "Snakefile").write_text(
        f'rule all:\n    input: expand("smk-out/o{{i}}.txt", i=range({n}))\n'
        'rule cp:\n    input: "src/{i}.txt"\n    output: "smk-out/o{i}.txt"\n'
        '    shell: "cp {input} {output}"\n'
    )


def write_dvc(root: Path, n: int) -> None:
    (root / "out").mkdir()
    stage = "  s{0}: {{cmd: cp src/{0}.txt out/o{0}.txt, deps: [src/{0}.txt], outs: [out/o{0}.txt]}}\n"
    (root / "dvc.yaml").write_text("stages:\n" + "".join(stage.format(i) for i in range(n)))


WRITERS = {"ninja": write_ninja, "snakemake": write_snakemake, "dvc": write_dvc}
