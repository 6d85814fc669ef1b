"""The page about devices says what the rules know of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules._devices import DEVICES, MI300X_ENV

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/devices.md").read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ")
    for cells in [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")]]
}


@pytest.mark.parametrize("name", [name for name in DEVICES if name != "cpu"])
def test_a_devices_figures(name: str) -> None:
    arch, units, flop, clock, peak, memory, fp8, mxfp4, gpus = ROWS[name]
    device = DEVICES[name]
    assert (arch, int(units), float(peak)) == (device.arch, device.units, device.bf16_tflops)
    assert memory == f"{device.memory_gib} GB"
    assert (fp8 == "yes", mxfp4 == "yes") == (device.fp8, device.mxfp4)
    assert gpus == device.allowed.replace(",", "")
    # what the maker calls its peak is no other number
    assert int(units) * int(flop) * float(clock) / 1000 == pytest.approx(device.bf16_tflops, rel=1e-3)


def test_each_number_that_a_device_allows_has_a_platform() -> None:
    found = re.findall(
        r"platform\(\n(.*?)\n\)", (REPOSITORY / "MXTBUILD").read_text(encoding="utf-8"), re.DOTALL
    )
    given = [dict(re.findall(r'^    (\w+) = "?(\w+)"?,$', text, re.MULTILINE)) for text in found]
    platforms = {one["name"]: one for one in given if "gpus" in one}
    wanted = {
        f"{name}_{gpus}x" if gpus > 1 else name: (device.arch, str(device.units), str(gpus), str(gpus))
        for name, device in DEVICES.items()
        for gpus in device.gpus
        if gpus
    }
    fields = ("arch", "compute_units", "gpus", "world_size")
    assert {name: tuple(one[f] for f in fields) for name, one in platforms.items()} == wanted


def test_every_device_and_variable_is_on_the_page() -> None:
    assert [name for name in ROWS if name in DEVICES] == list(DEVICES)
    assert re.findall(r"^\| `([A-Z_0-9]+)` \| `(\w+)`", PAGE, re.MULTILINE) == list(MI300X_ENV.items())
