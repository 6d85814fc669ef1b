"""An interruption from the very start on: one that Python's importer would swallow comes a moment later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.e2e.conftest import REPOSITORY


def said(code: str, *, ignored: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from mxt.__main__ import _await_interrupts; _await_interrupts()\n" + code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


INSIDE = """
import os, signal, time
done = []
text = '''
def inside():
    os.kill(os.getpid(), signal.SIGINT)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    done.append("whole")
'''
exec(compile(text, FILE, "exec"))
try:
    inside()
    time.sleep(20)
except KeyboardInterrupt:
    print(*done, "interrupted")
"""


def test_the_importer_is_not_interrupted() -> None:
    assert said(INSIDE.replace("FILE", "'<frozen importlib._bootstrap>'")) == "whole interrupted\n"


def test_everything_else_is() -> None:
    assert said(INSIDE.replace("FILE", "'elsewhere.py'")) == "interrupted\n"


def test_what_is_ignored_stays_ignored() -> None:
    """As behind nohup, or in the background of a script."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('goes on')"
    assert said(code, ignored=True) == "goes on\n"
