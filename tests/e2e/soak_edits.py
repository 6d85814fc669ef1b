"""Random edits of a soak's world: what somebody does to a workspace between two builds.

`choose` draws one; `apply` makes it, in the model and, where a model can't say it, on the disk. An edit is a
kind and a seed, so it can be made again in a copy.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.soak_world import FORMS, LAYERS, Source, World


@dataclass(frozen=True)
class Edit:
    kind: str
    seed: int


# kinds after which a result may be lost, so that an action may run again although nothing it reads changed
LOSES = ("output overwritten", "store collected", "action cache gone")
# what mxt itself is asked to do
COMMANDS = {"store collected": ["gc"]}


def choose(dice: random.Random) -> Edit:
    """Any kind; those that make everything run again more seldom, as they take seconds."""
    kinds = sorted(KINDS)
    weights = [1 if kind in LOSES or kind == "macro's constant" else 4 for kind in kinds]
    weights[kinds.index("named source edited")] = 20  # most edits of a day are of this kind
    return Edit(dice.choices(kinds, weights)[0], dice.randrange(1 << 30))


def apply(edit: Edit, world: World, root: Path) -> str:
    """Make the edit; in words. The caller then writes the model to the disk."""
    return KINDS[edit.kind](world, random.Random(edit.seed), root) or "nothing"


def write(world: World, root: Path, before: dict[str, Source]) -> dict[str, Source]:
    """Bring the disk from the files `before` to those of the model; those files."""
    files = world.files()
    for path in before.keys() - files.keys():
        (root / path).unlink()
        for folder in (root / path).parents:
            if folder == root or any(folder.iterdir()):
                break
            folder.rmdir()
    for path, source in files.items():
        old = before.get(path)
        if old == source:
            continue
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.link or (old and old.link):
            file.unlink(missing_ok=True)
        if source.link:
            file.symlink_to(os.path.relpath(root / source.link, file.parent))
            continue
        if not file.exists() or file.read_text() != source.text:  # an edit may have written it already
            file.write_text(source.text)
        mode = 0o755 if source.executable else 0o644
        if file.stat().st_mode & 0o777 != mode:
            file.chmod(mode)
    return {path: Source(s.text, s.executable, s.link) for path, s in files.items()}


# ---- sources ------------------------------------------------------------------------------------------


def _append(world: World, dice: random.Random, root: Path) -> str:
    path = dice.choice(world.regular())
    world.sources[path].text += f"{dice.randrange(1000)}\n"
    return path


def _append_alone(world: World, dice: random.Random, root: Path) -> str:
    """A file that is read by its name, and by nothing that has a receipt: the short way back of a build."""
    below = world.below()
    named = {p for made in world.targets.values() for kind, p in made.srcs if kind == "file"}
    whole = {p for name in below for kind, p in world.targets[name].srcs if kind == "file"}
    paths = [p for p in sorted(named - whole) if p in world.sources and not world.sources[p].link]
    if not paths:
        return ""
    path = dice.choice(paths)
    world.sources[path].text += f"{dice.randrange(1000)}\n"
    return path


def _same_size(world: World, dice: random.Random, root: Path, *, rename: bool = False) -> str:
    """Other bytes, the same size, mtime put back; in place, or by a file renamed over it."""
    path = dice.choice(world.regular())
    source = world.sources[path]
    source.text = source.text.swapcase() if source.text.swapcase() != source.text else "!" * len(source.text)
    file = root / path
    seen = file.stat()
    if rename:
        aside = file.with_name("aside.tmp")
        aside.write_text(source.text)
        aside.chmod(seen.st_mode & 0o777)
        aside.rename(file)
    else:
        with file.open("r+") as opened:
            opened.write(source.text)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    return path


def _touch(world: World, dice: random.Random, root: Path) -> str:
    path = dice.choice(world.regular())
    when = dice.choice([None, (1, 1), (4_000_000_000, 4_000_000_000)])
    os.utime(root / path, when)
    return f"{path} {when}"


def _chmod(world: World, dice: random.Random, root: Path) -> str:
    path = dice.choice(world.regular())
    world.sources[path].executable ^= True
    return path


def _add(world: World, dice: random.Random, root: Path) -> str:
    folder = dice.choice(["src", "src/sub", "src/deep/er", "data", "data/k"])
    name = dice.choice(["n0.txt", "n1.txt", "z.txt", "plain"])
    path = os.path.join(dice.choice(world.packages), folder, name)
    if path not in world.sources:
        world.sources[path] = Source(f"new {dice.randrange(1000)}\n")
    return path


def _remove(world: World, dice: random.Random, root: Path) -> str:
    path = dice.choice([*world.regular(spare=True), *(p for p, s in world.sources.items() if s.link)])
    world.drop_source(path)
    return path


def _rename(world: World, dice: random.Random, root: Path) -> str:
    path = dice.choice(world.regular(spare=True))
    to = os.path.join(os.path.dirname(path), f"r{dice.randrange(1000)}.txt")
    if to in world.sources:
        return ""
    world.sources[to] = world.sources.pop(path)
    for source in world.sources.values():
        if source.link == path:
            source.link = to
    for made in world.targets.values():
        made.srcs = [("file", to) if r == ("file", path) else r for r in made.srcs]
    return f"{path} -> {to}"


def _link(world: World, dice: random.Random, root: Path) -> str:
    """A new link below src, or another target for one that is there."""
    links = [p for p, s in world.sources.items() if s.link]
    outside = [p for p in world.regular() if "data/" not in p]
    path = dice.choice(links) if links and dice.random() < 0.5 else ""
    path = path or os.path.join(dice.choice(world.packages), "src", f"l{dice.randrange(5)}.txt")
    if path in world.sources and path not in links:
        return ""
    world.sources[path] = Source("", link=dice.choice(outside))
    return f"{path} -> {world.sources[path].link}"


# ---- targets and packages -------------------------------------------------------------------------------


def _some(world: World, dice: random.Random) -> str:
    return dice.choice(sorted(world.targets))


def _salt(world: World, dice: random.Random, root: Path) -> str:
    made = world.targets[_some(world, dice)]
    made.salt += dice.choice("xyz")
    return made.label


def _form(world: World, dice: random.Random, root: Path) -> str:
    made = world.targets[_some(world, dice)]
    made.form = dice.choice(sorted(FORMS))
    if made.form != "two":  # nobody may ask for its second output any more
        for other in world.targets.values():
            other.srcs = [("target", r[1]) if r == ("output", made.name) else r for r in other.srcs]
    return f"{made.label} {made.form}"


def _srcs(world: World, dice: random.Random, root: Path) -> str:
    made = world.targets[_some(world, dice)]
    made.srcs = world.some_srcs(dice, made)
    return made.label


def _move(world: World, dice: random.Random, root: Path) -> str:
    made = world.targets[_some(world, dice)]
    before = made.label
    made.package = dice.choice(world.packages)
    return f"{before} -> {made.label}"


def _drop(world: World, dice: random.Random, root: Path) -> str:
    name = _some(world, dice)
    world.drop_target(name)
    return name


def _new(world: World, dice: random.Random, root: Path) -> str:
    return world.add_target(dice, dice.randrange(LAYERS)).label


def _package(world: World, dice: random.Random, root: Path) -> str:
    """A new package: beside the others, or in a folder that others' globs saw until now."""
    nested = [os.path.join(p, "src/sub") for p in world.packages]
    package = dice.choice([*nested, "g", "h/i", "a/x", "a/b/y"])
    if package in world.packages or package.count("sub") > 1:
        return ""
    for path in [p for p in world.sources if p.startswith(f"{package}/")]:
        for made in world.targets.values():  # a label may not reach into another package
            made.srcs = [r for r in made.srcs if r != ("file", path)]
    world.add_package(package, dice)
    for _ in range(3):
        world.targets[_some(world, dice)].package = package
    return package


def _no_package(world: World, dice: random.Random, root: Path) -> str:
    """A package goes with its targets and sources; what it hid from globs above may show again."""
    free = [p for p in world.packages if p and os.path.join(p, "src/sub") not in world.packages]
    if len(free) < 4:
        return ""
    package = dice.choice(free)
    for made in [t for t in world.targets.values() if t.package == package]:
        world.drop_target(made.name)
    for made in world.targets.values():
        made.srcs = [r for r in made.srcs if r != ("folder", package)]
    for folder in ("src/", "data/"):
        for path in [p for p in world.sources if p.startswith(os.path.join(package, folder))]:
            world.drop_source(path)
    world.packages.remove(package)
    world.comments.pop(package, None)
    return package


def _comment(world: World, dice: random.Random, root: Path) -> str:
    package = dice.choice(world.packages)
    world.comments[package] = f"# {dice.randrange(1000)}\n"
    return package


def _stamp(world: World, dice: random.Random, root: Path) -> str:
    world.stamp = f"stamp{dice.randrange(3)}"
    return world.stamp


def _remark(world: World, dice: random.Random, root: Path) -> str:
    world.remark = f"# {dice.randrange(1000)}\n"
    return world.remark.strip()


def _members(world: World, dice: random.Random, root: Path) -> str:
    world.members = sorted(dice.sample([t.name for t in world.actions()], 8))
    return " ".join(world.members)


# ---- what builds left behind -------------------------------------------------------------------------------


def _place(world: World, dice: random.Random, root: Path) -> Path:
    made = dice.choice(world.actions())
    return root / "mxt-out" / made.package / made.name


def _out_gone(world: World, dice: random.Random, root: Path) -> str:
    place = _place(world, dice, root)
    real = Path(os.path.realpath(place))
    if real.is_dir():
        shutil.rmtree(real)
    return str(place.relative_to(root))


def _link_gone(world: World, dice: random.Random, root: Path) -> str:
    place = _place(world, dice, root)
    if place.is_symlink():
        place.unlink()
    return str(place.relative_to(root))


def _overwritten(world: World, dice: random.Random, root: Path) -> str:
    """The file is the same inode as the blob in the store: both are damaged."""
    place = _place(world, dice, root)
    files = sorted(p for p in place.rglob("*") if p.is_file())
    if files:
        files[0].chmod(0o644)
        files[0].write_text("somebody's own\n")
    return str(place.relative_to(root))


def _all_links_gone(world: World, dice: random.Random, root: Path) -> str:
    shutil.rmtree(root / "mxt-out", ignore_errors=True)
    return "mxt-out"


def _state_gone(world: World, dice: random.Random, root: Path) -> str:
    """Snapshots, the index of sources, durations: memories that cost time when lost, and nothing else."""
    state = root / "cache/state"
    victims = sorted(p for p in state.iterdir() if p.name != "builds") if state.is_dir() else []
    if not victims:
        return ""
    victim = dice.choice(victims)
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    return victim.name


def _ac_gone(world: World, dice: random.Random, root: Path) -> str:
    shutil.rmtree(root / "cache/ac", ignore_errors=True)
    return "cache/ac"


def _nothing(world: World, dice: random.Random, root: Path) -> str:
    return ""


KINDS: dict[str, Callable[[World, random.Random, Path], str]] = {
    "source edited": _append,
    "named source edited": _append_alone,
    "same size and mtime": _same_size,
    "same size and mtime, renamed over": lambda w, d, r: _same_size(w, d, r, rename=True),
    "touched": _touch,
    "chmod": _chmod,
    "source added": _add,
    "source removed": _remove,
    "source renamed": _rename,
    "source a link": _link,
    "cmd": _salt,
    "form": _form,
    "srcs": _srcs,
    "target moved": _move,
    "target removed": _drop,
    "target added": _new,
    "package added": _package,
    "package removed": _no_package,
    "comment": _comment,
    "macro's constant": _stamp,
    "macro's comment": _remark,
    "bundle": _members,
    "output gone": _out_gone,
    "link gone": _link_gone,
    "output overwritten": _overwritten,
    "mxt-out gone": _all_links_gone,
    "state gone": _state_gone,
    "action cache gone": _ac_gone,
    "store collected": _nothing,
    "nothing": _nothing,
}
