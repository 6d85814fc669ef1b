"""Times and sizes as pages say them; the terminal's words, which a page may not reach up to."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """0.04 s, 12.3 s, 3:05 min, 2:05:09 h."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
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
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def moment(text: str) -> str:
    """2026-11-21 23:28 UTC, of an ISO time; text that is none stays as it is."""
    date, _, rest = text.partition("T")
    return f"{date} {rest[:5]} UTC" if len(date) == 10 and rest.endswith("Z") else text
