"""Errors for packages that are not there."""

from __future__ import annotations

import os

from mxt.errors import LoadError, did_you_mean
from mxt.loading.label import quoted
from mxt.loading.root import MXTBUILD
from mxt.loading.workspace import Workspace


def missing_package(workspace: Workspace, package: str) -> LoadError:
    """The error for a package that is not there, with the nearest one that is."""
    folder = os.path.join(workspace.root, package)
    shown = f"//{package}"
    if os.path.isdir(folder) and not (package and workspace.excluded(package)):
        return LoadError(
            f"no package {quoted(shown)}: the folder has no {MXTBUILD}", hint="an empty one will do"
        )
    parent, _, last = package.rpartition("/")
    near = ""
    try:
        siblings = [e.name for e in os.scandir(os.path.join(workspace.root, parent)) if e.is_dir()]
        near = did_you_mean(
            last, [n for n in siblings if workspace.is_package(f"{parent}/{n}" if parent else n)]
        )
    except OSError:
        pass
    return LoadError(f"no package {quoted(shown)}{near}")
