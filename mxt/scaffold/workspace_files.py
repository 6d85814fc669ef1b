"""The files that every new workspace has, whatever it builds: wrapper, CI, .gitignore."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path

from mxt.scaffold.origin import Origin

FILES = Path(__file__).parent / "files"
CI = {
    "github": {".ci/run": "ci-run", ".github/workflows/mxt.yml": "github.yml"},
    "gitlab": {".ci/run": "ci-run", ".gitlab-ci.yml": "gitlab.yml"},
    "none": {},
}
EXECUTABLE = frozenset({"mxtw", ".ci/run"})
# a package's wildcards cannot be targets, and the folders of a store no names
_TAKEN = frozenset({"all", "all-targets", "data"})


def target_name(folder: str) -> str:
    """What a folder of this name calls its target: letters, digits and "_", any script, in lower case."""
    text = unicodedata.normalize("NFC", folder).lower()
    name = re.sub(r"[^\w]+", "_", text).strip("_")[:60]
    return "main" if not name else f"{name}_" if name in _TAKEN else name


def common_files(name: str, ci: str, origin: Origin, *, tested: bool) -> dict[str, str]:
    """Path -> text. name: of the target. ci: a key of CI. tested: it has a test."""
    words = {
        "@NAME@": name,
        "@URL@": shlex.quote(origin.url),
        "@COMMIT@": shlex.quote(origin.commit),
    }
    sources = {"mxtw": "mxtw", ".gitignore": "gitignore", **CI[ci]}
    found = {}
    for path, source in sources.items():
        text = (FILES / source).read_text("utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        if not tested:
            text = re.sub(r"(?m)^\./mxtw test .*\n", "", text)
        found[path] = text
    return found
