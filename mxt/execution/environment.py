"""Before an action runs: is this machine its platform, and is this environment its toolchain?

Each is checked once a build. Keys never come here; they read the declaration and the lock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxt.action.action import Action
from mxt.errors import ToolchainError
from mxt.execution.prepare import Code, engine_folder, site_packages
from mxt.execution.sandbox import SITE_ROOT
from mxt.loading.rule_modules import PRIVATE_PACKAGE

if TYPE_CHECKING:
    from mxt.action.image import Image
    from mxt.execution.image_look import Container


class Environments:
    """Checks toolchains and platforms of a build, and says where stages find their code.

    toolchains: digest -> workspace path of the lock. images: the toolchains that are container images, by
    what stands for them in keys. platforms: digest -> declared properties.
    folder: where views of environments are kept, below the store. own_rules: for each of the workspace's
    rules its files, as they were trusted and keyed. note: takes a line about slow work.
    """

    def __init__(
        self,
        root: Path,
        folder: Path,
        toolchains: Mapping[str, str],
        platforms: Mapping[str, Mapping[str, Any]],
        own_rules: Mapping[str, Mapping[str, bytes]],
        note: Callable[[str], None] = lambda _: None,
        *,
        images: Mapping[str, Image] | None = None,
    ) -> None:
        self._root = root
        self._folder = folder
        self._toolchains = toolchains
        self._platforms = platforms
        self._own_rules = own_rules
        self._note = note
        self._images = images or {}
        self._containers: dict[str, Container] = {}
        self._codes: dict[tuple[str | None, str], Code] = {}
        self._private = Path(f"{folder}.{os.getpid()}.{os.urandom(4).hex()}")
        self._checked: set[str] = set()

    def platform(self, action: Action) -> Mapping[str, Any]:
        """The declared properties; {} where an action declares no platform.

        Raises PlatformError where this machine is another.
        """
        if action.platform is None:
            return {}
        properties = self._platforms[action.platform]
        if action.platform not in self._checked:
            from mxt.action.platform import check_machine

            check_machine(properties)
            self._checked.add(action.platform)
        return properties

    def code(self, action: Action) -> Code | None:
        """Where a Python stage finds its modules; None for a genrule.

        Raises ToolchainError listing every distribution that differs from the lock.
        """
        if action.entry == "genrule":
            return None
        package, _, rule = action.entry.partition(":")[0].partition(".")
        own = rule if package == PRIVATE_PACKAGE else ""
        code = self._codes.get((action.toolchain, own))
        if code is None:
            code = self._codes[(action.toolchain, own)] = self._make(action.toolchain, own)
        return code

    def container(self, action: Action) -> Container | None:
        """What runs the action's image; None where its toolchain is none.

        Raises ToolchainError where that is not pinned, not here, or cannot be run.
        """
        image = self._images.get(action.toolchain or "")
        if image is None:
            return None
        from mxt.execution.image_look import container
        from mxt.execution.owner import remove_forgotten, store_mark

        stage = action.entry != "genrule"
        found = container(image, python=stage, bash=not stage)
        if image.key not in self._containers:
            if not self._containers and (count := remove_forgotten(found.engine, store_mark(self._folder))):
                self._note(f"removed {count} container{'s' if count > 1 else ''} that a killed mxt had left")
            self._containers[image.key] = found
        return found

    def close(self) -> None:
        shutil.rmtree(self._private, ignore_errors=True)

    def _own(self, rule: str) -> str | None:
        """A folder with exactly the files of a workspace's rule: the bytes that were trusted and keyed.

        What lies in the workspace may have been edited since, and may hold files that no key knows.
        """
        if not rule:
            return None
        home = self._private / rule
        for path, data in self._own_rules[rule].items():
            file = home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return str(home / "rules")

    def _make(self, toolchain: str | None, rule: str) -> Code:
        site = os.path.realpath(site_packages())
        engine = engine_folder()
        own = self._own(rule)
        if toolchain in self._images:  # its packages are the image's own
            return Code("", "", [], engine, engine, own)
        if toolchain is None:
            inside = f"{SITE_ROOT}/packages"
            return Code(site, inside, [(site, inside)], engine, engine, own)
        from mxt.action.site_view import site_view
        from mxt.action.toolchain import mismatch, read_lock
        from mxt.action.toolchain_check import Depth, check, memory_of

        shown = self._toolchains[toolchain]
        lock = read_lock(self._root / shown, shown)
        if lock.digest != toolchain:
            raise ToolchainError("the lock changed during the build", where=shown, hint="build again")
        self._folder.mkdir(parents=True, exist_ok=True)
        began, told = time.monotonic(), False

        def progress(_: int, total: int) -> None:
            nonlocal told
            if not told and time.monotonic() - began > 1.5:
                told = True
                self._note(
                    f"reading {total} distributions to check them against {shown}; once for each change"
                )

        memory = memory_of(Path(site))
        differences = check(lock, Path(site), state=memory, depth=Depth.FILES, progress=progress)
        if differences:
            raise mismatch(lock, differences)
        view = site_view(lock, Path(site), self._folder)
        mounts = [
            (str(view.folder), f"{SITE_ROOT}/view"),
            (os.path.realpath(view.packages), f"{SITE_ROOT}/packages"),
        ]
        return Code(str(view.folder), f"{SITE_ROOT}/view", mounts, engine, engine, own)
