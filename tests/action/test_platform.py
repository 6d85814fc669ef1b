"""Platforms: their digest, and what is said where the machine is another one."""

from __future__ import annotations

from typing import Any

import pytest

from mxt.action.platform import ISA_FLAGS, Machine, check_machine, compare, platform_digest, this_machine
from mxt.errors import PlatformError

LAPTOP = Machine("x86_64", frozenset({"avx2", "fma", "bmi2", "f16c", "sse4_2"}), cores=2)
CPU = {"arch": "x86_64", "isa": "avx2", "threads": 1, "env": {"OMP_NUM_THREADS": "1"}}
MI300X: dict[str, Any] = {"arch": "gfx942", "compute_units": 304, "partition": "SPX"}


def test_a_machine_that_has_more_than_is_declared_fits() -> None:
    assert compare(CPU, LAPTOP) == []
    bigger = Machine("x86_64", LAPTOP.flags | ISA_FLAGS["avx512"], cores=64)
    assert compare(CPU, bigger) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"arch": "aarch64"}, "arch: declared aarch64, this machine has x86_64"),
        ({"isa": "neon"}, "isa: declared neon, this machine has no asimd"),
        (
            {"isa": "avx3"},
            f"isa: declared avx3, this machine has no test for it (known: {', '.join(ISA_FLAGS)})",
        ),
        ({"threads": 3}, "threads: declared 3, this machine has 2 cores for this process"),
        ({"gpus": 1, "arch": "gfx942"}, "gpus: declared 1 with arch gfx942, this machine has none"),
        # a property of devices asks for one, also without `gpus`
        (
            {"compute_units": 304, "arch": "gfx942"},
            "gpus: declared 1 with arch gfx942, compute_units 304, this machine has none",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], expected: str) -> None:
    assert [str(m) for m in compare({**CPU, **change}, LAPTOP)] == [expected]


def test_devices_are_counted_by_all_their_properties() -> None:
    node = Machine("x86_64", LAPTOP.flags, 64, gpus=(MI300X, MI300X, {**MI300X, "partition": "CPX"}))
    assert compare({**MI300X, "gpus": 2}, node) == []
    (mismatch,) = compare({**MI300X, "gpus": 3}, node)
    assert mismatch.declared == "3 with arch gfx942, compute_units 304, partition SPX"
    assert mismatch.found.count("arch gfx942") == 3


def test_the_error_names_the_platform_and_every_mismatch() -> None:
    with pytest.raises(PlatformError) as caught:
        check_machine({**CPU, "arch": "aarch64", "threads": 8}, name="//:big", machine=LAPTOP)
    text = str(caught.value)
    assert "this machine is not platform '//:big'" in text
    assert "arch: declared aarch64, this machine has x86_64" in text
    assert "threads: declared 8, this machine has 2 cores" in text


def test_this_machine_is_itself() -> None:
    here = this_machine()
    assert here.cores >= 1
    assert here.flags, "the processor's flags could not be read"
    check_machine({"arch": here.arch, "isa": "baseline", "threads": here.cores})


def test_the_digest_follows_every_property_and_no_order() -> None:
    digest = platform_digest(CPU)
    assert digest == platform_digest(dict(reversed(CPU.items())))
    assert digest == platform_digest({**CPU, "gpus": None})
    changes: list[dict[str, Any]] = [
        {"threads": 2},
        {"isa": "avx512"},
        {"gpus": 0},
        {"env": {"OMP_NUM_THREADS": "2"}},
        {"env": {}},
        {"properties": {"x": 1.5}},
    ]
    assert len({digest, *(platform_digest({**CPU, **c}) for c in changes)}) == len(changes) + 1
