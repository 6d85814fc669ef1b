"""A random workspace and, computed in Python, what a build of it must make.

The model is all there is: `files()` says which files the workspace consists of, `evaluate()` which bytes
every target's outputs have. Nothing here asks mxt.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

LAYERS = 6
# a label of another package's target, one of its output files, a source, a source folder, a glob
Ref = tuple[str, str]
GLOBS = {
    "one level": 'glob(["src/*.txt"])',
    "all": 'glob(["src/**"])',
    "but": 'glob(["src/**/*.txt"], exclude = ["src/n*", "src/sub/1.txt"])',
}
READ = (
    "for f in $(SRCS); do if [ -d $$f ]; then (cd $$f; find -L . -type f | sort | xargs -r cat);"
    ' else cat $$f; fi; done > "$$TMPDIR/all"; '
)
COUNT = 'wc -c < "$$TMPDIR/all"'
FORMS = {
    "cat": READ + 'cp "$$TMPDIR/all" $@; echo {salt} >> $@',
    "head": READ + 'head -c 3 "$$TMPDIR/all" > $@; echo {salt} >> $@',
    "count": READ + COUNT + " > $@; echo {salt} >> $@",
    "names": "echo $(SRCS) {salt} > $@",
    "bits": (
        "for f in $(SRCS); do if [ -d $$f ]; then echo d; elif [ -x $$f ]; then echo x;"
        " else echo -; fi; done > $@; echo {salt} >> $@"
    ),
    "exe": READ + COUNT + " > $@; echo {salt} >> $@",
    "two": (
        READ
        + 'head -c 5 "$$TMPDIR/all" > $(RULEDIR)/{name}.a; '
        + COUNT
        + " > $(RULEDIR)/{name}.b; echo {salt} >> $(RULEDIR)/{name}.a"
    ),
    "dir": READ + 'mkdir -p $@/n; cp "$$TMPDIR/all" $@/all; ' + COUNT + " > $@/n/count",
}


@dataclass
class Source:
    """A file of the workspace. link: the source that it is a symbolic link to, "" for a regular file."""

    text: str
    executable: bool = False
    link: str = ""


@dataclass
class Made:
    """A target. kind: genrule, macro (a genrule through defs.mxt) or filegroup; form: key of FORMS."""

    name: str
    package: str
    layer: int
    kind: str
    form: str
    srcs: list[Ref] = field(default_factory=list)
    salt: str = "s"

    @property
    def label(self) -> str:
        return f"//{self.package}:{self.name}"

    def outs(self) -> list[str]:
        if self.form == "two" and self.kind == "genrule":
            return [f"{self.name}.a", f"{self.name}.b"]
        return [f"{self.name}.d/"] if self.form == "dir" and self.kind == "genrule" else [f"{self.name}.txt"]


@dataclass(frozen=True)
class Handle:
    """What an action sees: a file's bytes, or a folder's files by relative path, at a path."""

    path: str
    content: bytes | tuple[tuple[str, bytes, bool], ...]
    executable: bool = False

    def bytes(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return b"".join(data for _, data, _ in self.content)


@dataclass
class Value:
    """outputs: below the target's place in mxt-out -> bytes and executable bit. key: equal iff nothing
    that the action reads differs; None for a filegroup, which has no action."""

    outputs: dict[str, tuple[bytes, bool]]
    handles: list[Handle]
    key: object = None


class World:
    """The model of one workspace; `edit`s (soak_edits.py) change it."""

    def __init__(self, seed: int, targets: int) -> None:
        dice = random.Random(seed)
        self.sources: dict[str, Source] = {}
        self.packages: list[str] = []
        self.comments: dict[str, str] = {}
        self.stamp = "stamp"
        self.remark = ""
        self.targets: dict[str, Made] = {}
        self.next = 0
        for package in ("", "a", "a/b", "a/b/c", "d", "e", "f/g", "d/src/sub"):
            self.add_package(package, dice)
        for number in range(targets):
            self.add_target(dice, number * LAYERS // targets)
        self.members = sorted(dice.sample([t.name for t in self.actions()], min(12, targets // 4)))

    # ---- growing --------------------------------------------------------------------------------

    def add_package(self, package: str, dice: random.Random) -> None:
        self.packages.append(package)
        for name in (
            "src/0.txt",
            "src/1.txt",
            "src/sub/0.txt",
            "src/sub/1.txt",
            "data/0.txt",
            "data/k/1.txt",
        ):
            path = os.path.join(package, name)
            self.sources[path] = Source(f"{package or 'root'} {name} {dice.randrange(1000)}\n")

    def add_target(self, dice: random.Random, layer: int) -> Made:
        kind = dice.choices(["genrule", "macro", "filegroup"], [7, 2, 1])[0]
        made = Made(
            f"t{self.next}",
            dice.choice(self.packages),
            layer,
            kind,
            dice.choice(sorted(FORMS)),
            salt=f"s{self.next}",
        )
        self.next += 1
        made.srcs = self.some_srcs(dice, made)
        self.targets[made.name] = made
        return made

    def below(self) -> set[str]:
        """The names of the targets that the release is made of."""
        found: set[str] = set()
        waiting = list(self.members)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                srcs = self.targets[name].srcs
                waiting += [what for kind, what in srcs if kind in ("target", "output")]
        return found

    def some_srcs(self, dice: random.Random, made: Made) -> list[Ref]:
        below = [t for t in self.targets.values() if t.layer < made.layer]
        found: list[Ref] = []
        for other in dice.sample(below, min(len(below), dice.randint(0, 3))):
            two = other.kind == "genrule" and other.form == "two"
            found.append(("output" if two and dice.random() < 0.5 else "target", other.name))
        if not found or dice.random() < 0.4:
            kind = dice.choice(["file", "file", "folder", "glob"])
            if kind == "file":
                files = [p for p in self.sources if "/sub/" not in f"/{p}" and "data/" not in p]
                found.append(("file", dice.choice(sorted(files))))
            else:
                found.append(
                    (kind, dice.choice(sorted(GLOBS)) if kind == "glob" else dice.choice(self.packages))
                )
        return found

    def actions(self) -> list[Made]:
        return [t for t in self.targets.values() if t.kind != "filegroup"]

    def regular(self, *, spare: bool = False) -> list[str]:
        """Sources that are no links. spare: those that may go: every package keeps its 0.txt."""
        found = [p for p, s in self.sources.items() if not s.link]
        return sorted(p for p in found if not spare or (not p.endswith("/0.txt") and p != "src/0.txt"))

    def drop_source(self, path: str) -> None:
        """A source goes, with the links to it and every mention."""
        for gone in [path, *(p for p, s in self.sources.items() if s.link == path)]:
            self.sources.pop(gone, None)
            for made in self.targets.values():
                made.srcs = [r for r in made.srcs if r != ("file", gone)]

    def drop_target(self, name: str) -> None:
        del self.targets[name]
        for made in self.targets.values():
            made.srcs = [r for r in made.srcs if r[0] not in ("target", "output") or r[1] != name]
        # a release is never empty
        self.members = [m for m in self.members if m != name] or [self.actions()[0].name]

    # ---- as files -------------------------------------------------------------------------------

    def owner(self, path: str) -> str:
        """The package that a source belongs to."""
        return max((p for p in self.packages if not p or path.startswith(f"{p}/")), key=len)

    def files(self) -> dict[str, Source]:
        """Everything but mxt's own, by path."""
        found = dict(self.sources)
        found["consts.mxt"] = Source(f'{self.remark}STAMP = "{self.stamp}"\n')
        found["defs.mxt"] = Source(
            'load("//:consts.mxt", "STAMP")\n\n'
            "def stamped(name, srcs, salt):\n"
            '    native.genrule(name = name, outs = [name + ".txt"], srcs = srcs,\n'
            '        cmd = "echo %s %s $(SRCS) > $@" % (STAMP, salt))\n'
        )
        by_package: dict[str, list[str]] = {p: [self.comments.get(p, "")] for p in self.packages}
        for made in self.targets.values():
            by_package[made.package].append(self.call(made))
        members = ", ".join(f'"{self.targets[m].label}"' for m in self.members)
        by_package[""].append(f'bundle(name = "release", deps = [{members}], receipt = True)\n')
        for package, calls in by_package.items():
            text = 'load("//:defs.mxt", "stamped")\n\n' + "".join(calls)
            found[os.path.join(package, "MXTBUILD")] = Source(text)
        return found

    def call(self, made: Made) -> str:
        srcs = [f'["{self.mention(r)}"]' if r[0] != "glob" else GLOBS[r[1]] for r in made.srcs]
        listed = " + ".join(srcs).replace("])", "], allow_empty = True)") or "[]"
        if made.kind == "filegroup":
            return f'filegroup(name = "{made.name}", srcs = {listed})\n'
        if made.kind == "macro":
            return f'stamped(name = "{made.name}", srcs = {listed}, salt = "{made.salt}")\n'
        outs = ", ".join(f'"{o}"' for o in made.outs())
        cmd = FORMS[made.form].format(salt=made.salt, name=made.name)
        more = ", executable = True" if made.form == "exe" else ""
        return f'genrule(name = "{made.name}", srcs = {listed}, outs = [{outs}], cmd = """{cmd}"""{more})\n'

    def mention(self, ref: Ref) -> str:
        kind, what = ref
        if kind == "target":
            return self.targets[what].label
        if kind == "output":
            return f"//{self.targets[what].package}:{what}.b"
        if kind == "folder":
            return f"//{what}:data"
        package = self.owner(what)
        return f"//{package}:{what[len(package) + 1 :] if package else what}"

    # ---- as a build would see it ------------------------------------------------------------------

    def source(self, path: str) -> Handle:
        real = self.sources[self.sources[path].link or path]
        return Handle(path, real.text.encode(), real.executable)

    def globbed(self, package: str, which: str) -> list[str]:
        start = os.path.join(package, "src") + "/"
        found = []
        for path in self.sources:
            name = path[len(package) + 1 :] if package else path
            if not path.startswith(start) or self.owner(path) != package:
                continue
            if which == "one level" and (name.count("/") > 1 or not name.endswith(".txt")):
                continue
            if which == "but" and (
                not name.endswith(".txt")
                or name == "src/sub/1.txt"
                or (name.startswith("src/n") and name.count("/") == 1)
            ):
                continue
            found.append(name)
        return [os.path.join(package, name) for name in sorted(found)]

    def evaluate(self) -> dict[str, Value]:
        """What every target must be, by its name."""
        made: dict[str, Value] = {}
        for target in sorted(self.targets.values(), key=lambda t: t.layer):
            made[target.name] = self._value(target, made)
        return made

    def _value(self, target: Made, made: dict[str, Value]) -> Value:
        handles: list[Handle] = []
        for kind, what in target.srcs:
            if kind == "target":
                handles += made[what].handles
            elif kind == "output":
                handles.append(made[what].handles[1])
            elif kind == "file":
                handles.append(self.source(what))
            elif kind == "folder":
                handles.append(self._folder(what))
            else:
                handles += [self.source(path) for path in self.globbed(target.package, what)]
        handles = list({h.path: h for h in handles}.values())
        if target.kind == "filegroup":
            return Value({}, handles)
        place = os.path.join("mxt-out", target.package, target.name)
        outputs = _outputs(target, handles, self.stamp)
        template = (
            f"{self.stamp} {target.salt}" if target.kind == "macro" else FORMS[target.form] + target.salt
        )
        key = (template, target.kind, place, tuple(handles), tuple(target.outs()))
        if target.kind == "genrule" and target.form == "dir":
            tree = tuple((p.partition("/")[2], data, x) for p, (data, x) in sorted(outputs.items()))
            return Value(outputs, [Handle(f"{place}/{target.name}.d", tree)], key)
        return Value(outputs, [Handle(f"{place}/{p}", data, x) for p, (data, x) in outputs.items()], key)

    def _folder(self, package: str) -> Handle:
        start = os.path.join(package, "data") + "/"
        names = sorted(p[len(start) :] for p in self.sources if p.startswith(start))
        found = []
        for name in names:
            handle = self.source(start + name)
            found.append((name, handle.bytes(), handle.executable))
        return Handle(start.rstrip("/"), tuple(found))


def _outputs(target: Made, handles: list[Handle], stamp: str) -> dict[str, tuple[bytes, bool]]:
    paths = " ".join(h.path for h in handles)
    if target.kind == "macro":
        words = f"{stamp} {target.salt} {paths}".split()
        return {f"{target.name}.txt": ((" ".join(words) + "\n").encode(), False)}
    read = b"".join(h.bytes() for h in handles)
    salt = f"{target.salt}\n".encode()
    count = f"{len(read)}\n".encode()
    if target.form == "two":
        return {f"{target.name}.a": (read[:5] + salt, False), f"{target.name}.b": (count, False)}
    if target.form == "dir":
        return {f"{target.name}.d/all": (read, False), f"{target.name}.d/n/count": (count, False)}
    kinds = ("d" if not isinstance(h.content, bytes) else "x" if h.executable else "-" for h in handles)
    data = {
        "cat": read + salt,
        "head": read[:3] + salt,
        "count": count + salt,
        "exe": count + salt,
        "names": f"{' '.join([*paths.split(), target.salt])}\n".encode(),
        "bits": "".join(f"{k}\n" for k in kinds).encode() + salt,
    }[target.form]
    return {f"{target.name}.txt": (data, target.form == "exe")}
