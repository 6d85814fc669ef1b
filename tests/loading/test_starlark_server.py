"""No MXTBUILD can hang, kill or bloat mxt: each of these ends soon, as an error with its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mxt.errors import LoadError
from tests.loading.conftest import Space

DEEP = "a literal, expression or value is nested too deeply"
MEMORY = "evaluation needs more than 512 MiB of memory"
LARGE = "the package's attributes are larger than 64 MiB"
TIME = "evaluation takes longer than 1 s"


def looping(before: str, step: str, after: str, times: int = 1_000_000) -> str:
    """A function that does `step` many times, and its call."""
    return f"def f():\n    {before}\n    for i in range({times}):\n        {step}\n    {after}\nf()"


HOSTILE = {
    "endless loop": ("def f():\n    for i in range(1 << 30):\n        pass\nf()", TIME, "2:5"),
    "endless loops in macros": (looping("g = lambda: 1", "g()", "pass", 1 << 30), TIME, None),
    "endless comprehension": ("x = len([i for i in range(1 << 30) if i < 0])", TIME, None),
    "recursion": ("def f(n):\n    return f(n + 1)\nf(0)", "recursion is too deep", "2:12"),
    "mutual recursion": ("def f():\n    g()\ndef g():\n    f()\nf()", "recursion is too deep", None),
    "nested brackets": ("x = " + "[" * 10**5 + "]" * 10**5, DEEP, "1:5"),
    "nested brackets below": ("y = 1\nx = " + "[" * 10**5 + "]" * 10**5, DEEP, "2:5"),
    "nested dicts": ("x = " + '{"a":' * 10**5 + "1" + "}" * 10**5, DEEP, "1:5"),
    "nested comprehensions": ("x = " + "[i for i in " * 10**4 + "[1]" + "]" * 10**4, DEEP, "1:5"),
    "long sum": ("x = " + "+".join(["1"] * 10**5), DEEP, "1:1"),
    "many minus signs": ("x = " + "-" * 10**5 + "1", DEEP, "1:1"),
    "lambdas": ("x = " + "lambda: " * 20_000 + "1", DEEP, "1:1"),
    "nested value hashed": (looping("x = ()", "x = (x,)", "return {x: 1}"), DEEP, ""),
    "nested value printed": (looping("x = []", "x = [x]", "return str(x)"), DEEP, ""),
    "nested attribute": (looping("x = []", "x = [x]", "genrule(name = 'a', x = x)", 5000), None, None),
    "huge text": ('x = "a" * 10000000000', "integer value is too big to fit in i32: 10000000000", "1:5"),
    "large text": ('x = "a" * 1000000000', MEMORY, ""),
    "replaced text": ('x = ("a" * 1000000).replace("a", "b" * 1000000)', MEMORY, ""),
    "doubling list": ("def f():\n    x = [1]\n    for i in range(100):\n        x = x + x\nf()", MEMORY, ""),
    "doubling text": ("def f():\n    x = 'a'\n    for i in range(100):\n        x = x + x\nf()", None, None),
    "huge shift": ("x = 1 << 1000000000", "integer overflow computing left shift", "1:5"),
    "50 MB literal": ('x = "' + "a" * 50_000_000 + '"', "is larger than 4 MiB", ""),
    "too many targets": ("x = [genrule(name = str(i), x = 'a' * 1000000) for i in range(99)]", LARGE, "1:6"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(space: Space, case: str) -> None:
    content, message, place = HOSTILE[case]
    space.environ["MXT_LOAD_TIMEOUT"] = "1" if message == TIME else "10"  # others need none of it
    space.write("MXTBUILD", content + "\n")
    space.write("p/MXTBUILD", 'genrule(name = "fine")\n')
    loader = space.loader()
    started = time.monotonic()
    with pytest.raises(LoadError) as caught:
        loader.package("")
    assert time.monotonic() - started < 8
    if message is not None:
        assert caught.value.message == message
    if place is not None:
        assert caught.value.where == ("MXTBUILD:" + place if place else "MXTBUILD")
    assert len(str(caught.value)) < 1500
    # and the next package is none the worse for it
    assert list(loader.package("p").targets) == ["fine"]


def test_a_crash_in_a_loaded_file_names_that_file(space: Space) -> None:
    space.write("m.mxt", "\nx = " + "[" * 10**5 + "]" * 10**5)
    space.write("MXTBUILD", 'load(":m.mxt", "x")\n')
    with pytest.raises(LoadError) as caught:
        space.load()
    assert caught.value.where == "m.mxt:2:5"


def test_time_is_given_to_each_package(space: Space) -> None:
    space.environ["MXT_LOAD_TIMEOUT"] = "1"
    content = "def f():\n    for i in range(500000):\n        pass\nf()\n"
    for package in ("a", "b", "c", "d"):
        space.write(f"{package}/MXTBUILD", content)
    loader = space.loader()
    for package in ("a", "b", "c", "d"):
        loader.package(package)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_evaluator_dies_with_mxt(space: Space, number: signal.Signals) -> None:
    space.write("MXTBUILD", "def f():\n    for i in range(1 << 30):\n        pass\nf()\n")
    script = (
        "import sys; from pathlib import Path\n"
        "from mxt.loading.loader import Loader; from mxt.loading.workspace import find_workspace\n"
        f"workspace = find_workspace(Path({str(space.root)!r}))\n"
        "Loader(workspace, {}, environ={'MXT_LOAD_TIMEOUT': '60'}).package('')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while not children(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    child = children(parent.pid)[0]
    parent.send_signal(number)
    parent.wait()
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(child)


def test_the_evaluator_holds_nothing_of_mxts_open(space: Space) -> None:
    with open(space.root / "some.lock", "w") as lock:
        loader = space.loader()
        loader.package("")
        targets = [os.readlink(p) for p in Path(f"/proc/{loader._server.pid}/fd").iterdir()]
        assert str(space.root / "some.lock") not in targets
        assert len(targets) == 5
        assert not lock.closed


def test_an_evaluator_killed_from_outside_is_replaced(space: Space) -> None:
    space.write("p/MXTBUILD")
    loader = space.loader()
    loader.package("")
    os.kill(loader._server.pid, signal.SIGKILL)
    with pytest.raises(LoadError, match=r"killed from outside"):
        loader.package("p")
    space.write("q/MXTBUILD")
    assert loader.package("q").targets == {}


def test_nothing_is_left_behind(space: Space) -> None:
    loader = space.loader()
    loader.package("")
    pid = loader._server.pid
    before = set(os.listdir("/proc/self/fd"))
    loader.close()
    assert gone(pid)
    assert len(before) - len(os.listdir("/proc/self/fd")) == 3
