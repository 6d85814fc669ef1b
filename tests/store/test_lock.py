from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mxt.errors import StoreError
from mxt.store import Store, acquire_gpus
from mxt.store.gpu_lock import gpu_lock_folder

from .conftest import REPOSITORY

KEY = "k" * 64


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


HOLD = """
import subprocess, sys, time
from mxt.store import Store
lock = Store(sys.argv[1]).locks.acquire(sys.argv[2])
child = None
if sys.argv[3] == "child":
    child = subprocess.Popen(["sleep", "0.7"], pass_fds=(lock.fd,), stdout=subprocess.DEVNULL)
print("held", flush=True)
sys.stdin.readline()
"""


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_a_key_is_held_by_one(store: Store) -> None:
    lock = store.locks.acquire(KEY)
    assert lock is not None
    assert store.locks.acquire(KEY, timeout_s=0) is None
    assert store.locks.acquire("m" * 64, timeout_s=0) is not None
    lock.release()
    lock.release()
    with store.locks.acquire(KEY, timeout_s=0) as again:  # type: ignore[union-attr]
        assert again.fd >= 0


def test_the_second_is_told_that_it_waits(store: Store) -> None:
    process = start(HOLD, store.root, KEY, "alone")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert store.locks.held(KEY)
    assert not store.locks.held("m" * 64)
    told: list[int] = []
    threading.Timer(0.3, process.kill).start()
    lock = store.locks.acquire(KEY, told.append, timeout_s=10)
    assert lock is not None
    assert told == [0]
    ended(process)


def test_a_lock_that_is_released_is_free_whoever_has_its_descriptor(store: Store) -> None:
    """An action's escaped process keeps the descriptor; the key is free when mxt says so."""
    lock = store.locks.acquire(KEY)
    assert lock is not None
    copy = os.dup(lock.fd)
    lock.release()
    assert store.locks.acquire(KEY, timeout_s=0) is not None
    os.close(copy)


def test_a_wait_can_be_cancelled(store: Store) -> None:
    lock = store.locks.acquire(KEY)
    began = time.monotonic()
    assert store.locks.acquire(KEY, cancelled=lambda: time.monotonic() > began + 0.1) is None
    assert time.monotonic() - began < 10
    assert lock is not None
    lock.release()


def test_a_child_that_outlives_its_parent_keeps_the_key(store: Store) -> None:
    process = start(HOLD, store.root, KEY, "child")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    ended(process)
    assert store.locks.acquire(KEY, timeout_s=0) is None
    lock = store.locks.acquire(KEY, timeout_s=10)
    assert lock is not None


def test_threads_and_processes_never_hold_a_key_together(store: Store, tmp_path: Path) -> None:
    script = """
import os, sys, threading
from mxt.store import Store
store = Store(sys.argv[1])
def work():
    for _ in range(15):
        with store.locks.acquire(sys.argv[2], timeout_s=60):
            fd = os.open(sys.argv[3], os.O_CREAT | os.O_EXCL)
            os.close(fd)
            os.unlink(sys.argv[3])
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
print("done")
"""
    processes = [start(script, store.root, KEY, tmp_path / "inside") for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["done\n"] * 3
    assert os.listdir(store.root / "locks") == ["keys.lock"]


def test_gc_and_builds_exclude_each_other(store: Store) -> None:
    with store.locks.shared() as one, store.locks.shared(timeout_s=0) as two:  # type: ignore[union-attr]
        assert one is not None
        assert two is not None
        assert store.locks.exclusive(timeout_s=0) is None
    with store.locks.exclusive(timeout_s=0) as alone:  # type: ignore[union-attr]
        assert alone is not None
        assert store.locks.shared(timeout_s=0) is None


def test_gpus_are_locked_across_stores(tmp_path: Path) -> None:
    folder = str(tmp_path)
    held = acquire_gpus(["GPU-1", "GPU-0"], folder=folder)
    assert held is not None
    assert acquire_gpus(["GPU-2", "GPU-1"], folder=folder, timeout_s=0) is None
    free = acquire_gpus(
        ["GPU-2"], folder=folder, timeout_s=0
    )  # what it took before it had to give up is free
    assert free is not None
    for lock in held + free:
        assert os.get_inheritable(lock.fd)
        lock.release()
    assert len(os.listdir(tmp_path)) == 3


def test_ordinary_work_shares_a_gpu_but_not_with_the_probe(tmp_path: Path) -> None:
    folder = str(tmp_path)
    one = acquire_gpus(["0"], exclusive=False, folder=folder, timeout_s=0)
    two = acquire_gpus(["0"], exclusive=False, folder=folder, timeout_s=0)
    assert one is not None
    assert two is not None
    assert acquire_gpus(["0"], folder=folder, timeout_s=0) is None
    for lock in one + two:
        lock.release()
    assert acquire_gpus(["0"], folder=folder, timeout_s=0) is not None


def test_a_gpu_lock_of_another_user_can_be_taken_and_a_trap_cannot(tmp_path: Path) -> None:
    path = tmp_path / "mxt-gpu-0.lock"
    path.touch(0o444)
    path.chmod(0o444)
    held = acquire_gpus(["0"], folder=str(tmp_path), timeout_s=0)
    assert held is not None
    held[0].release()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="no regular file"):
        acquire_gpus(["0"], folder=str(tmp_path), timeout_s=0)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="no regular file"):
        acquire_gpus(["0"], folder=str(tmp_path), timeout_s=0)


def test_the_machine_wide_folder_is_everybodys() -> None:
    assert stat.S_IMODE(os.stat(gpu_lock_folder()).st_mode) & 0o1777 == 0o1777


def test_the_lock_of_the_store_names_its_holder(store: Store) -> None:
    with store.locks.exclusive() as lock:  # type: ignore[union-attr]
        assert store.layout.lock("store").read_text() == f"{os.getpid()}\n"
        with open(lock.path) as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_keys_lock_bytes_of_one_file_and_hinder_no_other(store: Store) -> None:
    keys = [f"{n:x}".rjust(64, "0") for n in range(300)]
    held = [store.locks.acquire(key, timeout_s=0) for key in keys]
    assert all(held)
    assert all(store.locks.held(key) for key in keys)
    for lock in held[::2]:
        assert lock is not None
        lock.release()
    assert [store.locks.held(key) for key in keys] == [False, True] * 150
    assert os.listdir(store.root / "locks") == ["keys.lock"]
    assert (store.root / "locks/keys.lock").stat().st_size == 0
    for lock in held[1::2]:
        assert lock is not None
        lock.release()


def test_asking_whether_a_key_is_held_lets_go_of_nothing(store: Store) -> None:
    """As POSIX locks would, whenever any descriptor of the file is closed."""
    with store.locks.acquire(KEY):  # type: ignore[union-attr]
        for _ in range(2):
            assert store.locks.held(KEY)
            assert not store.locks.held("m" * 64)
        with open(store.root / "locks/keys.lock", "rb"):
            pass
        assert store.locks.acquire(KEY, timeout_s=0) is None
    assert not store.locks.held(KEY)


def test_a_lock_file_that_is_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    (store.root / "locks").mkdir(exist_ok=True)
    (store.root / "locks/keys.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        store.locks.acquire(KEY, timeout_s=0)
    assert not (tmp_path / "elsewhere").exists()
    assert not store.locks.held(KEY)
