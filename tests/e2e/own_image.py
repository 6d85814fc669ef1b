"""A container image made of this machine's own bash, Python and a few commands: small, and built without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

_COMMANDS = ("bash", "cat", "id", "ls", "mkdir", "rm", "sleep", "touch")
# what a stage's imports do without
_LEFT_OUT = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "*.a",
)


def make_root(folder: Path, *, python: bool = True) -> Path:
    """A root file system below an empty folder."""
    binaries = [
        (os.path.realpath(found), f"/usr/bin/{name}") for name in _COMMANDS if (found := shutil.which(name))
    ]
    if python:
        binaries.append((os.path.realpath(sys.executable), "/usr/bin/python3"))
        library = sysconfig.get_path("stdlib")
        target = folder / f"usr/lib/{Path(library).name}"
        shutil.copytree(
            library, target, ignore=shutil.ignore_patterns(*_LEFT_OUT), ignore_dangling_symlinks=True
        )
    for place, inside in binaries:
        _put(folder, place, inside)
    extensions = (str(p) for p in folder.rglob("*.so"))
    for path in _libraries([place for place, _ in binaries] + list(extensions)):
        _put(folder, os.path.realpath(path), path)
    for locale in Path("/usr/lib/locale").glob("C.utf8"):
        shutil.copytree(locale, folder / "usr/lib/locale/C.utf8")
    for name in ("dev", "etc", "proc", "sys", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return folder


def import_image(podman: str, root: Path, name: str) -> str:
    """Give a root file system to podman as an image; the image's digest."""
    command = [podman, "import", "--quiet", "--change", "ENV PATH=/usr/bin"]
    with subprocess.Popen(
        [*command, "--change", "ENV OF_THE_IMAGE=yes", "-", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            archive.add(root, ".", filter=_owned_by_root)
    assert process.returncode == 0, f"podman import failed with {process.returncode}"
    inspect = [podman, "image", "inspect", "--format", "{{.Digest}}", name]
    return subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip()


def _put(folder: Path, place: str, inside: str) -> None:
    target = folder / inside.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place, target)


def _libraries(binaries: Iterable[str]) -> list[str]:
    """The shared libraries that these load, by the paths at which they look for them."""
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE)))


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
