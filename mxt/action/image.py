"""A container image as a toolchain: how it is declared, and what of it stands in a key."""

from __future__ import annotations

import re
from typing import NamedTuple

UNPINNED = "unpinned"
ARCHITECTURES = ("amd64", "arm64")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_DEFAULT = "docker.io"
_NAME = re.compile(r"[a-z0-9][a-z0-9._/:-]*\Z")


class Image(NamedTuple):
    """label: the toolchain's. name: where the image comes from, such as "rocm/primus:v26.2"; in no key.

    digest: "sha256:<64 hex>" or "unpinned". arch: the processor that it is for, as registries write it.
    where: its place in an MXTBUILD.
    """

    label: str
    name: str
    digest: str
    arch: str = "amd64"
    where: str = ""

    @property
    def pinned(self) -> bool:
        return self.digest != UNPINNED

    @property
    def key(self) -> str:
        """What stands for it in an action's key: the bytes it consists of, not the name they came under.

        The architecture is part of it, as a digest may be that of a list with an image for each. Without a
        pin it says so: such keys can be shown, and nothing is ever recorded under them.
        """
        if not self.pinned:
            return f"linux/{self.arch}@{UNPINNED}:{self.name}"
        return f"linux/{self.arch}@{self.digest}"

    @property
    def registry(self) -> str:
        """The host that its name begins with. Names without one have always meant docker.io."""
        first, slash, _ = self.name.partition("/")
        return first if slash and (first == "localhost" or "." in first or ":" in first) else _DEFAULT

    @property
    def repository(self) -> str:
        """The name without host and tag, as the registry knows it."""
        path = self.name.removeprefix(f"{self.registry}/")
        head, slash, last = path.rpartition("/")
        path = f"{head}{slash}{last.partition(':')[0]}"
        return f"library/{path}" if self.registry == _DEFAULT and "/" not in path else path

    @property
    def tag(self) -> str:
        return self.name.rpartition("/")[2].partition(":")[2] or "latest"

    @property
    def reference(self) -> str:
        """What to pull: exactly this image, whatever its tag has come to mean."""
        return f"{self.registry}/{self.repository}@{self.digest}"


def problem_of_digest(text: str) -> str:
    """Why a declared digest cannot be one; "" where it can."""
    if text == UNPINNED or _DIGEST.match(text):
        return ""
    return f"'{text:.80}' is not the digest of an image: sha256: and 64 lower hexadecimal characters"


def problem_of_name(text: str) -> str:
    """Why a declared image cannot be the name of one; "" where it can."""
    if "@" in text:
        return f"'{text:.120}' has a digest in its name: write it as digest = ..."
    if not _NAME.match(text) or "//" in text or text.endswith(("/", ":")):
        return f"'{text:.120}' is not the name of an image, such as rocm/primus:v26.2"
    return ""
