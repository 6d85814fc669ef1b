"""The snapshot of a null build: what was written is compared with the disk, and any damage makes it none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mxt.graph import snapshot
from mxt.graph.snapshot import MOST_CHANGES, UNSURE, Look, Snapshot, listing, look, mend, place, write
from mxt.loading.reads import Stat, stat_of

ENGINE = "0.1:123:456"
REQUEST = "/root\n.\n//..."


class World:
    """A folder of files, and a snapshot of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = str(root / "store" / "snapshot")
        for name in ("MXTBUILD", "p/MXTBUILD", "src/a", "src/b", "out/x", "out/y"):
            path = root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)
        (root / "link").symlink_to("out/x")

    def snapshot(self, sources: list[str] | None = None, graph: str = "g") -> Snapshot:
        def stats(*names: str) -> dict[str, Stat | None]:
            return {name: stat_of(self.root / name) for name in names}

        folder = stat_of(self.root / "src")
        assert folder is not None
        with contextlib.chdir(self.root):
            listed = listing("src")
        return Snapshot(
            REQUEST,
            7,
            stats("MXTBUILD", "p/MXTBUILD", "missing"),
            {"src": (folder, listed)},
            stats(*(sources or ["src/a", "src/b"])),
            stats("out/x", "out/y"),
            {"link": "out/x"},
            graph,
        )

    def write(self, *args: list[str]) -> None:
        write(self.file, ENGINE, self.snapshot(*args))

    def look(self, engine: str = ENGINE, request: str = REQUEST) -> Look | None:
        here = os.getcwd()
        try:
            return look(self.file, str(self.root), engine, request)
        finally:
            assert os.getcwd() == here

    def found(self) -> Look:
        found = self.look()
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_round_trip(world: World) -> None:
    world.write()
    found = world.found()
    assert (found.nothing_to_do, found.actions, found.graph) == (True, 7, "g")
    assert (found.changed, list(found.touched), found.elsewhere) == ([], [], False)


def test_of_another_request_or_mxt(world: World) -> None:
    assert world.look() is None
    world.write()
    assert world.look(engine="0.1:123:457") is None
    assert world.look(request=REQUEST + "x") is None
    assert world.look(request=REQUEST.replace("\n", "\0")) is None


def test_requests_lie_apart(tmp_path: Path) -> None:
    names = {place(str(tmp_path), text) for text in ("", "a", "b", "ab", "a\nb", "\udcff", "ü")}
    assert len(names) == 7
    assert all(name.startswith(f"{tmp_path}/state/snapshots/") for name in names)


def test_sources_are_told_apart_from_all_else(world: World) -> None:
    world.write()
    (world.root / "src/b").write_text("other")
    assert (world.found().changed, world.found().elsewhere) == (["src/b"], False)
    (world.root / "src/a").unlink()
    assert world.found().elsewhere, "the folder lists something else"


@pytest.mark.parametrize("name", ["MXTBUILD", "p/MXTBUILD", "out/x", "out/y"])
def test_what_is_no_source(world: World, name: str) -> None:
    world.write()
    (world.root / name).write_text("other")
    assert world.found().elsewhere


def test_what_was_not_there(world: World) -> None:
    world.write()
    (world.root / "missing").touch()
    assert world.found().elsewhere


@pytest.mark.parametrize("change", ["gone", "elsewhere", "a file"])
def test_links(world: World, change: str) -> None:
    world.write()
    (world.root / "link").unlink()
    if change == "elsewhere":
        (world.root / "link").symlink_to("out/y")
    elif change == "a file":
        (world.root / "link").touch()
    # one that cannot be read is as good as no snapshot: both mean the whole way
    found = world.look()
    assert found is None or found.elsewhere


def test_unsure_never_matches(world: World) -> None:
    whole = world.snapshot()
    whole.parts[2]["src/a"] = UNSURE  # type: ignore[index]
    write(world.file, ENGINE, whole)
    assert world.found().changed == ["src/a"]


def test_before_1970(world: World) -> None:
    old = -86_400 * 10**9 - 1
    os.utime(world.root / "src/a", ns=(old, old))
    os.utime(world.root / "MXTBUILD", ns=(old, old))
    world.write()
    assert world.found().nothing_to_do
    os.utime(world.root / "src/a", ns=(old, old - 1))
    assert world.found().changed == ["src/a"]


def test_names_that_are_not_utf8(world: World) -> None:
    name = os.fsdecode(b"src/\xff\xfe \n\xc3")
    (world.root / name).write_text("x")
    world.write(["src/a", name])
    assert world.found().nothing_to_do
    (world.root / name).write_text("other")
    assert world.found().changed == [name]
    mend(world.file, world.found(), {name: stat_of(world.root / name)})
    assert world.found().nothing_to_do


def test_a_request_with_a_nul_leaves_none(world: World) -> None:
    whole = world.snapshot()
    whole.request = "a\0b"
    write(world.file, ENGINE, whole)
    assert not os.path.exists(world.file)


def test_a_folder_that_was_written_to(world: World) -> None:
    world.write()
    aside = world.root / "src/a.new"
    aside.write_text("src/a")
    aside.replace(world.root / "src/a")
    found = world.found()
    assert (found.changed, list(found.touched), found.elsewhere) == (["src/a"], ["src"], False)
    (world.root / "src/c").touch()
    (world.root / "src/c").unlink()
    assert list(world.found().touched) == ["src"]


def into_link(root: Path) -> None:
    (root / "src/b").unlink()
    (root / "src/b").symlink_to("a")


def into_other_link(root: Path) -> None:
    """A link that a glob found leads elsewhere; the folder lists the same names."""
    (root / "src/to").unlink()
    (root / "src/to").symlink_to("b")


def into_folder(root: Path) -> None:
    (root / "src/b").unlink()
    (root / "src/b").mkdir()


@pytest.mark.parametrize(
    "change",
    [
        into_link,
        into_other_link,
        into_folder,
        lambda root: (root / "src/c").touch(),
        lambda root: (root / "src/b").rename(root / "src/c"),
        lambda root: (root / "src").rename(root / "elsewhere"),
    ],
)
def test_a_folder_that_lists_something_else(world: World, change: Callable[[Path], None]) -> None:
    (world.root / "src/to").symlink_to("a")
    world.write()
    change(world.root)
    found = world.look()
    assert found is None or found.elsewhere


# ---- mending -------------------------------------------------------------------------------------


def test_mending(world: World) -> None:
    world.write()
    for name in ("src/a", "out/x"):
        (world.root / name).write_text("other")
    seen = world.found()
    assert seen.elsewhere
    mend(world.file, seen, {name: stat_of(world.root / name) for name in ("src/a", "out/x")})
    found = world.found()
    assert found.nothing_to_do
    assert (found.actions, found.graph, found.generation) == (7, "g", seen.generation + 1)
    (world.root / "out/y").unlink()
    mend(world.file, world.found(), {"out/y": None})
    assert world.found().nothing_to_do
    assert not [name for name in os.listdir(world.root / "store") if name not in ("snapshot", "lock")]


def test_a_snapshot_of_another_build_is_not_mended(world: World) -> None:
    """What this build left is not what that one saw: nobody may take the one for the other."""
    world.write()
    (world.root / "src/a").write_text("other")
    seen = world.found()
    world.write()
    mend(world.file, seen, {"src/a": stat_of(world.root / "src/a")})
    assert world.look() is None
    world.write()
    first, second = world.found(), world.found()
    mend(world.file, first, {})
    mend(world.file, second, {})
    assert world.look() is None


def test_a_path_that_it_does_not_list_ends_it(world: World) -> None:
    world.write()
    mend(world.file, world.found(), {"src/a": UNSURE, "unknown": UNSURE})
    assert world.look() is None


def test_mending_what_is_gone_or_damaged(world: World) -> None:
    world.write()
    seen = world.found()
    os.unlink(world.file)
    mend(world.file, seen, {})
    assert world.look() is None
    world.write()
    seen = world.found()
    Path(world.file).write_bytes(b"damaged")
    mend(world.file, seen, {})
    assert world.look() is None


# ---- damage --------------------------------------------------------------------------------------


def test_truncated_anywhere(world: World) -> None:
    world.write()
    data = Path(world.file).read_bytes()
    for length in range(len(data)):
        Path(world.file).write_bytes(data[:length])
        assert world.look() is None, length
    Path(world.file).write_bytes(data + b"\0")
    assert world.look() is None
    Path(world.file).write_bytes(data + bytes(40))
    assert world.look() is None


def test_any_byte_of_the_header(world: World) -> None:
    world.write()
    data = Path(world.file).read_bytes()
    end = 0
    for _ in range(3):
        end = data.index(b"\n", end) + 1
    (world.root / "src/a").write_text("other")
    changed = 0
    for at in range(end):
        for byte in {0, 10, 32, 45, 48, 57, 255, data[at] ^ 1} - {data[at]}:
            Path(world.file).write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            found = world.look()  # the number of actions is only said: another one harms nothing
            assert found is None or found.elsewhere or found.changed == ["src/a"], (at, byte)
            changed += found is None
    assert changed > 4 * end


def test_any_byte_of_all_the_rest(world: World) -> None:
    """Whatever one says, no other edit goes unseen because of it."""
    world.write()
    data = Path(world.file).read_bytes()
    (world.root / "src/a").write_text("other")
    for at in range(len(data)):
        Path(world.file).write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        found = world.look()
        assert found is None or not found.nothing_to_do, at


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\n", b"mxt snapshot 3\n\n1 1 1 1 1 1 1 1\n", b"\0" * 100])
def test_garbage(world: World, data: bytes) -> None:
    Path(world.file).parent.mkdir()
    Path(world.file).write_bytes(data)
    assert world.look() is None


def test_no_file(world: World) -> None:
    os.makedirs(world.file)
    assert world.look() is None
    write(world.file, ENGINE, world.snapshot())  # which cannot be, and costs the shortcut only
    assert set(os.listdir(world.root / "store")) <= {"snapshot", "lock"}


# ---- two processes -------------------------------------------------------------------------------


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Few paths are enough for a second process; says how often there was one."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("on one core there is no second process")
    monkeypatch.setattr(snapshot, "_FORK_FROM", 4)
    seen: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        seen.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    descriptors = len(os.listdir("/proc/self/fd"))
    yield seen
    assert len(os.listdir("/proc/self/fd")) == descriptors
    for pid in seen:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # has been waited for


def many(world: World, number: int) -> list[str]:
    (world.root / "many").mkdir()
    names = [f"many/{i}" for i in range(number)]
    for name in names:
        (world.root / name).touch()
    world.write(names)
    return names


@pytest.mark.parametrize("edited", [[], [0], [99], [0, 1, 98, 99], [49, 50], range(30, 90)])
def test_both_halves_are_looked_at(world: World, forks: list[int], edited: list[int]) -> None:
    names = many(world, 100)
    for i in edited:
        (world.root / names[i]).write_text("other")
    found = world.found()
    assert found.changed == [names[i] for i in edited]
    assert not found.elsewhere
    assert len(forks) == 1


@pytest.mark.parametrize("name", ["MXTBUILD", "out/y"])
def test_what_is_no_source_in_either_half(world: World, forks: list[int], name: str) -> None:
    many(world, 100)
    (world.root / name).write_text("other")
    assert world.found().elsewhere
    assert len(forks) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [(40, 40), (0, MOST_CHANGES), (0, MOST_CHANGES + 1), (MOST_CHANGES, 0), (32, 32), (100, 0)],
)
def test_too_many_changes(world: World, forks: list[int], first: int, second: int) -> None:
    names = many(world, 300)
    for name in names[:first] + names[300 - second :]:
        (world.root / name).write_text("other")
    assert world.found().elsewhere == (first + second > MOST_CHANGES)
    assert len(forks) == 1


def test_a_second_process_that_dies_is_noticed(
    world: World, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    many(world, 100)
    scan, own = snapshot._scan, os.getpid()

    def dies(*args: object) -> list[int]:
        if os.getpid() != own:
            os.kill(os.getpid(), 9)
        return scan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "_scan", dies)
    found = world.look()
    assert found is None or found.elsewhere
    assert len(forks) == 1
