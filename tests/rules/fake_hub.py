"""A Hugging Face Hub of one process: real HTTP, a few repositories, and the Hub's ways of saying no."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "1" * 40
TOKEN = "hf_secret"


class Hub:
    """repos: (kind, name) -> files, the same at each commit. refs: branches and tags -> their commits.

    gated: names whose files need TOKEN, and which tell their commits to all. hidden: names that need TOKEN
    for all. broken: paths served with other bytes. served: the paths of all downloads. asked: those of all
    questions. when_asked: called at each of those.
    """

    def __init__(self, endpoint: str = "") -> None:
        self.repos: dict[tuple[str, str], dict[str, bytes]] = {}
        self.refs = {"main": COMMIT, "v1": OLDER}
        self.older: dict[tuple[str, str, str], dict[str, bytes]] = {}  # (kind, name, commit) -> other files
        self.gated: set[str] = set()
        self.hidden: set[str] = set()
        self.broken: set[str] = set()
        self.failing = False
        self.portal = False  # somebody else answers: a page that wants a login
        self.password: str | None = None  # "user:password" that each request must carry
        self.served: list[str] = []
        self.asked: list[str] = []
        self.endpoint = endpoint
        self.when_asked: Callable[[], object] = lambda: None


@contextmanager
def fake_hub() -> Iterator[Hub]:
    """Serve on a free port of this machine until the block ends."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, *, body: bool) -> None:
            status, headers, data = respond(hub, self.path, self.headers.get("Authorization", ""), body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def respond(hub: Hub, path: str, authorization: str, body: bool) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, content) as the Hub gives them."""
    parts = path.partition("?")[0].strip("/").split("/")
    if hub.portal:
        return 200, {"Content-Type": "text/html"}, b"<html>please log in</html>"
    if hub.failing:
        return 500, {}, b"{}"
    if hub.password and authorization != f"Basic {base64.b64encode(hub.password.encode()).decode()}":
        return 401, {}, b"{}"
    question = ""
    if parts[0] == "api":
        hub.asked.append(path.partition("?")[0])
        hub.when_asked()
        kind, name, question = parts[1].removesuffix("s"), "/".join(parts[2:4]), parts[4]
        revision = unquote(parts[-1])
    else:
        kind = "dataset" if parts[0] == "datasets" else "model"
        parts = parts[kind == "dataset" :]
        name, revision = "/".join(parts[:2]), parts[3]
    files = hub.repos.get((kind, name))
    trusted = authorization == f"Bearer {TOKEN}"
    if files is None or (name in hub.hidden and not trusted):
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
    if name in hub.gated and not trusted and question != "revision":
        return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
    if question == "auth-check":
        return 200, {}, b"{}"
    commit = hub.refs.get(revision, revision)
    if commit not in (COMMIT, OLDER, *hub.refs.values()):
        return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
    files = hub.older.get((kind, name, commit), files)
    if path.startswith("/api"):
        siblings = [sibling(n, d) for n, d in files.items()]
        return (
            200,
            {"Content-Type": "application/json"},
            json.dumps(
                {
                    "id": name,
                    "modelId": name,
                    "sha": commit,
                    "siblings": siblings,
                    "tags": [],
                    "private": False,
                    "gated": "auto" if name in hub.gated else False,
                }
            ).encode(),
        )
    file = "/".join(parts[4:])
    if file not in files:
        return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
    data = files[file]
    etag = hashlib.sha256(data).hexdigest()
    if body:
        hub.served.append(file)
        if file in hub.broken:
            data = bytes([data[0] ^ 1]) + data[1:]
    return 200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "X-Linked-Size": str(len(data))}, data


def sibling(name: str, data: bytes) -> dict[str, Any]:
    """A file's entry: large ones by SHA-256, small ones by git's name for their content."""
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git}
    if name.endswith((".safetensors", ".parquet")):
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        entry["blobId"] = "f" * 40
    return entry
