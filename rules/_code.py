"""Python files that come with a model: which they are, their digest, and whether they may run here.

The digest in model.trust_remote_code is the BLAKE3 of a list that ordinary tools make as well:

    find . -name '*.py' -printf '%P\\n' | LC_ALL=C sort | xargs -d '\\n' b3sum | b3sum
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mxt.rule import Refusal, StageError
from rules._revisions import IGNORE, UNPINNED

# where a model may name classes of its own
CONFIGS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
FIELD = "model.trust_remote_code"
HINT = (
    f"set {FIELD}: {UNPINNED} and run 'mxt pin RECIPE', which shows the code and how to trust it; or, if "
    f"transformers has this model's class itself, {FIELD}: {IGNORE}"
)


def code_files(folder: Path) -> dict[str, Path]:
    """The Python files of a folder and all folders below, by their names from there, sorted as bytes.

    Links are followed: what can be imported counts. Raises StageError for a name that would make two lines of
    the list that is hashed.
    """
    found: dict[str, Path] = {}
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads upwards
            folders.clear()
            continue
        seen.add(real)
        for name in filter(is_code, names):
            path = Path(place, name)
            shown = path.relative_to(folder).as_posix()
            if not shown.isprintable():
                raise StageError(f"a Python file has a name that no file may have: {shown!r}")
            found[shown] = path
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


def is_code(name: str) -> bool:
    return name.endswith(".py")


def digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    from blake3 import blake3

    return {name: blake3(path.read_bytes()).hexdigest() for name, path in files.items()}


def digest_of(digests: Mapping[str, str]) -> str:
    """The one digest that stands for all files."""
    from blake3 import blake3

    ordered = sorted(digests, key=lambda name: name.encode())
    return blake3("".join(f"{digests[n]}  {n}\n" for n in ordered).encode()).hexdigest()


def own_classes(folder: Path) -> list[str]:
    """What the folder's configuration wants to have imported, such as "modeling_x.XForCausalLM"."""
    found: dict[str, None] = {}
    for name in CONFIGS:
        path = folder / name
        if path.is_file():
            try:
                config = json.loads(path.read_text(encoding="utf-8"))
            except (ValueError, OSError):
                continue  # whoever reads it says so
            wanted = config.get("auto_map") if isinstance(config, dict) else None
            found.update(dict.fromkeys(_texts(wanted)))
    return list(found)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def foreign(folder: Path) -> list[str]:
    """Other repositories whose code the model wants."""
    return sorted({name.partition("--")[0] for name in own_classes(folder) if "--" in name})


def refuse_unknown(names: Iterable[str], trusted: str | None, model: str) -> None:
    """Raises StageError where files are code that nobody has trusted. names: the model's files."""
    code = [n for n in names if is_code(n)]
    if code and trusted is None:
        raise StageError(f"{model} comes with code of its own: {_listed(code)}", hint=HINT)


def may_run(folder: Path, trusted: str | None, model: str = "") -> bool:
    """Whether the folder's own code may be imported: all of it has the digest that the recipe trusts.

    trusted: model.trust_remote_code. model: what to call it in errors. Raises StageError for code that is
    not trusted, or is not the code that was.
    """
    model = model or f"model folder '{folder.name}'"
    if trusted == IGNORE:
        return False
    files = code_files(folder)
    classes = own_classes(folder)
    if trusted is None:
        refuse_unknown(files, trusted, model)
        if classes:
            raise StageError(f"{model} wants code of its own: {_listed(classes)}", hint=HINT)
        return False
    if trusted == UNPINNED:
        raise StageError(f"{FIELD} is not pinned", hint="read the model's code: mxt pin RECIPE shows which")
    others = foreign(folder)
    if others:
        raise StageError(
            f"{model} wants code of another repository: {_listed(others)}",
            hint="copy its files into the model's folder, and name them without 'owner/name--' in auto_map",
        )
    if not files:
        raise StageError(f"{model} comes with no code of its own", hint=f"leave {FIELD} out")
    digests = digests_of(files)
    found = digest_of(digests)
    if found != trusted:
        listed = "\n".join(f"    {digest}  {name}" for name, digest in digests.items())
        raise StageError(
            f"the code of {model} is not what {FIELD} trusts: its digest is {found}, not {trusted}",
            hint="compare with what 'mxt pin' showed when it was trusted, read what differs, pin it again",
            excerpt=listed,
        )
    return True


def register(folder: Path) -> None:
    """Let transformers find the classes of a folder whose code may run, for what is made from sizes alone."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = config.get("auto_map") or {}
    if "AutoConfig" in names:
        settings = get_class_from_dynamic_module(names["AutoConfig"], folder, local_files_only=True)
        AutoConfig.register(config["model_type"], settings, exist_ok=True)
    else:
        settings = type(AutoConfig.for_model(config["model_type"]))
    if "AutoModelForCausalLM" in names:
        model = get_class_from_dynamic_module(names["AutoModelForCausalLM"], folder, local_files_only=True)
        AutoModelForCausalLM.register(settings, model, exist_ok=True)


def not_pinned(config: Mapping[str, Any]) -> Refusal | None:
    """A refusal where somebody still has to read the code."""
    if config[FIELD] != UNPINNED:
        return None
    return Refusal(
        "unpinned",
        f"{FIELD} is not pinned",
        "'mxt pin RECIPE' shows the code; --trust-code writes its digest",
    )


def _listed(names: Iterable[str], most: int = 5) -> str:
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
