"""Asks a container registry which image a tag stands for today (HTTP API version 2, as all of them speak)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxt.action.image import Image
from mxt.errors import ToolchainError

# where the registry of a name answers, where that is not the name itself
_HOSTS = {"docker.io": "registry-1.docker.io"}
_LOGIN_NAMES = {"docker.io": ("docker.io", "https://index.docker.io/v1/", "index.docker.io")}
_LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_SECONDS = 30
_MOST = 8 << 20  # bytes; a manifest has a few thousand
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def remote_digest(image: Image) -> str:
    """The digest of the image's tag, for its architecture.

    Where the tag stands for a list, that of the list's image: a list may get further members, and the image
    stays what it was. Raises ToolchainError where the registry cannot be asked or has no such image.
    """
    host = _HOSTS.get(image.registry, image.registry)
    # a registry on this very machine mostly has no certificate
    name = host.partition(":")[0]
    scheme = "http" if name in ("localhost", "127.0.0.1") else "https"
    url = f"{scheme}://{host}/v2/{image.repository}/manifests/{image.tag}"
    kind, body = _get(image, url)
    form = _json(image, body)
    if kind in _LISTS or "manifests" in form:
        return _of_list(image, form)
    if form.get("schemaVersion") != 2:
        raise _wrong(image, "answers with a manifest of a form that mxt does not know")
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _of_list(image: Image, form: Mapping[str, Any]) -> str:
    there = []
    for one in form.get("manifests") or ():
        platform = one.get("platform") or {}
        place = f"{platform.get('os')}/{platform.get('architecture')}"
        if place == f"linux/{image.arch}":
            return str(one["digest"])
        if "unknown" not in place:
            there.append(place)
    listed = ", ".join(sorted(set(there))) or "nothing"
    raise ToolchainError(
        f"'{image.name}' has no image for linux/{image.arch}: it has {listed}",
        where=image.where,
        hint="declare the toolchain's arch, or choose another tag",
    )


def _get(image: Image, url: str) -> tuple[str, bytes]:
    """(content type, body) of a manifest; asks for a token where the registry wants one."""
    accept = {"Accept": ", ".join((*_LISTS, *_MANIFESTS))}
    login = _login(image.registry)
    basic = {"Authorization": f"Basic {login}"} if login else {}
    try:
        return _fetch(url, accept)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 401:
            raise _refused(image, error) from None
        challenge = error.headers.get("WWW-Authenticate", "")
    except (OSError, ValueError) as error:
        raise _unreachable(image, error) from None
    try:
        if challenge.lower().startswith("bearer"):
            facts = dict(_CHALLENGE.findall(challenge))
            asked = {"service": facts.get("service", ""), "scope": f"repository:{image.repository}:pull"}
            realm = facts.get("realm", "")
            if not realm.startswith(("https://", "http://")):
                raise _wrong(image, "asks for a token and does not say where")
            query = urllib.parse.urlencode({k: v for k, v in asked.items() if v})
            _, body = _fetch(f"{realm}{'&' if '?' in realm else '?'}{query}", basic)
            form = _json(image, body)
            token = form.get("token") or form.get("access_token") or ""
            return _fetch(url, {**accept, "Authorization": f"Bearer {token}"})
        return _fetch(url, {**accept, **basic})
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(image, error) from None
    except (OSError, ValueError) as error:
        raise _unreachable(image, error) from None


def _fetch(url: str, headers: Mapping[str, str]) -> tuple[str, bytes]:
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - http or https, by its maker
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - the same
        return answer.headers.get_content_type(), answer.read(_MOST)


def _json(image: Image, body: bytes) -> dict[str, Any]:
    try:
        form = json.loads(body)
    except ValueError:
        form = None
    if not isinstance(form, dict):
        raise _wrong(image, "answers with something that is not JSON")
    return form


def _login(registry: str) -> str:
    """What `podman login` or `docker login` has kept for a registry, as it is sent; "" if nothing."""
    names = _LOGIN_NAMES.get(registry, (registry, f"https://{registry}", f"https://{registry}/v1/"))
    for path in _login_files():
        try:
            auths = json.loads(path.read_bytes()).get("auths") or {}
        except (OSError, ValueError, AttributeError):
            continue
        for name in names:
            found = auths.get(name) if isinstance(auths, dict) else None
            text = found.get("auth") if isinstance(found, dict) else None
            if isinstance(text, str) and _is_login(text):
                return text
    return ""


def _login_files() -> list[Path]:
    home = Path(os.path.expanduser("~"))
    environ = os.environ
    places = [environ.get("REGISTRY_AUTH_FILE", "")]
    if run := environ.get("XDG_RUNTIME_DIR"):
        places.append(f"{run}/containers/auth.json")
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    docker = environ.get("DOCKER_CONFIG") or f"{home}/.docker"
    return [Path(p) for p in (*places, f"{config}/containers/auth.json", f"{docker}/config.json") if p]


def _is_login(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except ValueError:
        return False


def _refused(image: Image, error: urllib.error.HTTPError) -> ToolchainError:
    code = error.code
    if code == 404:
        return _wrong(image, f"has no '{image.repository}:{image.tag}'", "check the name and the tag")
    if code in (401, 403):
        mend = f"log in first: podman login {image.registry} (or docker login); --local takes what is here"
        return _wrong(image, f"does not let you read '{image.repository}', or it does not exist", mend)
    if code == 429:
        return _wrong(image, "has had too many questions from here", "ask again later, or log in to it")
    return _wrong(image, f"answers with HTTP status {code}", "ask again later")


def _wrong(image: Image, fact: str, hint: str = "check the image's name") -> ToolchainError:
    return ToolchainError(f"the registry {image.registry} {fact}", where=image.where, hint=hint)


def _unreachable(image: Image, error: OSError | ValueError) -> ToolchainError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return ToolchainError(
        f"the registry {image.registry} cannot be reached: {reason}",
        where=image.where,
        hint="check the network (https_proxy is heeded), or take an image that is here already with --local",
    )
