"""A temporary workspace in which tests run the real command, as a user would."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.e2e.browser import browser  # noqa: F401 - a fixture, for every test here

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What a command did. events: its event stream, if it was a build."""

    code: int
    out: str
    err: str
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def finished(self) -> dict[str, str]:
        """Action -> status, for every action that the build reached."""
        return {
            e["label"] + (f"[{e['action']}]" if e["action"] else ""): e["status"]
            for e in self.events
            if e["event"] == "action_finished"
        }

    @property
    def executed(self) -> set[str]:
        """The actions that ran."""
        return {name for name, status in self.finished.items() if status == "executed"}

    def reason(self, name: str) -> dict[str, tuple[str, str]]:
        """Why an action ran: field -> (old, new)."""
        for e in self.events:
            if (
                e["event"] == "action_finished"
                and e["label"] + (f"[{e['action']}]" if e["action"] else "") == name
            ):
                return {r["field"]: (r["old"], r["new"]) for r in e["reason"]}
        raise AssertionError(f"{name} was not reached; {self.finished}")


class Workspace:
    """A folder with an MXTBUILD, and mxt run in it."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home
        root.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MXT_", "XDG_"))},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            # what is known of the environment, by stat tuples: reading it once is enough for all tests
            "XDG_CACHE_HOME": str(REPOSITORY / ".venv/cache-of-tests"),
            "PYTHONPATH": str(REPOSITORY),
            "NO_COLOR": "1",
        }

    def write(self, path: str, text: str | bytes) -> Path:
        """A file of the workspace; text is dedented."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            file.write_bytes(text)
        else:
            file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "mxt", *args]

    def run(
        self, *args: str, cwd: str = "", env: dict[str, str] | None = None, timeout: float = 300
    ) -> Result:
        """Run mxt to its end; whatever it does, it must not show a traceback."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.root / cwd,
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert not re.search(r"^Traceback \(most recent", done.stderr, re.MULTILINE), done.stderr
        assert "mxt itself failed" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def build(self, *args: str, code: int | None = 0, **kwargs: Any) -> Result:
        """mxt build, with its events; asserts the exit code (None: any)."""
        events = self.home / "events.jsonl"
        events.unlink(missing_ok=True)
        result = self.run("build", *args, "--events", str(events), **kwargs)
        assert code is None or result.code == code, (
            f"exit {result.code}, expected {code}\n{result.out}\n{result.err}"
        )
        if events.exists():
            result.events = [json.loads(line) for line in events.read_text().splitlines()]
        return result

    def start(
        self, *args: str, env: dict[str, str] | None = None, start_new_session: bool = False
    ) -> subprocess.Popen[str]:
        """Run mxt in the background; start_new_session: as the leader of a process group of its own."""
        process = subprocess.Popen(
            self.command(*args),
            cwd=self.root,
            env={**self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=start_new_session,
        )
        STARTED.append(process)
        return process

    def output(self, target: str) -> Path:
        """The materialised output of a target: package/target."""
        return self.root / "mxt-out" / target


def b3(data: bytes) -> str:
    """BLAKE3 in hexadecimal, as `b3sum` prints it."""
    return str(blake3(data).hexdigest())


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """A test that fails half-way leaves no build behind to slow down all that follow."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    """An empty workspace whose path has a space in it."""
    workspace = Workspace(tmp_path / "work space", tmp_path / "home")
    workspace.write("MXTBUILD", "")
    return workspace


@pytest.fixture
def make_ws(tmp_path: Path) -> Callable[[str], Workspace]:
    def make(name: str) -> Workspace:
        workspace = Workspace(tmp_path / name, tmp_path / f"{name}-home")
        workspace.write("MXTBUILD", "")
        return workspace

    return make


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Poll until condition() is true; fails after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"nothing happened within {seconds} s")


# In a genrule's cmd: says that the action has begun, and holds it until the test says go. The host sees
# both in the action's output folder, whatever the sandbox.
GATE = "touch $(RULEDIR)/.begun; until [ -e $(RULEDIR)/.go ]; do sleep 0.02; done; rm $(RULEDIR)/.begun $(RULEDIR)/.go"


def at_gate(ws: Workspace) -> list[Path]:
    """The output folders of actions that wait at their gate."""
    return [Path(place) for place, _, names in os.walk(ws.root / "cache" / "tmp") if ".begun" in names]


def let_go(ws: Workspace) -> None:
    for folder in at_gate(ws):
        (folder / ".go").touch()


def kill_tree(process: subprocess.Popen[str]) -> None:
    """SIGKILL; and wait until nobody holds its output any more."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)


def digits_away(text: str) -> str:
    """Times replaced by T, so that output can be compared exactly."""
    return re.sub(r"\d+(\.\d+)? s\b|\d+:\d\d min", "T", text)


@pytest.fixture(scope="session")
def micro_built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The micro pipeline, built once for all of pytest's processes, of which each gets a copy.

    Nobody may change it: `micro` is a copy to work on.
    """
    from tests.e2e.pipeline import ALL, MICRO, stages, write_micro

    def build(ws: Workspace) -> None:
        assert stages(write_micro(ws.root, ws.home).build(MICRO)) == ALL

    return _built_once(tmp_path_factory, "micro", build)


@pytest.fixture(scope="session")
def tiny_built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The project's own tiny recipe, built as micro_built is: a minute, for slow tests."""
    from tests.e2e.pipeline import stages, write_tiny

    def build(ws: Workspace) -> None:
        result = write_tiny(ws.root, ws.home).build("//recipes:tiny_sft_lora", timeout=900)
        made = stages(result, "tiny_sft_lora")
        assert {"init_model", "pretrain", "probe", "train", "eval_base", "eval", "gate", "quantize"} < made
        assert set(result.finished.values()) == {"executed"}

    return _built_once(tmp_path_factory, "tiny", build)


def _built_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Workspace], None]
) -> Workspace:
    """A copy, for this process, of what the first process that wanted it has built."""
    from tests.e2e.pipeline import copied

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = Workspace(folder / "work space", folder / "home")
        if not (folder / "built").exists():
            if any(built.root.iterdir()):
                pytest.fail(f"another process could not build '{name}'")
            build(built)
            (folder / "built").touch()
    return copied(built, tmp_path_factory.mktemp("copy") / "work space")


@pytest.fixture
def micro(micro_built: Workspace, tmp_path: Path) -> Workspace:
    """A workspace in which the whole micro pipeline has been built."""
    from tests.e2e.pipeline import copied

    return copied(micro_built, tmp_path / "a micro work space")
