"""Platforms are compared with this machine, toolchains with this environment: before running, never for a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxt.action.toolchain_lock import Distribution, parse_lock, render
from mxt.action.toolchain_make import make_lock
from mxt.execution.prepare import site_packages
from tests.e2e.conftest import Workspace

STAGE = """
    import sys
    from mxt.rule import Attributes

    class Attrs(Attributes):
        module: str = "blake3"

    def actions(target):
        target.action(run=run, outputs={"o": "o"}, params={"module": target.attrs.module})

    def run(run):
        try:
            __import__(run.params["module"])
            text = "there"
        except ImportError:
            text = "not there"
        run.outputs["o"].write_text(f"{text} {run.threads} {run.platform.get('arch')}\\n")
"""


@pytest.fixture(scope="module")
def lock() -> bytes:
    """A lock of one small distribution of this environment."""
    return make_lock(Path(site_packages()), ["blake3"])


def stage(ws: Workspace, lock: bytes, attrs: str = "") -> None:
    ws.write("rules/probe_it.py", STAGE)
    ws.write("t.lock.json", lock)
    ws.write(
        "MXTBUILD",
        f"""
        toolchain(name = "t", lock = "t.lock.json")
        platform(name = "p", arch = "{os.uname().machine}", threads = 1)
        probe_it(name = "x", toolchain = ":t", platform = ":p"{attrs})
        """,
    )
    ws.run("trust")


def test_an_action_sees_its_toolchain_and_nothing_else(ws: Workspace, lock: bytes) -> None:
    stage(ws, lock)
    ws.build(":x")
    arch = os.uname().machine
    assert ws.read("mxt-out/x/o") == f"there 1 {arch}\n"
    stage(ws, lock, ', module = "pydantic"')
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == f"not there 1 {arch}\n"


def test_a_lock_that_differs_lists_every_difference(ws: Workspace, lock: bytes) -> None:
    good = parse_lock(lock, "t")
    rows = [
        Distribution("blake3", "0.0.1", good.distributions[0].digest),
        Distribution("nonesuch", "1.0", "0" * 64),
        *good.distributions[1:],
    ]
    wrong = render(good.interpreter._replace(version="3.99"), sorted(rows))
    stage(ws, wrong)
    result = ws.build(":x", code=1)
    version = good.distributions[0].version
    assert (
        "error: t.lock.json: the environment differs from its toolchain lock: 3 differences\n"
        "    interpreter: is cpython 3.11 (cp311), locked is cpython 3.99 (cp311)\n"
        f"    blake3: is version {version}, locked is 0.0.1\n"
        "    nonesuch: is not installed, locked is 1.0\n"
    ) in result.err
    assert "mxt toolchain lock --write" in result.err
    assert result.finished == {}  # said before anything runs
    assert result.err.splitlines()[-1].startswith("failed: nothing was run in ")


def test_a_changed_lock_is_a_changed_key_but_other_packages_are_not(ws: Workspace, lock: bytes) -> None:
    stage(ws, lock)
    ws.build(":x")
    assert ws.build(":x").executed == set()
    more = make_lock(Path(site_packages()), ["blake3", "packaging"])
    stage(ws, more)
    result = ws.build(":x")
    assert set(result.reason("//:x")) == {"toolchain"}


def test_keys_need_no_device_and_results_are_found_without_it(ws: Workspace) -> None:
    rule = """
        platform(name = "gpu", arch = "gfx942", compute_units = 304, gpus = 8)
        genrule(name = "x", platform = ":gpu", outs = ["o"], cmd = "echo x > $@")
    """
    ws.write("MXTBUILD", rule)
    result = ws.build(":x", code=1)
    assert (
        "error: //:x: this machine is not the declared platform\n"
        "    gpus: declared 8 with arch gfx942, compute_units 304, this machine has none\n"
        "  hint: build on such a machine or fetch results made on one; results are found without the device, "
        "only running an action needs it\n"
    ) in result.err
    plan = ws.run("build", "-n", ":x")
    assert plan.code == 0
    assert plan.out.startswith("  run     ")  # its key is known
    assert ws.run("explain", ":x").code == 0

    # as if a colleague with the device had built it: the same key, made under another declaration
    arch = os.uname().machine
    ws.write("MXTBUILD", rule.replace('arch = "gfx942", compute_units = 304, gpus = 8', f'arch = "{arch}"'))
    ws.build(":x")
    ws.write("MXTBUILD", rule)
    assert set(ws.run("explain", ":x").out.split()) >= {"platform:"}


def test_a_mismatching_instruction_set_and_threads(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        platform(name = "p", arch = "alpha", isa = "vax", threads = 100000)
        genrule(name = "x", platform = ":p", outs = ["o"], cmd = "echo x > $@")
        """,
    )
    err = ws.build(":x", code=1).err
    assert f"    arch: declared alpha, this machine has {os.uname().machine}\n" in err
    assert "    isa: declared vax, this machine has no test for it" in err
    assert "    threads: declared 100000, this machine has " in err


def test_platform_environment_reaches_the_action_and_its_key(ws: Workspace) -> None:
    rule = """
        platform(name = "p", arch = "{0}", env = {{"SOME_CAP": "{1}"}})
        genrule(name = "x", platform = ":p", outs = ["o"], cmd = "echo $$SOME_CAP > $@")
    """
    ws.write("MXTBUILD", rule.format(os.uname().machine, "avx2"))
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == "avx2\n"
    ws.write("MXTBUILD", rule.format(os.uname().machine, "sse"))
    reason = ws.build(":x").reason("//:x")
    assert reason["environment.SOME_CAP"] == ('"avx2"', '"sse"')
    assert set(reason) == {"environment.SOME_CAP", "platform"}


def test_toolchains_that_are_not_right(ws: Workspace) -> None:
    x = 'genrule(name = "x", toolchain = ":t", outs = ["o"], cmd = "echo > $@")\n'
    ws.write("MXTBUILD", 'toolchain(name = "t", lock = "gone.json")\n' + x)
    assert (
        "toolchain 't': cannot read its lock 'gone.json': No such file or directory"
        in ws.build(":x", code=1).err
    )
    ws.write("MXTBUILD", 'toolchain(name = "t")\n' + x)
    assert "toolchain 't' needs either 'lock' or 'image' and 'digest'" in ws.build(":x", code=1).err
    ws.write("MXTBUILD", 'toolchain(name = "t", image = "rocm/x", digest = "unpinned")\n' + x)
    assert ws.run("build", "-n", ":x").code == 0  # parses, has a key
    assert "mxt toolchain pin" in ws.build(":x", code=1).err
