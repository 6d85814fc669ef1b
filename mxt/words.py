"""Times, sizes, counts and digests in words, for terminals and pages alike."""

from __future__ import annotations

SHOWN = 12  # characters of a digest that people see; enough to tell any two of a store apart


def duration(seconds: float) -> str:
    """0.04 s, 12.3 s, 3:05 min, 2:05:09 h."""
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def size(count: float) -> str:
    """Bytes in binary units: 512 B, 1.5 KiB, 2.0 GiB."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1023.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """1 action, 2 actions."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moment(text: str) -> str:
    """2026-11-21 23:28 UTC, of an ISO time; text that is none stays as it is."""
    date, _, rest = text.partition("T")
    return f"{date} {rest[:5]} UTC" if len(date) == 10 and rest.endswith("Z") else text


def short_digests(text: str) -> str:
    """text with every digest in it cut to what people see."""
    import re  # a build with nothing to do speaks of times only

    return re.sub(rf"\b([0-9a-f]{{{SHOWN}}})[0-9a-f]{{{64 - SHOWN}}}\b", r"\1", text)


def ellipsis(text: str, limit: int, mark: str = "...") -> str:
    """text, or as much of its beginning as fits with the mark in `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - len(mark)]}{mark}"


def middle_out(text: str, limit: int) -> str:
    """At most `limit` characters, the middle left out: names differ at their ends."""
    if len(text) <= limit:
        return text
    front = (limit - 1) // 2
    return f"{text[:front]}\N{HORIZONTAL ELLIPSIS}{text[front + 1 - limit :]}"
