"""Downloads files of a Hugging Face Hub repository at a pinned commit, and checks every byte of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mxt.errors import did_you_mean
from mxt.rule import Run, StageError
from rules._revisions import is_commit

# What a download may see of the host's environment; it is in no key. A commit's files are checked against
# the digests that the endpoint lists: huggingface.co is trusted to serve what the commit holds, and so is
# whatever HF_ENDPOINT names. A mirror that lies in both would go unnoticed here.
PASSTHROUGH = (
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_DISABLE_XET",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "HF_HUB_ETAG_TIMEOUT",
)
ACCESS_HINT = "check the name; if it is private or gated, accept its terms on the Hub and set HF_TOKEN"


def fetch(
    run: Run, kind: str, repo: str, revision: str, choose: Callable[[list[str]], Sequence[str]], instead: str
) -> dict[str, Path]:
    """The chosen files by their path in the repository.

    kind: "model" or "dataset". choose: from all paths of the repository the wanted ones. instead:
    what to do without a network. Files already in run.progress are not fetched again. Raises
    StageError for no network, an unknown or gated repository, an unknown commit, wrong bytes.
    """
    _environment()
    from huggingface_hub import HfApi, hf_hub_download

    folder = (run.progress or Path(os.environ["HF_HOME"])) / "files"
    with explained(kind, repo, revision, f"build this target once on a machine with a network; or {instead}"):
        run.report(note=f"asking the Hub for {repo}")
        info: Any = HfApi().repo_info(repo, revision=revision, repo_type=kind, files_metadata=True)
        if info.sha != revision:
            raise StageError(f"the Hub gave commit {info.sha} where {revision} was asked for", where=repo)
        known = files_of(info, repo)
        wanted = list(choose(sorted(known)))
        total = sum(known[name].size or 0 for name in wanted)
        there = sum(known[name].size or 0 for name in wanted if (folder / name).is_file())
        bar = _progress_bar(run, total, there)
        got: dict[str, Path] = {}
        for name in wanted:
            got[name] = Path(
                hf_hub_download(
                    repo, name, revision=revision, repo_type=kind, local_dir=folder, tqdm_class=bar
                )
            )
            check(got[name], known[name], repo)
    return got


def files_of(info: Any, repo: str) -> dict[str, Any]:
    """What the Hub lists, by name. Raises StageError for a name by which a file would land somewhere else."""
    known = {str(s.rfilename): s for s in info.siblings or ()}
    for name in known:
        if not name.isprintable() or any(part in ("", ".", "..") for part in name.split("/")):
            raise StageError(f"the Hub lists a file by a name that no file may have: {name!r}", where=repo)
    return known


def download(
    kind: str, repo: str, commit: str, names: Sequence[str], folder: Path, token: str | bool
) -> dict[str, Path]:
    """A few small files of a commit, by their names. For mxt's own process: `fetch` is for stages."""
    prepare_client()
    from huggingface_hub import HfApi

    with explained(kind, repo, commit, "try again where there is a network"):
        api = HfApi(token=token)
        info: Any = api.repo_info(repo, revision=commit, repo_type=kind, files_metadata=True, timeout=20)
        known = files_of(info, repo)
        got: dict[str, Path] = {}
        for name in names:
            got[name] = Path(
                api.hf_hub_download(repo, name, revision=commit, repo_type=kind, local_dir=folder)
            )
            check(got[name], known[name], repo)
    return got


def choose_listed(files: Sequence[str], repo: str) -> Callable[[list[str]], Sequence[str]]:
    """For `fetch`: exactly these files. Raises StageError for one that the repository lacks."""

    def choose(known: list[str]) -> Sequence[str]:
        for name in files:
            if name not in known:
                raise StageError(f"'{repo}' has no file '{name}' at this commit{did_you_mean(name, known)}")
        return files

    return choose


def place(got: Path, target: Path) -> None:
    """Move a downloaded file to where the stage declared it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(got, target)
    target.chmod(0o644)


def check(path: Path, sibling: Any, repo: str) -> None:
    """Raises StageError, after removing the file, where its bytes are not what the commit names."""
    size = path.stat().st_size
    if sibling.lfs is not None:
        wanted, digest = sibling.lfs.sha256, hashlib.sha256()
    else:  # git names a file by this
        wanted, digest = sibling.blob_id, hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if wanted is not None and digest.hexdigest() != wanted:
        path.unlink()
        raise StageError(
            f"'{sibling.rfilename}' came with other bytes than its commit names",
            where=repo,
            hint="build again; if it stays so, something between here and the Hub alters files",
        )


def _environment() -> None:
    import tempfile

    home = Path(os.environ.get("TMPDIR") or tempfile.gettempdir()) / "hub"
    os.environ["HF_HOME"] = str(home)
    prepare_client()


def prepare_client() -> None:
    """What the Hub's library is to find when it is imported."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.pop("HF_HUB_OFFLINE", None)
    hide_credentials()


class UnreachableError(StageError):
    """No answer from the Hub at all."""


def gated(kind: str, repo: str) -> StageError:
    from huggingface_hub import constants

    return StageError(
        f"access to {kind} '{repo}' is gated",
        hint=f"accept its terms at {constants.ENDPOINT}, then set HF_TOKEN",
    )


def hide_credentials() -> None:
    """Take a user and password out of HF_ENDPOINT, so that no message, log or traceback can hold them.

    Requests to the endpoint still carry them (a token, where one is set, takes their place). Must run
    before the first import of huggingface_hub.
    """
    from urllib.parse import unquote, urlsplit

    endpoint = os.environ.get("HF_ENDPOINT")
    if not endpoint:
        os.environ.pop("HF_ENDPOINT", None)
        return
    before, at, host = urlsplit(endpoint).netloc.rpartition("@")
    if not at:
        return
    os.environ["HF_ENDPOINT"] = clean = endpoint.replace(f"{before}@{host}", host, 1)
    user, _, password = before.partition(":")

    import base64

    import huggingface_hub
    from huggingface_hub.utils import _http

    basic = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    root = clean.rstrip("/") + "/"

    def authorize(request: Any) -> None:
        if f"{request.url}".startswith(root) and "authorization" not in request.headers:
            request.headers["authorization"] = f"Basic {basic}"

    def client() -> Any:
        made = _http.default_client_factory()
        made.event_hooks["request"].append(authorize)
        return made

    huggingface_hub.set_client_factory(client)


@contextmanager
def explained(kind: str, repo: str, revision: str, offline: str) -> Iterator[None]:
    """The Hub library's errors as StageErrors that say what to do. offline: what, without a network."""
    import errno

    from huggingface_hub import constants, errors

    # its HTTP library changes with its versions; the base class of its own error is that library's
    transport_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]

    try:
        yield
    except errors.GatedRepoError:
        raise gated(kind, repo) from None
    except errors.RevisionNotFoundError:
        if not is_commit(revision):
            raise StageError(
                f"{kind} '{repo}' has no branch or tag '{revision}'", hint=f"see {constants.ENDPOINT}/{repo}"
            ) from None
        raise StageError(
            f"{kind} '{repo}' has no commit {revision}",
            hint="copy the commit's 40 characters from its history",
        ) from None
    except errors.RepositoryNotFoundError:
        raise StageError(f"the Hub knows no {kind} '{repo}'", hint=ACCESS_HINT) from None
    except errors.RemoteEntryNotFoundError as error:
        raise StageError(f"the Hub lacks a file of '{repo}': {_first_line(error)}") from None
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise StageError(f"the Hub refuses access to {kind} '{repo}'", hint=ACCESS_HINT) from None
        raise StageError(
            f"the Hub failed: {_first_line(error)}", where=repo, hint="try again later"
        ) from None
    except (transport_error, errors.LocalEntryNotFoundError, ConnectionError) as error:
        raise UnreachableError(
            f"cannot reach the Hub at {constants.ENDPOINT}: {_first_line(error)}", where=repo, hint=offline
        ) from None
    except (ValueError, KeyError, TypeError) as error:  # a page of a proxy that wants a login, say
        raise StageError(
            f"what {constants.ENDPOINT} answers is not a Hub's: {_first_line(error)}",
            where=repo,
            hint="is it the right HF_ENDPOINT, and does anything between here and there want a login?",
        ) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StageError(
                f"no space left to download '{repo}'", hint="free some, then build again"
            ) from None
        raise


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _progress_bar(run: Run, total: int, there: int) -> Any:
    """A bar class for the Hub library that reports instead of drawing.

    total: bytes of all files. there: of those that an earlier attempt has fetched.
    """
    import time

    from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

    done = there
    started = time.monotonic()

    class Bar(tqdm):  # type: ignore[misc,unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal done
            done += int(n or 0)
            speed = (done - there) / max(time.monotonic() - started, 1e-3)
            run.report(
                step=done, of=total, eta_s=round((total - done) / max(speed, 1), 1), note="downloading"
            )
            return None

    return Bar
