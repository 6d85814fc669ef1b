from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.store import Checkpoints

from .conftest import REPOSITORY, file_with


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        file_with(folder / "weights", text)
        file_with(folder / "deep" / "optimizer", text * 2)

    return write


def test_the_newest_is_the_last_saved_whatever_its_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "progress")
    assert checkpoints.newest() is None
    for name in ("checkpoint-10", "checkpoint-9", "a"):
        saved = checkpoints.save(name, writer(name))
        assert checkpoints.newest() == saved
        assert saved.path.name == saved.name == name
        assert (saved.path / "weights").read_text() == name


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: (path / "weights").write_text("worse"), id="altered"),
        pytest.param(lambda path: os.truncate(path / "deep" / "optimizer", 1), id="truncated"),
        pytest.param(lambda path: (path / "weights").unlink(), id="a file missing"),
        pytest.param(lambda path: file_with(path / "more", b""), id="a file more"),
        pytest.param(lambda path: (path.parent / "manifest.json").unlink(), id="no manifest"),
        pytest.param(lambda path: (path.parent / "manifest.json").write_text("[]"), id="no such manifest"),
        pytest.param(lambda path: path.rename(path.with_name("other")), id="renamed"),
    ],
)
def test_a_damaged_one_is_passed_over(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    checkpoints = Checkpoints(tmp_path)
    first = checkpoints.save("step-1", writer("one"))
    damage(checkpoints.save("step-2", writer("two")).path)
    assert checkpoints.newest() == first
    assert checkpoints.newest() == first
    third = checkpoints.save("step-2", writer("again"))
    assert checkpoints.newest() == third
    checkpoints.prune(keep=2)
    assert sorted(os.listdir(tmp_path)) == ["000001", f"{third.number:06d}"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    first = checkpoints.save("step-1", writer("one"))

    def fail(folder: Path) -> None:
        file_with(folder / "weights", "half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoints.save("step-2", fail)
    assert os.listdir(tmp_path) == ["000001"]
    assert checkpoints.newest() == first


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in range(5):
        last = checkpoints.save(f"step-{number}", writer("x"))
    file_with(tmp_path / ".000009.abcd" / "step-9" / "weights", "left behind")
    checkpoints.prune(keep=2)
    assert sorted(os.listdir(tmp_path)) == ["000004", "000005"]
    assert checkpoints.newest() == last
    with pytest.raises(ValueError, match="at least one"):
        checkpoints.prune(keep=0)


@pytest.mark.parametrize("name", ["", "..", "a/b", "manifest.json"])
def test_a_name_is_one_component(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        Checkpoints(tmp_path).save(name, writer("x"))


def test_killed_at_any_moment_the_newest_is_whole(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from mxt.store import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
last = checkpoints.newest()
step = int(last.name) if last else 0
while True:
    step += 1
    def write(folder: Path) -> None:
        for name in "abc":
            (folder / name).write_text(f"{step} " * 20000)
    checkpoints.save(str(step), write)
    checkpoints.prune(keep=2)
    print(step, flush=True)
"""
    reached = 0
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    for turn in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", script, tmp_path], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        time.sleep(0.007 * turn)
        process.kill()
        said = [int(text) for text in (line + process.stdout.read()).split()]
        process.stdout.close()
        process.wait()
        newest = Checkpoints(tmp_path).newest()
        assert newest is not None
        step = int(newest.name)
        assert step >= max(said) > reached
        reached = step
        for name in "abc":
            assert (newest.path / name).read_text() == f"{step} " * 20000


def test_it_is_light_to_import() -> None:
    heavy = {"blake3", "sqlite3", "cryptography", "hashlib"}
    script = f"import sys; import mxt.store.progress; print(sorted({heavy} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
