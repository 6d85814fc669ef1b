"""`python -m mxt`, and the file that mxtw starts."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def _complete_path() -> None:
    """mxtw starts Python with -I -S: reading site-packages' .pth files and the user's own folders would
    cost 3 ms and let them change what runs. What a virtual environment needs of it is these lines."""
    import os

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.prefix = sys.exec_prefix = os.path.dirname(os.path.dirname(sys.executable))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    sys.path += [f"{sys.prefix}/lib/{version}/site-packages", here]


def _interrupted(_sign: int, frame: FrameType | None) -> None:
    """KeyboardInterrupt; inside Python's importer a moment later.

    The importer swallows one that comes while it forgets a module's lock, and then holds its own lock for
    ever: the build goes on, and the first import of another thread never ends.
    """
    import _signal  # type: ignore[import-not-found]

    if frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
        _signal.setitimer(_signal.ITIMER_REAL, 0.001)
    else:
        raise KeyboardInterrupt


def _await_interrupts() -> None:
    # not signal, which imports enum
    import _signal

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as by nohup
        _signal.signal(_signal.SIGINT, _interrupted)
        _signal.signal(_signal.SIGALRM, _interrupted)


if __name__ == "__main__":
    try:
        _await_interrupts()
        if sys.flags.no_site:
            _complete_path()
        from mxt.cli.main import main

        code = main()
    except KeyboardInterrupt:  # before main was ready for it, or while it said so
        code = 8
    sys.exit(code)
