"""mxt toolchain pin: which image does a tag stand for now? Shown, and with --write put into the MXTBUILD."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

from mxt.action.image import UNPINNED, Image, problem_of_name
from mxt.cli.call_text import UnplacedError, with_argument
from mxt.errors import EXIT_OK, LoadError, ToolchainError, UsageError


def pin(args: Namespace) -> int:
    for option, given in (("--lock", args.lock), ("--from", args.pins), ("--contents", args.contents)):
        if given:
            raise UsageError(f"{option} does not go with 'pin'", hint="mxt toolchain pin LABEL --write")
    root, images = _images(args)
    for image in images:
        digest = _digest(image, local=args.local)
        if digest == image.digest:
            print(f"{image.label}: up to date, {image.name} is {digest}")
            continue
        print(f"{image.label}: {image.name} for linux/{image.arch}\n  {image.digest} -> {digest}")
        path = image.where.rpartition(":")[0].rpartition(":")[0]
        if args.write:
            _write(root, path, image, digest)
            old = "; results made under the old digest are not found under this one" if image.pinned else ""
            print(f"{path}: written{old}")
        else:
            print(f"{path}: would change; write it with --write")
    return EXIT_OK


def _digest(image: Image, *, local: bool) -> str:
    if local:
        from mxt.execution.engine import find_engine, local_digest

        return local_digest(find_engine(), image)
    from mxt.action.registry import remote_digest

    return remote_digest(image)


def _images(args: Namespace) -> tuple[Path, list[Image]]:
    from mxt.cli.session import Session
    from mxt.graph.core_rules import check_attributes

    session = Session(args)
    found = []
    for label in session.resolve(args.labels or ["//:all"]):
        package, _, name = label.removeprefix("//").partition(":")
        raw = session.package(package).targets.get(name)
        if raw is None:
            raise UsageError(f"there is no target '{label}'", where=f"{package}/MXTBUILD".lstrip("/"))
        if raw.rule == "toolchain" and "image" in raw.attrs:
            check_attributes(raw.rule, name, raw.attrs, raw.where)
            found.append(_image(label, raw))
        elif args.labels:
            what = "a toolchain with a lock" if raw.rule == "toolchain" else f"a {raw.rule}"
            raise UsageError(
                f"'{label}' is {what}, not a container image",
                where=raw.where,
                hint="'mxt toolchain lock' writes locks; 'pin' is for images",
            )
    if not found:
        raise UsageError(
            "the root package declares no toolchain that is an image",
            hint="name one: mxt toolchain pin LABEL",
        )
    return session.root, found


def _image(label: str, raw: Any) -> Image:
    """As it is declared; a digest that cannot be one is no hindrance, as it is about to be replaced."""
    name = raw.attrs["image"]
    if problem := problem_of_name(name):
        raise LoadError(f"toolchain '{raw.name}': {problem}", where=raw.where)
    return Image(label, name, raw.attrs.get("digest", UNPINNED), raw.attrs.get("arch", "amd64"), raw.where)


def _write(root: Path, path: str, image: Image, digest: str) -> None:
    """Change the one string, and nothing else of the file."""
    line, column = (int(n) for n in image.where.split(":")[-2:])
    file = Path(os.path.realpath(root / path))
    try:
        source = file.read_bytes().decode()
        changed = with_argument(source, line, column, "digest", digest, after="image")
    except (UnplacedError, UnicodeDecodeError) as problem:
        raise ToolchainError(
            f"cannot tell where the digest of '{image.label}' is written: {problem}",
            where=image.where,
            hint=f'write it by hand: digest = "{digest}"',
        ) from None
    aside = file.with_name(f".{file.name}.part")
    try:
        aside.write_bytes(changed.encode())
        shutil.copymode(file, aside)
        aside.replace(file)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ToolchainError(f"cannot write it: {error.strerror}", where=path) from None
