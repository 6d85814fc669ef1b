"""Changes single values of a recipe's YAML and leaves every other character as it is."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Sequence
from typing import Any

from mxt.errors import LoadError
from mxt.loading.recipe_yaml import YamlPath, parse_yaml

WIDTH = 100  # a list that would make a line longer is written an item a line
# begins a comment that mxt writes: one without it is somebody's own, whatever it says
MARK = "pinned: "
# exactly what mxt writes behind the mark, and the one comment that stands where a note will be
_OWN = re.compile(r"pinned: (?:(?:\S+|\d+ files?, trusted) on \d{4}-\d\d-\d\d|from (?=.*[*?\[])\S.*)")
PLACEHOLDER = "`mxt pin` writes the commit"
_CLOSING = re.compile(r"[ \t]*[\]}]+")
_PLAIN = re.compile(r"[A-Za-z0-9_./][\w./+*?-]*(?:[ ][\w./+*?-]+)*", re.ASCII)


class RecipeEdit:
    """A recipe's text, and the changes that are to be made to it.

    Raises LoadError for a file that is no recipe, as reading it does.
    """

    def __init__(self, data: bytes, shown: str) -> None:
        """shown: the file's name in errors."""
        import yaml

        self.shown = shown
        self._bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
        document = parse_yaml(data, shown)
        self.value = document.value
        self._source = document.source
        self._newline = "\r\n" if "\r\n" in self._source else "\n"
        self._wanted = copy.deepcopy(document.value)
        self._nodes: dict[YamlPath, Any] = {}
        self._keys: dict[YamlPath, Any] = {}
        self._changes: list[tuple[int, int, str]] = []
        root = yaml.compose(self._source, Loader=yaml.SafeLoader)
        if root is not None:
            self._index(root, ())

    def _index(self, node: Any, path: YamlPath) -> None:
        self._nodes[path] = node
        if node.id == "mapping":
            for key, value in node.value:
                self._keys[(*path, key.value)] = key
                self._index(value, (*path, key.value))
        elif node.id == "sequence":
            for i, value in enumerate(node.value):
                self._index(value, (*path, i))

    # ---- looking ------------------------------------------------------------------------------------

    def line(self, path: YamlPath) -> int:
        """The line of a value, from 1; of the nearest section around it where the file does not have it."""
        while path and path not in self._keys:
            path = path[:-1]
        mark = self._keys[path].start_mark if path else self._nodes[()].start_mark
        return int(mark.line) + 1

    def note(self, path: YamlPath) -> str:
        """The note that set() wrote behind a value; of a list an item a line, that behind its key.

        "" where there is none, or somebody's own comment.
        """
        if path not in self._nodes:
            return ""
        comment = _said(self._behind(self._note_place(path)))
        return comment.removeprefix(MARK) if _OWN.fullmatch(comment) else ""

    def _note_place(self, path: YamlPath) -> int:
        node = self._nodes[path]
        if node.id == "sequence" and not node.flow_style:
            return self._colon(path)
        # of a section in {...}: what stands behind it is said of all in it
        end = int(node.end_mark.index)
        closing = _CLOSING.match(self._source, end)  # of {...} around the value
        return closing.end() if closing else end

    def _behind(self, place: int) -> str:
        """The rest of the line."""
        return self._source[place : self._line_end(place)]

    def _line_end(self, place: int) -> int:
        end = self._source.find("\n", place)
        end = len(self._source) if end < 0 else end
        return end - 1 if self._source[end - 1 : end] == "\r" else end

    def _colon(self, path: YamlPath) -> int:
        """The place just behind the ':' of a key."""
        return self._source.index(":", self._keys[path].end_mark.index) + 1

    # ---- changing -----------------------------------------------------------------------------------

    def set(self, path: tuple[str, ...], value: str | Sequence[str], note: str = "") -> None:
        """Replace a text or a list of texts, or add the key where its section has it not.

        note: to stand behind it as a comment after MARK, unless somebody else's is there. Raises LoadError
        where it cannot be written without changing more than it.
        """
        self._want(path, value)
        node = self._nodes.get(path)
        if node is None:
            self._add(path, value, note)
        elif isinstance(value, str) and node.id == "scalar":
            if node.style in ("|", ">"):
                raise self._by_hand(path, value)
            self._change(node.start_mark.index, node.end_mark.index, _scalar(value, node.style))
            self._comment(path, note)
        elif not isinstance(value, str) and node.id == "sequence":
            if node.flow_style:
                self._flow_list(path, node, value, note)
            else:
                self._block_list(path, node, value)
                self._comment(path, note)
        else:
            raise self._by_hand(path, value)

    def result(self) -> bytes:
        """The file's new bytes. Raises LoadError should they mean anything but what was set."""
        text, end = [], 0
        for start, stop, new in sorted(self._changes, key=lambda change: change[:2]):
            text += [self._source[end:start], new]
            end = stop
        data = self._bom + "".join([*text, self._source[end:]]).encode()
        if parse_yaml(data, self.shown).value != self._wanted:
            raise LoadError("cannot be changed in place", where=self.shown, hint="write the values by hand")
        return data

    def _change(self, start: int, stop: int, new: str) -> None:
        self._changes.append((start, stop, new.replace("\n", self._newline)))

    def _want(self, path: tuple[str, ...], value: str | Sequence[str]) -> None:
        section = self._wanted
        for key in path[:-1]:
            section = section[key]
        section[path[-1]] = value if isinstance(value, str) else list(value)

    def _by_hand(self, path: tuple[str, ...], value: str | Sequence[str]) -> LoadError:
        shown = value if isinstance(value, str) else f"[{', '.join(value)}]"
        return LoadError(
            f"'{'.'.join(path)}' is written in a way that cannot be changed in place",
            where=f"{self.shown}:{self.line(path)}",
            hint=f"write it by hand: {shown}",
        )

    def _comment(self, path: YamlPath, note: str) -> None:
        self._comment_at(self._note_place(path), note)

    def _comment_at(self, place: int, note: str) -> None:
        there = self._behind(place)
        if not note or (there.strip() and not there.strip().startswith("#")):
            return  # nothing to say, or more of a {...} stands here
        if any(start == place < stop or start == stop == place for start, stop, _ in self._changes):
            return  # another value of this line has a note already
        if _is_own(_said(there)):
            self._change(place, place + len(there), f" # {MARK}{note}")

    def _flow_list(self, path: tuple[str, ...], node: Any, value: Sequence[str], note: str) -> None:
        start, stop = node.start_mark.index, node.end_mark.index
        if "#" in self._source[start:stop] and "\n" in self._source[start:stop]:
            raise self._by_hand(path, value)
        text = f"[{', '.join(_scalar(v, None, in_list=True) for v in value)}]"
        above = self._nodes[path[:-1]]
        rest = self._behind(stop).strip()
        roomy = node.start_mark.column + len(text) <= WIDTH or above.flow_style or (rest and rest[0] != "#")
        if roomy:
            self._change(start, stop, text)
            self._comment(path, note)
            return
        # too long for its line: an item a line, below the key, where the comment then stands
        if note and _is_own(_said(rest)):
            rest = f"# {MARK}{note}"
        dash = " " * (self._keys[path].start_mark.column + 2) + "- "
        items = "".join(f"\n{dash}{_scalar(v)}" for v in value)
        self._change(self._colon(path), self._line_end(stop), f"{' ' if rest else ''}{rest}{items}")

    def _block_list(self, path: tuple[str, ...], node: Any, value: Sequence[str]) -> None:
        """Items that stay keep their lines, comments and all; the others' lines become those of new ones."""
        dash = " " * node.start_mark.column + "- "
        old = [item.value if item.id == "scalar" else "" for item in node.value]
        staying = [text for text in old if text in value]
        if staying != [text for text in value if text in staying]:
            raise self._by_hand(path, value)  # they change places
        new = list(value)
        for item, text in zip(node.value, old, strict=True):
            before = []
            while new and new[0] not in staying:
                before.append(_scalar(new.pop(0)))
            if text in staying:
                new.pop(0)
                start = item.start_mark.index
                self._change(start, start, "".join(f"{line}\n{dash}" for line in before))
            elif before:
                self._change(item.start_mark.index, item.end_mark.index, f"\n{dash}".join(before))
            else:
                self._drop_line(path, item, value)
        end = self._line_end(node.value[-1].end_mark.index)
        self._change(end, end, "".join(f"\n{dash}{_scalar(text)}" for text in new))

    def _drop_line(self, path: tuple[str, ...], item: Any, value: Sequence[str]) -> None:
        if self._behind(item.end_mark.index).strip():
            raise self._by_hand(path, value)  # a comment would go with it
        first = self._source.rfind("\n", 0, item.start_mark.index) + 1
        last = self._line_end(item.end_mark.index) + len(self._newline)
        self._change(first, min(last, len(self._source)), "")

    def _add(self, path: tuple[str, ...], value: str | Sequence[str], note: str) -> None:
        section = self._nodes.get(path[:-1])
        if section is None or section.id != "mapping" or not isinstance(value, str):
            raise self._by_hand(path, value)
        text = f"{path[-1]}: {_scalar(value, in_list=section.flow_style)}"
        if section.flow_style:
            first = section.value[0][1].end_mark.index if section.value else section.start_mark.index + 1
            self._change(first, first, f", {text}" if section.value else text)
            self._comment_at(self._note_place(path[:-1]), note)
            return
        line = f"{' ' * section.start_mark.column}{text}{f' # {MARK}{note}' if note else ''}"
        key, first = section.value[0]
        if first.id == "scalar" and first.style not in ("|", ">"):
            place = self._line_end(first.end_mark.index)
            self._change(place, place, f"\n{line}")
        else:  # what comes first takes several lines
            self._change(
                key.start_mark.index,
                key.start_mark.index,
                f"{line.lstrip()}\n{' ' * section.start_mark.column}",
            )


def _scalar(value: str, style: str | None = None, *, in_list: bool = False) -> str:
    """A text as it stands in YAML: in quotes where it had some, or needs them."""
    if style is None and _PLAIN.fullmatch(value) and not (in_list and re.search(r"[?\[\]{},]", value)):
        with contextlib.suppress(LoadError):  # a commit of digits alone would be a number
            if parse_yaml(f"- {value}".encode(), "").value == [value]:
                return value
    if style == "'" or (style is None and value.isprintable()):
        return "'" + value.replace("'", "''") + "'"
    import json

    return json.dumps(value, ensure_ascii=False)


def _said(comment: str) -> str:
    """What a comment says, without its '#'; "" for anything else."""
    text = comment.strip()
    return text[1:].strip() if text.startswith("#") else ""


def _is_own(comment: str) -> bool:
    """Whether a comment may be replaced: there is none, or mxt wrote it, or it stands for a note."""
    return comment in ("", PLACEHOLDER) or _OWN.fullmatch(comment) is not None
