"""mxtw: makes its environment once, completes it after an interruption, and then costs almost nothing."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PROGRAM = """
import os, sys
if sys.flags.no_site:
    sys.prefix = os.path.dirname(os.path.dirname(sys.executable))
    sys.path.append(f"{sys.prefix}/lib/python3.11/site-packages")
import tiny
print(tiny.VALUE, sys.argv[1:], os.getcwd(), flush=True)
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel as an index would offer it."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows += f"{path},sha256={digest},{len(text)}\n"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", f"{rows}{info}/RECORD,,\n")


class Checkout:
    """A checkout in a path with a space, whose toolchain is one tiny package, offered by a folder."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "a check out"
        self.index = tmp_path / "index"
        (self.root / "mxt").mkdir(parents=True)
        (self.root / "mxt" / "__main__.py").write_text(PROGRAM)
        (self.root / "toolchains").mkdir()
        for name in ("mxtw", "tools/setup.sh"):
            (self.root / name).parent.mkdir(exist_ok=True)
            shutil.copy2(REPOSITORY / name, self.root / name)
        wheel(self.index, "tiny", "1.0", {"tiny.py": "VALUE = 1\n"})
        wheel(self.index, "tiny", "2.0", {"tiny.py": "VALUE = 2\n"})
        wheel(self.index, "other", "1.0", {"other.py": ""})
        self.pin("tiny==1.0", "other==1.0")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_CONFIG_FILE": os.devnull,
            "MXT_PYTHON": os.path.realpath(sys.executable),
        }

    def pin(self, *pins: str) -> None:
        (self.root / "toolchains" / "cpu-py311.txt").write_text("# pins\n" + "\n".join(pins) + "\n")

    def start(
        self, *args: str, program: str = "", cwd: Path | None = None, **env: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [program or str(self.root / "mxtw"), *args],
            cwd=cwd or self.root,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str, program: str = "", cwd: Path | None = None, **env: str) -> tuple[int, str, str]:
        process = self.start(*args, program=program, cwd=cwd, **env)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    @property
    def site(self) -> Path:
        return self.root / ".venv" / "lib" / "python3.11" / "site-packages"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One whose environment was really made; do not change it."""
    checkout = Checkout(tmp_path_factory.mktemp("made"))
    code, out, err = checkout.run()
    assert (code, out[:2]) == (0, "1 "), err
    return checkout


@pytest.fixture
def ready(checkout: Checkout, made: Checkout) -> Checkout:
    """One to which a made environment was moved."""
    shutil.copytree(made.root / ".venv", checkout.root / ".venv", symlinks=True)
    return checkout


def test_first_use_a_second_use_and_a_changed_pin(checkout: Checkout, tmp_path: Path) -> None:
    code, out, err = checkout.run("build", "a b")
    assert (code, out) == (0, f"1 ['build', 'a b'] {checkout.root}\n"), err
    assert "environment ready" in err
    assert checkout.run("build", "a b") == (0, out, "")

    # from any folder, by a relative path, through links, from a moved checkout
    inside = checkout.root / "toolchains"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "link").symlink_to("../a check out/mxtw")
    for program, cwd in [
        ("../mxtw", inside),
        ("./mxtw", checkout.root),
        ("a check out/mxtw", tmp_path),
        (str(tmp_path / "bin/link"), tmp_path),
        ("./bin/link", tmp_path),
    ]:
        assert checkout.run(program=program, cwd=cwd) == (0, f"1 [] {cwd}\n", ""), program
    moved = tmp_path / "moved"
    checkout.root.rename(moved)
    checkout.root = moved
    assert checkout.run() == (0, f"1 [] {moved}\n", "")

    checkout.pin("tiny==2.0", "other==1.0")
    code, out, err = checkout.run()
    assert (code, out) == (0, f"2 [] {moved}\n"), err
    assert "completing .venv" in err
    assert checkout.run() == (0, out, "")


def test_neither_variables_nor_the_users_packages_change_what_runs(ready: Checkout, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "tiny.py").write_text("VALUE = 'evil'\n")
    user = tmp_path / ".local" / "lib" / "python3.11" / "site-packages"
    user.mkdir(parents=True)
    (user / "tiny.py").write_text("VALUE = 'user'\n")
    (ready.site / "hook.pth").write_text("import sys; sys.exit('a .pth file ran')\n")
    code, out, err = ready.run(PYTHONPATH=str(tmp_path / "evil"), cwd=tmp_path / "evil")
    assert (code, out[:2], err) == (0, "1 ", "")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_set_up_goes_on(checkout: Checkout, stop: signal.Signals) -> None:
    process = checkout.start()
    marker = checkout.root / ".venv" / "installed.txt"
    deadline = time.monotonic() + 60
    while not (checkout.root / ".venv" / "setup.log").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, stop)
    process.communicate(timeout=60)
    assert not marker.exists()
    code, out, err = checkout.run()
    assert (code, out[:2]) == (0, "1 "), err
    assert marker.exists()


def test_what_a_killed_pip_leaves_is_not_taken_for_installed(ready: Checkout) -> None:
    # pip writes RECORD last: this is how a kill in the middle of copying leaves a package
    (ready.root / ".venv" / "installed.txt").unlink()
    (ready.site / "tiny-1.0.dist-info" / "RECORD").unlink()
    (ready.site / "tiny.py").write_text("VAL")
    (ready.site / "~iny-0.9.dist-info").mkdir()
    code, out, err = ready.run()
    assert (code, out[:2]) == (0, "1 "), err
    assert not list(ready.site.glob("~*"))


def test_two_at_once_make_one_environment(checkout: Checkout) -> None:
    running = [checkout.start(str(i)) for i in range(3)]
    results = [r.communicate(timeout=120) for r in running]
    assert [r.returncode for r in running] == [0, 0, 0], results
    assert sum("environment ready" in err for _, err in results) == 1
    assert sum("waiting for it" in err for _, err in results) == 2


def test_an_environment_whose_python_is_gone_is_made_again(ready: Checkout) -> None:
    for link in (ready.root / ".venv" / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/python")
    code, out, err = ready.run()
    assert (code, out[:2]) == (0, "1 "), err


def test_no_python_is_said(checkout: Checkout, tmp_path: Path) -> None:
    code, _, err = checkout.run(MXT_PYTHON="/nowhere/python")
    assert code == 1
    assert "error: MXT_PYTHON '/nowhere/python' is not a working Python 3.11" in err
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "env", "grep", "mkdir", "cmp", "flock", "readlink"):
        (tools / name).symlink_to(shutil.which(name) or name)
    code, _, err = checkout.run(PATH=str(tools), MXT_PYTHON="")
    assert code == 1
    assert "error: no Python 3.11 was found" in err
    assert "hint: install it" in err


def test_packages_that_cannot_be_fetched_are_said(ready: Checkout) -> None:
    ready.pin("tiny==1.0", "nowhere==9")
    code, out, err = ready.run()
    assert (code, out) == (1, "")
    assert "error: the packages cannot be fetched: " in err
    assert "nowhere==9" in err
    assert "Traceback" not in err
    ready.pin("tiny==1.0")
    assert ready.run()[0] == 0


@pytest.mark.slow
def test_a_full_disk_is_said(checkout: Checkout, tmp_path: Path) -> None:
    """A real full disk: a small tmpfs of its own mount namespace."""
    shell = (
        f'mount -t tmpfs -o size=40m none "{checkout.root}/disk" && cd "{checkout.root}" '
        "&& cp -r mxtw tools toolchains mxt disk/ && head -c 28M /dev/zero > disk/ballast; disk/mxtw"
    )
    (checkout.root / "disk").mkdir()
    wheel(checkout.index, "large", "1.0", {"large.py": "#" + os.urandom(12_000_000).hex()})
    checkout.pin("tiny==1.0", "large==1.0")
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are forbidden here")
    code, _, err = checkout.run("-rm", "bash", "-c", shell, program="unshare")
    assert code == 1
    assert "error: " in err
    assert "disk" in err
    assert "Traceback" not in err


def test_the_wrapper_costs_little(ready: Checkout) -> None:

    def best(argv: list[str]) -> float:
        times = []
        for _ in range(20):
            started = time.perf_counter()
            subprocess.run(argv, env=ready.env, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    python = [f"{ready.root}/.venv/bin/python", "-I", "-S", f"{ready.root}/mxt/__main__.py"]
    assert best([f"{ready.root}/mxtw"]) - best(python) < 0.015
