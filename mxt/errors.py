"""Every error that mxt shows, as one tree; each says what, where, and what to do.

MxtError                  exit 1  (the build failed)
├── UsageError            exit 2  (command line, workspace, configuration)
├── LoadError             exit 1  (MXTBUILD, .mxt, recipe: has file:line:column)
├── GraphError            exit 1  (missing label, cycle, colliding outputs)
├── StoreError            exit 1  (disk full, read-only, damaged beyond repair)
├── ToolchainError        exit 1  (environment differs from its lock)
├── PlatformError         exit 1  (this machine is not the declared device)
├── RefusedError          exit 1  (a stage that cannot be carried out as it stands, on any machine)
├── ActionError           exit 1  (a command or stage failed)
└── StageError            exit 1  (raised by a stage's own code: bad data, bad settings)
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_BUILD = 1
EXIT_USAGE = 2
EXIT_TESTS = 3
EXIT_INTERRUPTED = 8


class MxtError(Exception):
    """A fact in lower case, the place it concerns, and the way out.

    message: what is wrong, in one sentence without a full stop.
    where: "file:line:column", a label or a path; empty where there is none.
    hint: what to do next; empty where the message already says so.
    excerpt: lines of the source with a caret, shown as they are.
    """

    exit_code = EXIT_BUILD

    def __init__(self, message: str, *, where: str = "", hint: str = "", excerpt: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.excerpt = excerpt

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        parts = [head]
        if self.excerpt:
            parts.append(self.excerpt)
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)


class UsageError(MxtError):
    """The command line, the workspace or the configuration is at fault."""

    exit_code = EXIT_USAGE


class LoadError(MxtError):
    """An MXTBUILD, .mxt or recipe file is at fault."""


class GraphError(MxtError):
    """Targets do not fit together."""


class StoreError(MxtError):
    """The store cannot do what it must."""


class ToolchainError(MxtError):
    """The environment differs from its committed lock."""


class PlatformError(MxtError):
    """This machine is not the declared platform."""


class RefusedError(MxtError):
    """An action that is declared and cannot be executed anywhere as it stands."""


class ActionError(MxtError):
    """An action failed."""


class StageError(MxtError):
    """Raised by a stage's own code: shown as it is, without a traceback."""


def did_you_mean(word: str, choices: object) -> str:
    """ ", did you mean 'x'?" for the nearest of choices, or "" if none is near."""
    import difflib

    near = difflib.get_close_matches(word, [str(c) for c in choices], n=1, cutoff=0.6)  # type: ignore[attr-defined]
    return f", did you mean '{near[0]}'?" if near else ""
