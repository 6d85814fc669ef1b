"""The forms that training rows come in, and how each becomes {"messages": [...]} or {"text": ...}."""

from __future__ import annotations

from typing import Any

from rules._lines import BadRow

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "bot": "assistant",
}
# the columns by which a form is told, the first that fits wins
MARKS = {
    "messages": ("messages",),
    "sharegpt": ("conversations",),
    "alpaca": ("instruction", "output"),
    "prompt_completion": ("prompt", "completion"),
    "text": ("text",),
}
TOOL_ROLES = ("tool", "function", "function_call", "observation", "ipython")
TOOL_HINT = "tool calls are not supported yet: leave such rows out"
# fields that change what is to be learned, each with the values that ask for nothing special
WEIGHTS = ("weight", "loss_weight", "loss", "train", "training")
TOOLS = ("tools", "functions", "tool_calls", "function_call", "tool_call_id")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
PICTURES = ("images", "image", "audio", "audios", "video", "videos")


def detect(row: dict[str, Any]) -> str | None:
    """The form of a row, told by its columns; None where no form fits."""
    for form, columns in MARKS.items():
        if all(c in row for c in columns):
            return form
    return None


def known_forms() -> str:
    """The forms and their columns, for error messages."""
    return "; ".join(f"{form} ({', '.join(columns)})" for form, columns in MARKS.items())


def normalise(row: dict[str, Any], form: str) -> dict[str, Any]:
    """{"messages": [{"role", "content"}, ...]}, or {"text": ...} for plain text. Raises BadRow."""
    missing = [c for c in MARKS[form] if c not in row]
    if missing:
        needs = f"a row of form '{form}' needs {', '.join(MARKS[form])}"
        raise BadRow(f"field '{missing[0]}' is missing", needs)
    _check_meaning(row, "the row")
    if row.get("label") is False:
        raise BadRow(
            "the row is marked as a bad answer ('label': false)", "it would be learned as a good one"
        )
    for name in ("rejected", "chosen"):
        if row.get(name):
            raise BadRow(f"the row has '{name}', which asks for preference training", "leave the field out")
    if form == "text":
        return {"text": _text(row["text"], "text")}
    if form == "alpaca":
        turns = _alpaca(row)
    elif form == "prompt_completion":
        turns = _side(row["prompt"], "prompt", "user") + _side(row["completion"], "completion", "assistant")
    else:
        column = MARKS[form][0]
        turns = _turns(row[column], column)
    system = row.get("system")
    if isinstance(system, str) and system.strip() and turns and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": _text(system, "system")}, *turns]
    return {"messages": check_roles(turns)}


def left_out(row: dict[str, Any], form: str) -> list[str]:
    """Fields of a good row that say nothing here, for the report; those of messages as messages.NAME."""
    used = {*MARKS[form], *(() if form == "text" else ("system",))}
    if form == "alpaca":
        used |= {"input", "history"}
    found = {name for name in row if name not in used}
    for column in MARKS[form]:
        if isinstance(row[column], list):
            known = {"role", "content", "from", "value"}
            found |= {f"{column}.{name}" for m in row[column] for name in m if name not in known}
    return sorted(found)


def _check_meaning(fields: dict[str, Any], what: str) -> None:
    """Raises BadRow for a field without which the row would teach something else."""
    for name in TOOLS:
        if fields.get(name):
            raise BadRow(f"{what} has '{name}'", TOOL_HINT)
    for name in THOUGHTS:
        if fields.get(name):
            raise BadRow(
                f"{what} has '{name}'", "it would be lost: write it into the content, or leave the field out"
            )
    for name in PICTURES:
        if fields.get(name):
            raise BadRow(f"{what} has '{name}'", "only text is learned: leave such rows out")
    for name in WEIGHTS:
        if fields.get(name) not in (None, 1):
            raise BadRow(
                f"{what} has a '{name}' other than 1",
                "every answer is learned alike: leave the row or the field out",
            )


def check_roles(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """A system message if any, then user and assistant in turn, the assistant last. Raises BadRow."""
    talk = turns[1:] if turns and turns[0]["role"] == "system" else turns
    if not talk:
        raise BadRow("no messages")
    for i, turn in enumerate(talk):
        due = "assistant" if i % 2 else "user"
        if turn["role"] != due:
            raise BadRow(
                f"role '{turn['role']}' where '{due}' is due",
                f"message {i + 1 + len(turns) - len(talk)}; user and assistant must take turns, "
                "after one system message at most",
            )
    if talk[-1]["role"] != "assistant":
        raise BadRow("no answer: the last message is the user's", "there would be nothing to learn from it")
    return turns


def _alpaca(row: dict[str, Any]) -> list[dict[str, str]]:
    turns = []
    history = row.get("history") or []
    for pair in history if isinstance(history, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadRow("field 'history' is no list of [question, answer] pairs")
        turns.append({"role": "user", "content": _text(pair[0], "history")})
        turns.append({"role": "assistant", "content": _text(pair[1], "history")})
    question = _text(row["instruction"], "instruction")
    extra = row.get("input")
    if extra is not None and not isinstance(extra, str):
        raise BadRow("field 'input' is not text")
    if extra and extra.strip():
        question = f"{question}\n\n{extra}"
    turns.append({"role": "user", "content": question})
    turns.append({"role": "assistant", "content": _text(row["output"], "output")})
    return turns


def _side(value: Any, name: str, role: str) -> list[dict[str, str]]:
    """A prompt or completion: plain text, or messages."""
    return _turns(value, name) if isinstance(value, list) else [{"role": role, "content": _text(value, name)}]


def _turns(value: Any, name: str) -> list[dict[str, str]]:
    """Messages as {"role", "content"}, or as ShareGPT's {"from", "value"}."""
    if not isinstance(value, list):
        raise BadRow(f"field '{name}' is not a list of messages")
    turns = []
    for message in value:
        if not isinstance(message, dict):
            raise BadRow(f"a message in '{name}' is not an object")
        _check_meaning(message, "a message")
        who, what = ("role", "content") if "role" in message else ("from", "value")
        for key in (who, what):
            if key not in message:
                needs = "a message needs role and content, or from and value"
                raise BadRow(f"a message in '{name}' lacks '{key}'", needs)
        said = message[who]
        role = ROLES.get(said.lower()) if isinstance(said, str) else None
        if role is None:
            hint = TOOL_HINT if said in TOOL_ROLES else f"known: {', '.join(ROLES)}"
            raise BadRow(f"unknown role {_quoted(said)}", hint)
        turns.append({"role": role, "content": _text(message[what], what)})
    return turns


def _text(value: Any, name: str) -> str:
    if isinstance(value, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in value):
        value = "".join(str(p.get("text", "")) for p in value)
    if not isinstance(value, str):
        kind = "empty" if value is None else f"a {type(value).__name__}, not text"
        raise BadRow(f"field '{name}' is {kind}")
    if not value.strip():
        raise BadRow(f"field '{name}' is empty")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRow(
            f"field '{name}' holds half a surrogate pair", "an escape such as \\ud83d without its second half"
        ) from None
    return value


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{text[:40]}'"
