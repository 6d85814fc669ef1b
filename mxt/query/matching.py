"""Regular expressions over many texts, within a bound: some take longer than the universe is old."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LIMIT_S = 5.0  # of this process's own time; 100,000 labels take a tenth of a second


class TooLongError(Exception):
    """Matching took LIMIT_S. text: what it was busy with."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def searched(regex: str, texts: Iterable[str]) -> list[bool]:
    """For each text whether the expression is found in it.

    Raises TooLongError, and what re.compile raises where the expression is malformed. The bound needs
    a signal and so the main thread; elsewhere there is none.
    """
    found: list[bool] = []
    text = ""
    with _bounded():
        try:
            search = re.compile(regex).search
            for text in texts:
                found.append(search(text) is not None)
        except TimeoutError:
            raise TooLongError(text) from None
    return found


@contextmanager
def _bounded() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
