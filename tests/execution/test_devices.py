"""Which device nodes the actions of a platform are given: files of this test stand for nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxt.execution import devices


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table with its paths below a folder of the test."""
    nodes = {k: tuple(f"{tmp_path}{pattern}" for pattern in v) for k, v in devices._NODES.items()}
    monkeypatch.setattr(devices, "_NODES", nodes)
    monkeypatch.setattr(devices, "_CDI_FOLDERS", (f"{tmp_path}/etc/cdi",))
    for name in ("dev/kfd", "dev/dri/renderD128", "dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/null"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_nodes_by_architecture(here: Path) -> None:
    assert devices.device_nodes({"arch": "gfx942"}) == [f"{here}/dev/kfd", f"{here}/dev/dri"]
    nodes = [f"{here}/dev/nvidia0", f"{here}/dev/nvidia1", f"{here}/dev/nvidiactl"]
    assert devices.device_nodes({"arch": "sm_90"}) == devices.container_devices({"arch": "sm_90"}) == nodes
    for platform in ({}, {"arch": "x86_64"}, {"arch": "sparc"}):
        assert devices.container_devices(platform) == []


def test_a_machine_that_describes_its_devices_is_believed(here: Path) -> None:
    (here / "etc/cdi").mkdir(parents=True)
    (here / "etc/cdi/other.yaml").write_text("kind: example.com/net\n")
    assert len(devices.container_devices({"arch": "sm_90"})) == 3
    (here / "etc/cdi/nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert devices.container_devices({"arch": "sm_90"}) == ["nvidia.com/gpu=all"]
    assert devices.container_devices({"arch": "gfx942"}) == [f"{here}/dev/kfd", f"{here}/dev/dri"]


def test_groups_of_nodes_and_of_what_lies_in_folders(here: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files to other groups")
    os.chown(here / "dev/kfd", 0, 44)
    os.chown(here / "dev/dri/renderD128", 0, 105)
    assert devices.device_groups(devices.device_nodes({"arch": "gfx942"})) == [44, 105]
