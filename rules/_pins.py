"""What `mxt pin` asks about a recipe, and the Hub's answers: commits, files of patterns, a model's code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from mxt.errors import did_you_mean
from mxt.pins import Answer, Loose
from mxt.rule import StageError
from rules._pieces import COMPRESSED, OTHER
from rules._revisions import UNPINNED, is_commit, is_pattern, matching

BRANCH = "main"  # what 'unpinned' means
Note = Callable[[tuple[str, ...]], "str | None"]


@dataclass(frozen=True)
class Revision:
    """Which commit does a name mean?"""

    kind: str
    repo: str
    name: str


@dataclass(frozen=True)
class Files:
    """Which files of a dataset do names and patterns mean, at a revision?"""

    repo: str
    name: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Which Python files come with a model? before: the commit at which they were trusted, if they were."""

    repo: str
    name: str
    before: str = ""


@dataclass(frozen=True)
class FolderCode:
    """The same for a folder of the package."""

    folder: str


def loose(recipe: Mapping[str, Any], note: Note, folder: Path) -> list[Loose]:
    """What of a recipe can be pinned, or moved where a note tells its name. folder: the recipe's package."""
    found: list[Loose] = []

    def revision(kind: str, repo: str, value: str, *path: str) -> str:
        """The name by which a repository is looked at; its commit where that stays."""
        told = note(path)
        name = _name(value, told)
        if name:
            found.append(Loose(path, Revision(kind, repo, name)))
        elif told is not None:
            found.append(Loose(path, None, firm=True))
        return name or value

    model, data = recipe["model"], recipe["data"] or {}
    trusted = model["trust_remote_code"]
    if model["hub"]:
        hub = model["hub"]
        name = revision("model", hub["repo"], hub["revision"], "model", "hub", "revision")
        if trusted == UNPINNED:
            found.append(Loose(("model", "trust_remote_code"), Code(hub["repo"], name)))
        elif re.fullmatch("[0-9a-f]{64}", trusted or "") and name != hub["revision"]:
            code = ("model", "trust_remote_code")
            before = hub["revision"] if is_commit(hub["revision"]) else ""
            found.append(Loose(code, Code(hub["repo"], name, before)))
            # moved alone, it would bring code that nobody has read, and not build
            found[0] = replace(found[0], goes_with=code)
    elif model["path"] and trusted == UNPINNED:
        found.append(Loose(("model", "trust_remote_code"), FolderCode(str(folder / model["path"]))))
    if data.get("hub"):
        hub = data["hub"]
        name = revision("dataset", hub["repo"], hub["revision"], "data", "hub", "revision")
        listed = ("data", "hub", "files")
        files = _patterns(note(listed)) or tuple(hub["files"])
        if name != hub["revision"] or any(map(is_pattern, files)):
            firm = not any(map(is_pattern, hub["files"]))
            found.append(Loose(listed, Files(hub["repo"], name, files), firm))
    semantic = (data.get("dedupe") or {}).get("semdedup")
    if semantic:
        embedding = ("data", "dedupe", "semdedup", "revision")
        revision("model", semantic["repo"], semantic["revision"], *embedding)
    for repo, commit in ((recipe["eval"] or {}).get("revisions") or {}).items():
        revision("dataset", repo, commit, "eval", "revisions", repo)
    rlhf = (recipe["train"] or {}).get("rlhf")
    if rlhf:
        reward = ("train", "rlhf", "reward_revision")
        revision("model", rlhf["reward_repo"], rlhf["reward_revision"], *reward)
    return found


def _name(value: str, note: str | None) -> str | None:
    """By which name a revision is to be looked up; None for a commit that stays."""
    if not is_commit(value):
        return BRANCH if value == UNPINNED else value
    told = re.fullmatch(r"(\S+) on \d{4}-\d\d-\d\d", note or "")
    return told[1] if told else None


def _patterns(note: str | None) -> tuple[str, ...]:
    """The patterns that a list of files came from."""
    words = (note or "").split()
    return tuple(words[1:]) if words[:1] == ["from"] and any(map(is_pattern, words)) else ()


def look_up(environ: Mapping[str, str]) -> Callable[[Any], Answer]:
    """A function that asks the Hub (HF_ENDPOINT, HF_TOKEN), each repository once."""
    return _Hub(environ).answer


class _Hub:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._infos: dict[tuple[str, str, str], Any] = {}
        self._unreachable: StageError | None = None
        self._today = datetime.now(UTC).date().isoformat()

    def answer(self, question: Any) -> Answer:
        """Raises StageError where the Hub does not know, does not say, or cannot be reached."""
        if isinstance(question, Revision):
            info = self._info(question.kind, question.repo, question.name)
            note = f"{question.name} on {self._today}"
            return Answer(info.sha, note, about=f"{question.name} of {question.repo}")
        if isinstance(question, Files):
            return self._files(question)
        if isinstance(question, Code):
            return self._code(question)
        return _folder_code(Path(question.folder))

    def _info(self, kind: str, repo: str, name: str) -> Any:
        """What the Hub tells of a repository at a revision: its commit and the names of its files."""
        from rules._hub import UnreachableError, explained, files_of, prepare_client

        key = (kind, repo, name)
        if key in self._infos:
            return self._infos[key]
        if self._unreachable:
            raise self._unreachable  # the same for all: said once
        if find_spec("huggingface_hub") is None:
            self._unreachable = StageError(
                "huggingface_hub is not installed here", hint="run mxt by ./mxtw, whose environment has it"
            )
            raise self._unreachable
        prepare_client()
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

        try:
            with explained(kind, repo, name, "pin on a machine with a network, or write commits by hand"):
                api = HfApi(token=self._environ.get("HF_TOKEN") or False)
                info = api.repo_info(repo, revision=name, repo_type=kind, timeout=20)
                if getattr(info, "gated", False):  # it tells its commit to all, and gives its files to few
                    try:
                        api.auth_check(repo, repo_type=kind)
                    except GatedRepoError:
                        raise
                    except HfHubHTTPError:
                        pass  # a mirror that knows no such question
        except UnreachableError as error:
            self._unreachable = error
            raise
        files_of(info, repo)
        if not is_commit(str(info.sha)):
            raise StageError(f"the Hub names no commit of {kind} '{repo}' at {name}, but {info.sha!r}")
        self._infos[key] = info
        return info

    def _files(self, question: Files) -> Answer:
        info = self._info("dataset", question.repo, question.name)
        there = [s.rfilename for s in info.siblings or ()]
        plain = {f for f in question.files if not is_pattern(f)}
        chosen: dict[str, None] = {}
        left_out: dict[str, None] = {}
        for file in question.files:
            if file in plain:
                if file not in there:
                    raise StageError(
                        f"dataset '{question.repo}' has no file '{file}' at {question.name}"
                        f"{did_you_mean(file, there)}"
                    )
                chosen[file] = None
                continue
            found = [n for n in matching(file, there) if n not in plain]
            if not found:
                some = ", ".join(n for n in there if n.endswith((".parquet", ".jsonl", ".json")))
                raise StageError(
                    f"dataset '{question.repo}' has no file like '{file}' at {question.name}",
                    hint=f"it has {some[:300]}" if some else "it has neither Parquet nor JSONL files",
                )
            read = [n for n in found if _holds_rows(n)]
            if not read:
                raise StageError(
                    f"of dataset '{question.repo}', '{file}' means {_some(found)} at {question.name}, "
                    "which is not read",
                    hint="Parquet and JSONL are; of most datasets the Hub keeps Parquet at the revision "
                    "refs/convert/parquet",
                )
            chosen.update(dict.fromkeys(read))
            left_out.update(dict.fromkeys(n for n in found if n not in read))
        for name in chosen:
            if name not in plain and is_pattern(name):
                raise StageError(
                    f"dataset '{question.repo}' has the file '{name}' at {question.name}, whose name would "
                    "be taken for a pattern again",
                    hint="such a file cannot be named: write patterns that leave it out",
                )
        patterned = len(plain) < len(question.files)
        simple = not any(" " in f for f in question.files)
        note = f"from {' '.join(question.files)}" if patterned and simple else ""
        without = f", without {_some([*left_out])}: not read" if left_out else ""
        return Answer(tuple(chosen), note, about=f"of {question.repo}{without}")

    def _code(self, question: Code) -> Answer:
        import tempfile

        from mxt.words import plural
        from rules._code import digest_of, digests_of, foreign, is_code
        from rules._hub import download

        with tempfile.TemporaryDirectory(prefix="mxt-pin-") as place:
            folder = Path(place)

            def fetched(name: str) -> tuple[str, dict[str, Path]]:
                info = self._info("model", question.repo, name)
                names = [s.rfilename for s in info.siblings or ()]
                wanted = [n for n in names if is_code(n) or n in ("config.json", "tokenizer_config.json")]
                token = self._environ.get("HF_TOKEN") or False
                files = download("model", question.repo, info.sha, wanted, folder / info.sha, token)
                return info.sha, {n: p for n, p in files.items() if is_code(n)}

            commit, files = fetched(question.name)
            others = foreign(folder / commit)
            if others:
                raise StageError(
                    f"model '{question.repo}' wants code of another repository: {', '.join(others)}",
                    hint="copy the model with all its code into the package, and name it in model.path",
                )
            if not files:
                raise StageError(
                    f"model '{question.repo}' comes with no code of its own",
                    hint="leave model.trust_remote_code out",
                )
            earlier = digests_of(fetched(question.before)[1]) if question.before else None
            digests = digests_of(files)
            sizes = {n: p.stat().st_size for n, p in files.items()}
            endpoint = (self._environ.get("HF_ENDPOINT") or "https://huggingface.co").rpartition("@")[2]
            where = f"{endpoint if '//' in endpoint else '//' + endpoint}/{question.repo}/tree/{commit}"
            lines = (*_code_lines(digests, sizes, earlier), f"to be read at {where}")
        return Answer(
            digest_of(digests), f"{plural(len(digests), 'file')}, trusted on {self._today}", "", lines
        )


def _holds_rows(name: str) -> bool:
    """Whether a file that a pattern matched can be one that it was meant for."""
    ending = PurePosixPath(name).suffix.lower()
    return not (ending in COMPRESSED or ending in OTHER or PurePosixPath(name).name.startswith("."))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _folder_code(folder: Path) -> Answer:
    from mxt.words import plural
    from rules._code import code_files, digest_of, digests_of

    files = code_files(folder) if folder.is_dir() else {}
    if not files:
        raise StageError(
            "there is no code in this folder" if folder.is_dir() else "there is no such folder",
            where=folder.name,
            hint="leave model.trust_remote_code out" if folder.is_dir() else "see model.path",
        )
    digests = digests_of(files)
    sizes = {n: p.stat().st_size for n, p in files.items()}
    today = datetime.now(UTC).date().isoformat()
    return Answer(
        digest_of(digests),
        f"{plural(len(digests), 'file')}, trusted on {today}",
        "",
        _code_lines(digests, sizes, None),
    )


def _code_lines(
    digests: Mapping[str, str], sizes: Mapping[str, int], earlier: Mapping[str, str] | None
) -> tuple[str, ...]:
    """A line a file: its size, digest and name, and what became of it since the code was trusted."""
    from mxt.words import size

    lines = []
    for name in sorted({*digests, *(earlier or {})}, key=lambda n: n.encode()):
        if name not in digests:
            lines.append(f"removed  {name}")
            continue
        state = "" if earlier is None else "same     " if earlier.get(name) == digests[name] else "changed  "
        if earlier is not None and name not in earlier:
            state = "new      "
        lines.append(f"{state}{size(sizes[name]):>9}  {digests[name]}  {name}")
    return tuple(lines)
