"""mxt doctor: what this machine can run, and how to get what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mxt.doctor.devices import device_findings
from mxt.doctor.finding import Finding
from mxt.doctor.machine import machine_findings
from mxt.doctor.network import _host
from tests.e2e.conftest import Workspace

GPU = 'platform(name = "gpu", arch = "gfx942", compute_units = 304, gpus = 8)\n'


def findings(ws: Workspace, *args: str, code: int = 0, **env: str) -> dict[str, list[dict[str, Any]]]:
    """By area."""
    done = ws.run("doctor", "--json", *args, env=env)
    assert done.code == code, done.out + done.err
    report = json.loads(done.out)
    assert (report["version"], report["ok"]) == (1, code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in report["findings"]:
        assert set(row) == {"area", "status", "what", "mend"}
        assert row["status"] == "ok" or row["mend"], row
        found.setdefault(row["area"], []).append(row)
    return found


def one(found: dict[str, list[dict[str, Any]]], area: str, status: str) -> dict[str, Any]:
    """The only finding of an area with this status."""
    rows = [row for row in found[area] if row["status"] == status]
    assert len(rows) == 1, found[area]
    return rows[0]


def test_every_area_is_looked_at_and_nothing_is_left_behind(ws: Workspace) -> None:
    found = findings(ws)
    assert list(found) == [
        *(
            "python",
            "environment",
            "sandbox",
            "containers",
            "compiler",
            "git",
            "processor",
            "cores",
            "memory",
            "files",
        ),
        *("clock", "gpu", "torch", "token", "network", "key", "disk", "trust"),
    ]
    assert found["environment"][0]["what"].endswith("/toolchains/cpu-py311.lock.json")
    assert found["trust"][0]["what"] == "this workspace has no rules of its own"
    assert {p.name for p in ws.root.iterdir()} == {"MXTBUILD"}
    assert not (ws.home / ".config").exists()  # no key was made


def test_for_people_it_fits_the_terminal(ws: Workspace) -> None:
    ws.write("MXTBUILD", GPU + 'genrule(name = "x", platform = ":gpu", outs = ["o"], cmd = "echo > $@")\n')
    for columns in (80, 120):
        done = ws.run("doctor", "//:x", env={"COLUMNS": str(columns)})
        assert done.code == 1
        assert max(map(len, done.out.splitlines())) <= max(columns, 19 + len(str(ws.root)) + 10)
    assert (
        "fail  //:x         this machine is not the declared platform (gpus: declared 8 with arch gfx942, "
        "compute_units 304, this\n"
    ) in done.out
    assert "                   -> build on such a machine or fetch results made on one; " in done.out
    assert done.out.splitlines()[-1].endswith(" things looked at: 1 to mend, 0 to know about")


def test_what_is_missing_and_how_to_get_it(ws: Workspace) -> None:
    bare = ws.home / "bin"
    bare.mkdir()
    found = findings(ws, PATH=str(bare), CXX="nonesuch-c++")
    assert one(found, "git", "warn")["mend"] == "apt-get install git"
    assert one(found, "compiler", "warn")["what"].startswith("'nonesuch-c++' is missing")
    broken = bare / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    sandbox = one(findings(ws, PATH=f"{bare}:{os.environ['PATH']}"), "sandbox", "warn")
    assert sandbox["what"].startswith(
        "bubblewrap is not permitted here (bwrap: No permissions to create new namespace): actions run"
    )
    assert one(findings(ws, MXT_SANDBOX="none"), "sandbox", "warn")["mend"] == "unset MXT_SANDBOX"
    containers = one(findings(ws, MXT_CONTAINER="nonesuch-engine"), "containers", "warn")
    assert containers["what"] == "toolchains that are images cannot run: nonesuch-engine is not installed"


def test_key_token_and_proxy_show_no_secret(ws: Workspace) -> None:
    key = ws.home / "key"
    key.write_text("not a key")
    key.chmod(0o644)
    open_key = one(findings(ws, code=1, MXT_KEY_FILE=str(key)), "key", "fail")
    assert open_key == {
        "area": "key",
        "status": "fail",
        "what": f"{key}: the operator key is open to other users (mode 0644)",
        "mend": f"chmod 600 {key}",
    }
    done = ws.run(
        "doctor", env={"HF_TOKEN": "hf_secret", "https_proxy": "http://me:secret@proxy.example:3128/x"}
    )
    assert "secret" not in done.out + done.err
    assert "token        HF_TOKEN is set" in done.out
    assert "through a proxy: https_proxy is proxy.example:3128" in done.out
    assert _host("proxy.example") == "proxy.example"
    assert _host("http://[broken") == "set, and no address"


def test_own_rules_leftovers_and_unfinished_actions(ws: Workspace) -> None:
    ws.write("rules/mine.py", "x = 1\n")
    (ws.root / "cache" / "tmp" / "4194999-dead-0").mkdir(parents=True)
    (ws.root / "cache" / "tmp" / f"{os.getpid()}-alive-0").mkdir()
    (ws.root / "cache" / "progress" / "k" / "step-1").mkdir(parents=True)
    (ws.root / "cache" / "quarantine").mkdir()
    (ws.root / "cache" / "quarantine" / "bad").touch()
    found = findings(ws)
    assert one(found, "trust", "warn")["mend"].endswith("run 'mxt trust'")
    texts = [row["what"] for row in found["leftovers"]]
    assert texts[0] == "1 leftover of builds that were killed"
    assert texts[1].startswith("1 damaged file set aside in ")
    assert texts[2] == "1 unfinished action will resume where it stopped"


def test_a_lock_that_the_environment_does_not_fit(ws: Workspace) -> None:
    ws.write("toolchains/x.lock.json", '{"not": "a lock"}')
    row = one(findings(ws, code=1), "environment", "fail")
    assert row["what"].startswith("toolchains/x.lock.json: not a toolchain lock: ")


def test_what_targets_need(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        GPU
        + """
        genrule(name = "data", outs = ["d"], memory_mb = 512, cmd = "echo > $@")
        genrule(name = "train", srcs = [":data"], platform = ":gpu", outs = ["t"], cmd = "cp $< $@")
        """.replace("\n        ", "\n"),
    )
    data = findings(ws, "//:data")["//:data"]
    assert [row["what"] for row in data] == [
        "1 action: 1 to run, 0 cached",
        "needs no platform; no toolchain; 512.0 MiB of memory for its largest action",
    ]
    train = findings(ws, "//:train", code=1)["//:train"]
    assert [row["status"] for row in train] == ["ok", "ok", "fail"]
    assert train[1]["what"] == (
        "needs platform with arch gfx942, compute_units 304, gpus 8; no toolchain; "
        "512.0 MiB of memory for its largest action"
    )
    ws.build("//:data")
    assert findings(ws, "//:data")["//:data"][0]["what"] == "1 action, all cached"
    both = findings(ws, "//...", code=1)["//..."]
    assert both[0]["what"] == "2 actions: 1 to run, 1 cached"


def test_bad_labels_and_no_workspace(ws: Workspace, tmp_path: Path) -> None:
    malformed = ws.run("doctor", "/x")
    assert (malformed.code, "is an absolute path" in malformed.err) == (2, True)
    unknown = findings(ws, "//:nope", code=1)
    assert any("//:nope" in row["what"] for row in unknown["targets"])
    elsewhere = Workspace(tmp_path / "no workspace", ws.home)
    row = one(findings(elsewhere), "workspace", "warn")
    assert row["mend"] == "change into one, or make one: mxt init DIR"
    lost = elsewhere.run("doctor", "//:x")
    assert (lost.code, "this is not a workspace" in lost.err) == (2, True)
    assert elsewhere.run("doctor", "--workspace", "gone").code == 2


def test_few_open_files(ws: Workspace) -> None:
    done = subprocess.run(
        ["bash", "-c", 'ulimit -n 256; exec "$@"', "bash", *ws.command("doctor", "--json")],
        cwd=ws.root,
        env=ws.env,
        capture_output=True,
        text=True,
    )
    rows = [row for row in json.loads(done.stdout)["findings"] if row["area"] == "files"]
    assert rows == [
        {
            "area": "files",
            "status": "warn",
            "what": "256 may be open at once, 1024 are wanted",
            "mend": "ulimit -n 256, and raise the hard limit",
        }
    ]


def test_a_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 86400.0)
    clock = [f for f in machine_findings() if f.area == "clock"]
    assert clock == [Finding("clock", "fail", "it shows 1970-01-02", "set it: signed records carry the time")]


# ---- devices, in a machine of files ---------------------------------------------------------------------


def gpus(top: Path) -> list[tuple[str, str]]:
    return [(f.status, f.what) for f in device_findings(top=top) if f.area == "gpu"]


def put(top: Path, path: str, text: str = "") -> None:
    file = top / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_no_gpu(tmp_path: Path) -> None:
    put(tmp_path, "sys/bus/pci/devices/0/vendor", "0x1002\n")
    put(tmp_path, "sys/bus/pci/devices/0/class", "0x060400\n")  # a bridge
    assert gpus(tmp_path) == [("ok", "none; recipes for the platform 'cpu' run")]


def test_amd(tmp_path: Path) -> None:
    put(tmp_path, "dev/kfd")
    put(tmp_path, "sys/module/amdgpu/version", "6.16.6\n")
    put(
        tmp_path,
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 96\ngfx_target_version 0\n",
    )
    mi300x = "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\n"
    put(tmp_path, "sys/class/kfd/kfd/topology/nodes/1/properties", mi300x)
    assert gpus(tmp_path) == [
        ("ok", "AMD gfx942, 304 compute units, driver 6.16.6"),
        ("warn", "this mxt does not use the devices yet"),
    ]


def test_nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    put(tmp_path, "sys/bus/pci/devices/0/vendor", "0x10de\n")
    put(tmp_path, "sys/bus/pci/devices/0/class", "0x030200\n")
    assert gpus(tmp_path) == [("warn", "1 NVIDIA device on the bus, and no driver for it")]
    put(tmp_path, "proc/driver/nvidia/version", "NVRM version: 580\n")
    assert gpus(tmp_path)[0] == ("warn", "NVIDIA's driver is loaded, and there is no /dev/nvidia0")
    put(tmp_path, "dev/nvidia0")
    put(tmp_path, "dev/nvidiactl")
    assert gpus(tmp_path)[0] == ("ok", "NVIDIA devices: 1; nvidia-smi does not answer")
    put(
        tmp_path,
        "bin/nvidia-smi",
        f"#!{shutil.which('sh', path='/bin')}\necho 'NVIDIA H100 80GB HBM3, 81559 MiB, 580.95'\n",
    )
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    assert gpus(tmp_path)[0] == ("ok", "NVIDIA H100 80GB HBM3, 81559 MiB, 580.95")
