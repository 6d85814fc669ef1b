"""What MXT_CONTAINER_ARGS may hold: how this machine starts containers, not what the action in one sees.

An option that sets a variable, mounts a folder or opens a network would be in no key. So of the options for
`run` only those named here are taken; what comes before the verb is the engine's own, but for the few that
reach into containers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mxt.errors import ToolchainError

# all of them take a value
_FOR_RUN = frozenset(
    {
        "annotation",
        "cgroup-parent",
        "cgroups",
        "cpu-period",
        "cpu-quota",
        "cpu-shares",
        "cpus",
        "cpuset-cpus",
        "cpuset-mems",
        "gidmap",
        "group-add",
        "memory",
        "memory-reservation",
        "memory-swap",
        "oom-score-adj",
        "pids-limit",
        "runtime",
        "security-opt",
        "shm-size",
        "stop-timeout",
        "subgidname",
        "subuidname",
        "uidmap",
        "ulimit",
        "userns",
    }
)
_WHY = "the variables, mounts, network and image of an action come from its key alone"
_NOT_BEFORE = ("module", "hooks-dir", "default-mounts-file")


def engine_options(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options before the verb and those for `run`. Raises ToolchainError, saying what is wrong."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ToolchainError(f"MXT_CONTAINER_ARGS cannot be read: {error}") from None
    cut = words.index("--") if "--" in words else len(words)
    before, after = words[:cut], words[cut + 1 :]
    for word in before:
        if word.startswith("--") and _name(word) in _NOT_BEFORE:
            raise ToolchainError(f"MXT_CONTAINER_ARGS holds '--{_name(word)}'", hint=_WHY)
    if before and not before[0].startswith("-"):
        raise ToolchainError(f"MXT_CONTAINER_ARGS begins with '{before[0]}', which is no option")
    for option in _options(after):
        if not option.startswith("--") or option[2:] not in _FOR_RUN:
            hint = f"{_WHY}; these are taken: {', '.join(sorted(_FOR_RUN))}"
            raise ToolchainError(f"MXT_CONTAINER_ARGS gives 'run' '{option}'", hint=hint)
    return tuple(before), tuple(after)


def _options(words: Sequence[str]) -> Iterator[str]:
    """Each option without its value; also what is none, which the engine would take for the image."""
    following = iter(words)
    for word in following:
        if not word.startswith("--"):
            yield word[:2] if word.startswith("-") else word  # a short one may have its value behind it
            continue
        yield f"--{_name(word)}"
        if "=" not in word:
            next(following, None)  # its value


def _name(word: str) -> str:
    return word.removeprefix("--").partition("=")[0]
