"""Where the running mxt comes from: what a new workspace's wrapper can fetch again elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Origin:
    """url, commit: what to clone; "" where there is nothing that another machine could reach.

    doubt: why a colleague could fail to get the same mxt, for people; "" where all is well.
    """

    url: str = ""
    commit: str = ""
    doubt: str = ""


def origin(checkout: Path = CHECKOUT) -> Origin:
    """The remote and commit of a checkout. Runs git, waits for no network."""
    commit = _git(checkout, "rev-parse", "HEAD")
    # an exported copy inside of somebody's repository has that repository's commit
    top = _git(checkout, "rev-parse", "--show-toplevel")
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit) or os.path.realpath(top) != os.path.realpath(checkout):
        return Origin(doubt="mxtw cannot say where to fetch mxt: this one is no git checkout")
    url = portable(_git(checkout, "remote", "get-url", "origin"))
    if not url:
        return Origin(doubt="mxtw cannot say where to fetch mxt: no 'origin' that others can reach")
    if _git(checkout, "status", "--porcelain", "--untracked-files=no"):
        doubt = "mxtw will fetch mxt without your changes that are not committed"
    elif not _git(checkout, "branch", "--remotes", "--contains", commit):
        doubt = f"the commit {commit[:12]} of this mxt seems not to be pushed to {url} yet"
    else:
        doubt = ""
    return Origin(url, commit, doubt)


def portable(url: str) -> str:
    """The address without a name or password in it; "" for a place on this machine."""
    if not url or any(c.isspace() or not c.isprintable() for c in url):
        return ""
    match = re.fullmatch(r"(https?|ssh|git)://(?:([^/@]*)@)?(.+)", url)
    if match:
        scheme, user, rest = match.groups()
        # over ssh the user is part of the address, as git@host; a password never is
        keep = f"{user.partition(':')[0]}@" if user and scheme == "ssh" else ""
        return f"{scheme}://{keep}{rest}"
    # host:path, git's short form for ssh, and no path of this machine
    return url if re.fullmatch(r"(?:[\w.-]+@)?[\w.-]+:(?!//).+", url) else ""


def _git(checkout: Path, *args: str) -> str:
    """What git prints, or "" where it fails or is not there."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *args],
            capture_output=True,
            text=True,
            timeout=20,
            env=env,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
