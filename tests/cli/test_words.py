"""Times and sizes: what rounds up to the next unit is said in it."""

from __future__ import annotations

import pytest

from mxt.words import duration, ellipsis, short_digests, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"),
        (0.994, "0.99 s"),
        (0.997, "1.0 s"),
        (59.94, "59.9 s"),
        (59.97, "1:00 min"),
        (185.2, "3:05 min"),
        (3599.7, "1:00:00 h"),
        (7509, "2:05:09 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(1023, "1023 B"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1.0 MiB"), (1.5 * (1 << 40), "1.5 TiB")],
)
def test_size(count: float, text: str) -> None:
    assert size(count) == text


def test_digests_and_long_texts_are_cut() -> None:
    assert short_digests(f"file {'0a' * 32} -> {'b' * 63}") == f"file 0a0a0a0a0a0a -> {'b' * 63}"
    assert (ellipsis("abcdef", 6), ellipsis("abcdef", 5)) == ("abcdef", "ab...")
