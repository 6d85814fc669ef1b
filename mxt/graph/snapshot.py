"""The null build: what a finished build looked at, so that the next one can see that nothing changed.

A snapshot is no cache of results. It lists every path whose change could make any difference, with the stat
tuple it had, in four parts: what loading and analysis read, the folders that they listed, the sources of
actions, and the results as mxt-out shows them. If all of it still holds there is nothing to do; if anything
differs, the whole way is gone again and decides.

The file, made to be read fast: a line with its version, a line with mxt's own identity, a line of counts,
then names (bytes, each followed by a NUL: the request, the name of the kept graph, the paths in the order of
the parts, and links with their targets), then unsigned 64-bit integers of the machine's byte order: five for
each path, and one for each folder, the digest of its listing (an editor that writes aside and renames
touches the folder, and all that is listed stays). Results are looked at through their links in mxt-out, so
that one stat sees a missing link, a missing result, and one that leads to another file. Imports nothing but
os and sys: every null build waits for what is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mxt.loading.reads import Stat

_HEAD = b"mxt snapshot 3"
_MASK = (1 << 64) - 1
# no file has these numbers, so a snapshot that holds them never matches
UNSURE: Stat = (-1, -1, -1, -1, -1)
_MISSING = (_MASK - 1,) * 5
# from here on a second process looks at half of the paths: a stat is a system call, and cores are there
_FORK_FROM = 15_000
MOST_CHANGES = 64


class Snapshot:
    """loading, sources, results: path relative to the root (or absolute) -> stat tuple, None for "not there".

    folders: likewise, with the digest of the listing (see `listing`). links: symbolic links below the root
    -> their target. request: what was asked for, as one text; a file that holds another request is no
    snapshot of this one. actions: how many the build had. graph: the file beside it that the build's graph
    is kept in; "" if it is not.
    """

    def __init__(
        self,
        request: str,
        actions: int,
        loading: Mapping[str, Stat | None],
        folders: Mapping[str, tuple[Stat, int]],
        sources: Mapping[str, Stat | None],
        results: Mapping[str, Stat | None],
        links: Mapping[str, str],
        graph: str = "",
    ) -> None:
        self.request = request
        self.graph = graph
        self.actions = actions
        self.parts = (loading, {path: stat for path, (stat, _) in folders.items()}, sources, results)
        self.listings = [digest for _, digest in folders.values()]
        self.links = links


class Look:
    """What a look at a snapshot found. changed: source files that differ, at most MOST_CHANGES.

    seen: the file that was looked at, by inode and ctime. graph, generation: the kept graph's file, and that
    of its keys. touched: folders that were written to and list what they listed, with their stat from before
    they were listed. elsewhere: something else differs too, or more: the whole way must be gone.
    """

    def __init__(self, actions: int, graph: str, generation: int, seen: tuple[int, int]) -> None:
        self.actions = actions
        self.graph = graph
        self.generation = generation
        self.seen = seen
        self.touched: dict[str, Stat] = {}
        self.changed: list[str] = []
        self.elsewhere = False

    @property
    def nothing_to_do(self) -> bool:
        return not self.changed and not self.elsewhere


def place(store: str, request: str) -> str:
    """The file that a snapshot of this request lies in."""
    from binascii import crc32  # two requests of one name take turns: each finds the other's and looks again

    data = request.encode("utf-8", "surrogateescape")
    return f"{store}/state/snapshots/{crc32(data):08x}{len(data):x}"


def look(file: str, root: str, engine: str, request: str) -> Look | None:
    """Compare the snapshot in `file` with the disk; None where it is no snapshot of this request and mxt.

    engine: identity of mxt's own code; another one never matches. A damaged file is no snapshot.
    """
    try:
        with open(file, "rb") as handle:
            facts = os.fstat(handle.fileno())
            data = handle.read()
        head, identity, counts, names, stats = _parse(data)
        if head != _HEAD or identity != engine.encode():
            return None
        actions, generation, loading, folders, sources, results, links = counts
        total = loading + folders + sources + results
        if os.fsdecode(names[0]) != request or len(names) != 2 + total + 2 * links:
            return None
        if len(stats) != 5 * total + folders:
            return None
        found = Look(actions, os.fsdecode(names[1]), generation, (facts.st_ino, facts.st_ctime_ns))
        paths = names[2 : 2 + total]
        back = os.getcwd()
        os.chdir(root)  # relative paths spare the kernel the way to the root, a million times
        try:
            pairs = iter(names[2 + total :])
            found.elsewhere = any(os.readlink(link) != to for link, to in zip(pairs, pairs, strict=True))
            if not found.elsewhere:
                differing = _changed(paths, stats[: 5 * total], loading, loading + folders + sources)
                _judge(found, differing, paths, loading, folders, stats[5 * total :])
        finally:
            os.chdir(back)
        return found
    except (OSError, ValueError, IndexError, TypeError, OverflowError):
        return None


def _judge(
    found: Look,
    differing: Sequence[int],
    paths: Sequence[bytes],
    loading: int,
    folders: int,
    listings: memoryview,
) -> None:
    for index in differing:
        path = os.fsdecode(paths[index])
        if index < 0:
            found.elsewhere = True
        elif index >= loading + folders:
            found.changed.append(path)
        else:
            facts = os.stat(path)  # from before it is listed: what is added later shows
            if listing(path) == listings[index - loading]:
                found.touched[path] = tuple_of(facts)
            else:
                found.elsewhere = True
    if len(differing) > MOST_CHANGES:
        found.elsewhere = True


def listing(folder: str) -> int:
    """64 bits of where a folder is and what it lists: names, kinds, and where links lead. Raises OSError.

    folder: relative to the current folder, or absolute.
    """
    from hashlib import blake2b  # 3 ms, and only where a folder was written to

    lines = [f"{os.path.relpath(os.path.realpath(folder), os.path.realpath('.'))}\0"]
    for entry in os.scandir(folder):
        kind = "d" if entry.is_dir() else "f" if entry.is_file() else "o"
        leads = os.readlink(entry.path) if entry.is_symlink() else ""
        lines.append(f"{entry.name}\0{kind}{leads}")
    text = "\0".join(sorted(lines)).encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def tuple_of(facts: os.stat_result) -> Stat:
    return (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)


def _parse(data: bytes) -> tuple[bytes, bytes, list[int], list[bytes], memoryview]:
    head = data.index(b"\n")
    identity = data.index(b"\n", head + 1)
    line = data.index(b"\n", identity + 1)
    *counts, length = map(int, data[identity + 1 : line].split())
    end = line + 1 + length
    names = data[line + 1 : end].split(b"\0")
    if names.pop() or len(counts) != 7 or min(counts) < 0:
        raise ValueError
    return data[:head], data[head + 1 : identity], counts, names, memoryview(data)[end:].cast("Q")


def _changed(paths: Sequence[bytes], stats: memoryview, begin: int, end: int) -> list[int]:
    """Indices of paths that differ if begin <= index < end; -1 once any other does."""
    half = len(paths) // 2
    if len(paths) < _FORK_FROM or len(os.sched_getaffinity(0)) < 2:
        return _scan(paths, stats, 0, begin, end)
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = _scan(paths[half:], stats[half * 5 :], half, begin, end)
            os.write(writer, b"".join(b"%d " % i for i in found) + b"done")  # 65 numbers fit into a pipe
        finally:
            os._exit(0)
    os.close(writer)
    try:
        found = _scan(paths[:half], stats[: half * 5], 0, begin, end)
        if -1 in found:
            return found
        *others, done = os.read(reader, 4096).split(b" ")
        return found + [int(number) for number in others] if done == b"done" else [-1]
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def _scan(paths: Sequence[bytes], stats: memoryview, first: int, begin: int, end: int) -> list[int]:
    found: list[int] = []
    stat, mask = os.stat, _MASK
    numbers = iter(stats)
    index = first - 1
    for path, size, mtime, ctime, inode, device in zip(
        paths, numbers, numbers, numbers, numbers, numbers, strict=True
    ):
        index += 1
        try:
            s = stat(path)
        except (OSError, ValueError):
            if size == mask - 1 == inode:
                continue
        else:
            if (
                s.st_mtime_ns == mtime
                and s.st_size == size
                and s.st_ino == inode
                and s.st_ctime_ns == ctime
                and s.st_dev == device
            ):
                continue
            if s.st_mtime_ns < 0 and _numbers(s) == (size, mtime, ctime, inode, device):
                continue  # a file from before 1970
        if begin <= index < end and len(found) <= MOST_CHANGES:
            found.append(index)
        else:
            return [-1]
    return found


def _numbers(s: os.stat_result) -> tuple[int, ...]:
    return tuple(n & _MASK for n in (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev))


def write(file: str, engine: str, snapshot: Snapshot) -> None:
    """Write aside and rename; a store that cannot be written costs the shortcut, nothing else."""
    from array import array

    paths = [path for part in snapshot.parts for path in part]
    links = [text for link in snapshot.links.items() for text in link]
    texts = [snapshot.request, snapshot.graph, *paths, *links]
    names = "\0".join(texts).encode("utf-8", "surrogateescape") + b"\0"
    if names.count(b"\0") != len(texts):
        return  # a request with a NUL of its own
    counts = [snapshot.actions, 0, *map(len, snapshot.parts), len(snapshot.links), len(names)]
    stats = array("Q")
    for part in snapshot.parts:
        for stat in part.values():
            stats.extend(_MISSING if stat is None else [number & _MASK for number in stat])
    stats.extend(snapshot.listings)
    head = b"\n".join((_HEAD, engine.encode(), " ".join(map(str, counts)).encode(), b""))
    with _alone(file):
        _replace(file, (head, names, stats.tobytes()))


def mend(file: str, looked: Look, fresh: Mapping[str, Stat | None]) -> None:
    """Give paths of a snapshot their stat tuples of now, after a build that made only what changed.

    Where it is no longer the one that was looked at, another build's has taken its place, and what this
    build made is not what that one left: then there is none, and the next build goes the whole way.
    """
    with _alone(file):
        try:
            with open(file, "rb") as handle:
                facts = os.fstat(handle.fileno())
                data = handle.read()
            if (facts.st_ino, facts.st_ctime_ns) != looked.seen:
                raise ValueError
            head, engine, counts, names, old = _parse(data)
            places = {name: index for index, name in enumerate(names[2 : 2 + sum(counts[2:6])])}
            stats = bytearray(old)
            view = memoryview(stats).cast("Q")
            for path, stat in fresh.items():
                at = 5 * places[os.fsencode(path)]
                for offset, number in enumerate(_MISSING if stat is None else stat):
                    view[at + offset] = number & _MASK
            view.release()
            counts[1] = looked.generation + 1
            text = b"\0".join(names) + b"\0"
            line = " ".join(map(str, [*counts, len(text)])).encode()
            _replace(file, (b"\n".join((head, engine, line, b"")), text, stats))
        except (OSError, ValueError, KeyError):
            drop(file)


def drop(file: str) -> None:
    """Forget a snapshot: the next build goes the whole way."""
    try:
        os.unlink(file)
    except OSError:
        pass


class _alone:  # noqa: N801 - used as a statement
    """One at a time writes snapshots of a store; without a lock, as on a full disk, they take a chance."""

    def __init__(self, file: str) -> None:
        self._path = os.path.join(os.path.dirname(file), "lock")
        self._fd = -1

    def __enter__(self) -> None:
        import fcntl

        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:
            pass

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _replace(file: str, pieces: Iterable[bytes | bytearray]) -> None:
    aside = f"{file}.{os.getpid()}"
    try:
        with open(aside, "wb") as handle:
            handle.writelines(pieces)
        os.replace(aside, file)
    except OSError:
        drop(aside)
        drop(file)


def engine_identity() -> str:
    """Changes whenever a file of mxt or of its built-in rules does."""
    import mxt

    package = os.path.dirname(os.path.abspath(mxt.__file__))
    newest, count = 0, 0
    stack: list[str | Path] = [package, os.path.join(os.path.dirname(package), "rules")]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.name.endswith((".py", ".mxt")) and not entry.name.startswith("."):
                try:
                    s = entry.stat()
                except OSError:  # it went, or leads nowhere
                    continue
                newest = max(newest, s.st_ctime_ns)
                count += s.st_ino
            elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                stack.append(entry.path)
    return f"{mxt.__version__}:{newest}:{count}"
