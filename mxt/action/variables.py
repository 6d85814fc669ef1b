"""The variables that a platform or an action declares: which of them can reach a process unchanged.

Checked once, at analysis: what a shell, a container engine's file of variables or the kernel would drop,
cut or refuse is said before it is in any key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = "MXT_"
LONGEST = 32768  # bytes of a name and its value; engines read lines of at most twice that


def problem_of(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with the first that cannot be passed on, and the way out; None where all can."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            return (
                f"the variable {_shown(name)} has a name that not every process can be given",
                "use letters, digits and '_', a digit not first",
            )
        if name.startswith(_OWN):
            return f"the variable '{name}' is mxt's own", f"choose a name that does not begin with '{_OWN}'"
        if "\0" in value:
            return f"the variable '{name}' holds a NUL, which no variable can", "leave it out"
        try:
            length = len(name) + len(value.encode())
        except UnicodeEncodeError:
            return f"the variable '{name}' holds text that has no UTF-8 form", "leave that character out"
        if length > LONGEST:
            return (
                f"the variable '{name}' takes {length} bytes, at most {LONGEST} can be passed everywhere",
                "put it into a file that is an input",
            )
    return None


def _shown(name: str) -> str:
    text = ascii(name[:40])
    return text if len(name) <= 40 else f"{text[:-1]}...'"
