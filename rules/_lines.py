"""Reads rows of JSONL, JSON arrays and Parquet in bounded memory, with each one's place and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOM = b"\xef\xbb\xbf"
SHOWN_BYTES = 1000  # of a bad row, kept as evidence
PARQUET_BATCH = 256


class BadRow(Exception):  # noqa: N818 - a fact about a row, not always an error
    """reason: a short phrase without the row's own data, so that it can be counted; hint: what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Row:
    """number: line (JSONL) or row (Parquet, JSON array), from 1. value: the row, or None where bad is set.

    shown: the beginning of the row as text, for the evidence.
    """

    number: int
    value: Any
    bad: BadRow | None
    shown: str


def read_rows(path: Path, max_row_bytes: int, first_line: int = 1) -> Iterator[Row]:
    """The rows of a .parquet file, of a .json file that holds one array of objects, or else of a JSONL file
    whose first line is line first_line of its source.

    Blank lines are passed over; a byte order mark and CRLF line ends are taken off.
    """
    if path.suffix == ".parquet":
        return _parquet(path, max_row_bytes)
    if path.suffix == ".json" and _begins_array(path):
        return _array(path, max_row_bytes)
    return _jsonl(path, max_row_bytes, first_line)


def _jsonl(path: Path, limit: int, first_line: int) -> Iterator[Row]:
    number = first_line - 1
    with path.open("rb") as file:
        while True:
            # two more than the limit: room for the line end, and a byte that tells "too long"
            line = file.readline(limit + 3)
            if not line:
                return
            number += 1
            if number == 1 and line.startswith(BOM):
                line = line[len(BOM) :]
            ended = line.endswith(b"\n")
            body = line.rstrip(b"\r\n") if ended else line
            if len(body) > limit:
                size = len(body) + (0 if ended else _skip_line(file))
                yield Row(number, None, _too_long(size, limit), _shown(body))
                continue
            if body.strip():
                yield _parse(number, body)


def _skip_line(file: Any) -> int:
    """Pass over the rest of a line without holding it; its size in bytes, line end apart."""
    size = 0
    while piece := file.readline(1 << 16):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size - 1
    return size


def _too_long(size: int, limit: int) -> BadRow:
    return BadRow(
        f"row of more than {limit:,} bytes",
        f"it has {size:,} bytes; raise data.max_row_bytes if that is meant, or look for a missing line end",
    )


def _parse(number: int, body: bytes) -> Row:
    shown = _shown(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = f"byte {error.start} of the line, 0x{body[error.start]:02x}; save the file as UTF-8"
        return Row(number, None, BadRow("invalid UTF-8", hint), shown)
    try:
        value = json.loads(text)
    except RecursionError:
        return Row(number, None, BadRow("JSON is nested too deeply"), shown)
    except json.JSONDecodeError as error:
        return Row(number, None, BadRow("bad JSON", f"{error.msg}, column {error.colno}"), shown)
    except ValueError as error:  # an integer of thousands of digits
        return Row(number, None, BadRow("bad JSON", str(error)), shown)
    if not isinstance(value, dict):
        hint = 'each line must be an object such as {"messages": [...]}'
        if isinstance(value, list) and number == 1:
            hint += "; this looks like one JSON array: call the file .json, or write one object a line"
        return Row(number, None, BadRow("not a JSON object", hint), shown)
    return Row(number, value, None, shown)


def _begins_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4096).removeprefix(BOM).lstrip()[:1] == b"["


def _array(path: Path, limit: int) -> Iterator[Row]:
    """The objects of one array, each read by itself: such files have hundreds of megabytes.

    What is wrong with the array, and not with a row of it, is wrong with the file.
    """
    text = _Text(path)
    text.skip("[")
    number = 0
    while True:
        if text.next() == "]" and number == 0:
            break
        number += 1
        start = text.next()
        if start == "":
            raise BadRow("the JSON array is not closed", f"the file ends within or behind row {number - 1}")
        try:
            value, body = text.value(limit)
        except json.JSONDecodeError as error:
            raise BadRow("bad JSON in an array", f"row {number}: {error.msg}") from None
        except RecursionError:
            raise BadRow("JSON is nested too deeply", f"row {number}") from None
        size = len(body.encode())
        bad = _too_long(size, limit) if size > limit else None
        if not isinstance(value, dict):
            bad = BadRow("not a JSON object", 'each row of the array must be an object: {"messages": [...]}')
        yield Row(number, None if bad else value, bad, body[:SHOWN_BYTES])
        if text.next() != ",":
            break
        text.skip(",")
    if text.next() != "]":
        raise BadRow("the JSON array is not closed", f"a comma or a ']' must follow on row {number}")
    text.skip("]")
    if text.next() != "":
        raise BadRow("something follows the JSON array", "a .json file holds one array, or an object a line")


class _Text:
    """A UTF-8 file of which only as much is held as the value at hand needs."""

    CHUNK = 1 << 18

    def __init__(self, path: Path) -> None:
        self._chunks = self._read(path)
        self._buffer = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def _read(self, path: Path) -> Iterator[str]:
        with path.open(encoding="utf-8-sig", newline="") as file:
            try:
                while chunk := file.read(self.CHUNK):
                    yield chunk
            except UnicodeDecodeError as error:
                raise BadRow(
                    "invalid UTF-8", f"0x{error.object[error.start]:02x}; save it as UTF-8"
                ) from None

    def _more(self) -> bool:
        chunk = next(self._chunks, "")
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def next(self) -> str:
        """The next character that is no white space, not taken; "" at the end."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in " \t\r\n":
                    return self._buffer[self._at]
                self._at += 1
            if not self._more():
                return ""

    def skip(self, character: str) -> None:
        """Take what `next` gave."""
        assert self.next() == character
        self._at += 1

    def value(self, limit: int) -> tuple[Any, str]:
        """The value that begins here and its text. Raises json.JSONDecodeError, BadRow for an endless one."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                # is it wrong, or does the rest of it not lie in memory yet?
                held = len(self._buffer) - self._at
                if held > 8 * limit + self.CHUNK:
                    raise BadRow(
                        f"row of more than {limit:,} bytes",
                        f"{held:,} characters on it has not ended; is a bracket or a quote missing?",
                    ) from None
                if not self._more():
                    raise error from None
                continue
            if end == len(self._buffer) and self._more():
                continue  # a number may go on
            body = self._buffer[self._at : end]
            self._at = end
            return value, body


def _shown(body: bytes) -> str:
    return body[:SHOWN_BYTES].decode("utf-8", "backslashreplace")


def _parquet(path: Path, limit: int) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=PARQUET_BATCH):
            for columns in batch.to_pylist():
                number += 1
                # Parquet gives every row every column: an absent field arrives as None
                value = {k: v for k, v in columns.items() if v is not None}
                shown = json.dumps(value, ensure_ascii=False, default=str)
                bad = _too_long(len(shown), limit) if len(shown) > limit else None
                yield Row(number, None if bad else value, bad, shown[:SHOWN_BYTES])
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the file's
        first = str(error).splitlines()[0]
        raise BadRow("not a readable Parquet file", first) from None
