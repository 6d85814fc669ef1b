"""SIGKILL at any moment, again and again, of mxt and of its whole process group: the store stays sound."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mxt.store import REALISATION_TYPE, RUN_TYPE, hash_file, open_record
from mxt.store.realisation import Realisation, RunRecord
from tests.e2e.conftest import Workspace, wait_for

ROUNDS = 15


def fill(ws: Workspace) -> None:
    """Twelve actions in four layers, each reading two of the layer below; files, folders, large ones."""
    lines = []
    for layer in range(4):
        for i in range(3):
            srcs = [f'":t{layer - 1}{i}"', f'":t{layer - 1}{(i + 1) % 3}"'] if layer else ['"seed.txt"']
            lines.append(
                f"""
genrule(
    name = "t{layer}{i}",
    srcs = [{", ".join(srcs)}],
    outs = ["f{layer}{i}.txt", "d{layer}{i}/"],
    cmd = \"\"\"
        cat $$(find $(SRCS) -type f | sort) | sha256sum > $(location f{layer}{i}.txt)
        sleep 0.0{i + 2}
        for n in 1 2 3 4 5; do
            mkdir -p $(location d{layer}{i})/$$n
            echo {layer} {i} $$n > $(location d{layer}{i})/$$n/file
        done
        head -c 300000 /dev/zero | tr '\\\\0' '{layer}' > $(location d{layer}{i})/large
        ln -s 1/file $(location d{layer}{i})/link
    \"\"\",
)"""
            )
    lines.append('bundle(name = "all", deps = [":t30", ":t31", ":t32"])')
    ws.write("MXTBUILD", "\n".join(lines))
    ws.write("seed.txt", "seed\n")


def check_store(store: Path) -> None:
    """Whatever is there is whole: blobs have their digest, records their signature and their form."""
    for blob in (store / "cas").glob("*/*"):
        assert hash_file(blob).digest == blob.name.removesuffix(".x"), f"{blob} is damaged"
    keys = {p.name: bytes.fromhex(p.read_text()) for p in (store / "state/operators").glob("*")}
    for place in (store / "ac").glob("*/*/*.json"):
        record = open_record(place.read_bytes(), REALISATION_TYPE)
        assert record.verify(keys[record.keyid])
        assert Realisation.parse(record.payload, record.keyid).key == place.parent.name
    for place in (store / "runs").glob("*/*/*.json"):
        record = open_record(place.read_bytes(), RUN_TYPE)
        assert record.verify(keys[record.keyid])
        RunRecord.parse(record.payload, name=place.stem, operator=record.keyid)


def made(ws: Workspace) -> dict[str, str]:
    """Everything below the bundle's links: path -> digest, or the target of a link."""
    found = {}
    for top in ("t30", "t31", "t32"):
        for path in sorted((ws.root / "mxt-out" / top).rglob("*")):
            name = f"{top}/{path.relative_to(ws.root / 'mxt-out' / top)}"
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file():
                found[name] = hash_file(path).digest
    return found


@pytest.mark.slow
def test_killed_again_and_again(ws: Workspace, make_ws: Callable[[str], Workspace]) -> None:
    fill(ws)
    dice = random.Random(2048)
    store = ws.root / "cache"
    killed = 0
    for number in range(ROUNDS):
        if number == 8:
            ws.write("seed.txt", "another seed\n")
        process = ws.start("build", "//:all", start_new_session=True)
        if number % 3:  # a moment after something of this round became visible
            before = set((store / "tmp").glob("*"))
            wait_for(lambda p=process, b=before: p.poll() is not None or set((store / "tmp").glob("*")) - b)
        time.sleep(dice.random() * 0.35)
        if process.poll() is None:
            killed += 1
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)  # ends only when nobody holds its output any more
        check_store(store)
    assert killed >= ROUNDS // 2, "the machine is faster than this test: make the actions slower"
    result = ws.build("//:all")
    assert set(result.finished.values()) <= {"executed", "cached"}
    verified = ws.run("verify", "//:all")
    assert verified.code == 0, verified.out + verified.err

    clean = make_ws("clean")
    fill(clean)
    clean.write("seed.txt", "another seed\n")
    clean.build("//:all")
    assert made(ws) == made(clean)

    assert ws.run("gc").code == 0
    for folder in ("tmp", "quarantine", "leases", "progress"):
        assert not list((store / folder).glob("*")), folder
    assert {p.name for p in (store / "locks").glob("*")} <= {"store.lock", "keys.lock"}
    assert set(ws.build("//:all").finished.values()) == {"cached"}
    assert made(ws) == made(clean)


def test_gc_killed_again_and_again(ws: Workspace) -> None:
    """What mxt-out shows survives any number of killed collections, and the rest goes in the end."""
    fill(ws)
    for seed in ("one", "two"):
        ws.write("seed.txt", seed)
        ws.build("//:all")
    wanted = made(ws)
    dice = random.Random(3)
    for _ in range(6):
        process = ws.start("gc")
        time.sleep(0.1 + dice.random() * 0.12)
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)
        check_store(ws.root / "cache")
        assert made(ws) == wanted
    assert ws.run("gc").code == 0
    assert ws.build("//:all").executed == set()
    assert "deleted 0 blobs" in ws.run("gc").out
