"""A real container registry on this machine (Debian's docker-registry), filled over its own API; no network."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class Registry(NamedTuple):
    """host: with its port, as it begins an image's name."""

    host: str

    def push(self, repository: str, tag: str, arch: str, words: str = "", token: str = "") -> str:
        """An image without layers; its digest."""
        config = json.dumps({"architecture": arch, "os": "linux", "config": {}, "history": [words]}).encode()
        self._blob(repository, config, token)
        form = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": sha256(config),
                "size": len(config),
            },
            "layers": [],
        }
        return self._manifest(repository, tag, form, token)

    def push_list(self, repository: str, tag: str, members: dict[str, str]) -> str:
        """A list of images: "os/arch" -> digest."""
        manifests = [
            {
                "mediaType": MANIFEST,
                "digest": digest,
                "size": 1,
                "platform": dict(zip(("os", "architecture"), place.split("/"), strict=True)),
            }
            for place, digest in members.items()
        ]
        form = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        return self._manifest(repository, tag, form, "")

    def _blob(self, repository: str, data: bytes, token: str) -> None:
        _, headers = self._call("POST", f"/v2/{repository}/blobs/uploads/", b"", token)
        place = urllib.parse.urlsplit(headers["Location"])
        path = f"{place.path}?{place.query}&digest={sha256(data)}"
        self._call("PUT", path, data, token, "application/octet-stream")

    def _manifest(self, repository: str, tag: str, form: dict[str, Any], token: str) -> str:
        data = json.dumps(form).encode()
        self._call("PUT", f"/v2/{repository}/manifests/{tag}", data, token, str(form["mediaType"]))
        return sha256(data)

    def _call(self, method: str, path: str, data: bytes, token: str, kind: str = "") -> tuple[bytes, Any]:
        headers = {"Content-Type": kind} if kind else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(f"http://{self.host}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read(), answer.headers


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def registry(command: str, folder: Path, auth: str = "") -> Iterator[Registry]:
    """auth: what its configuration says of authorisation."""
    host = f"127.0.0.1:{free_port()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yml").write_text(
        f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
        f"http:\n  addr: {host}\n{auth}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([command, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                urllib.request.urlopen(f"http://{host}/v2/", timeout=5).close()
                break
            except urllib.error.HTTPError as error:
                error.close()  # it wants a login, so it is there
                break
            except OSError:
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.02)
        yield Registry(host)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class TokenServer:
    """Hands out tokens as Docker Hub does: to anybody for public repositories, else to who has the password."""

    def __init__(self, folder: Path) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.bundle = folder / "tokens.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self.bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._chain = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
        self._key = key
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
                _, repository, _ = query["scope"].split(":")
                login = self.headers.get("Authorization", "")
                known = login == "Basic " + base64.b64encode(b"ann:secret").decode()
                body = json.dumps({"token": tokens.token(repository, "pull")}).encode()
                allowed = known or not repository.startswith("private/")
                self.send_response(200 if allowed else 401)
                self.end_headers()
                self.wfile.write(body if allowed else b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def config(self) -> str:
        """For the registry that believes these tokens."""
        return (
            f"auth:\n  token:\n    realm: http://127.0.0.1:{self._server.server_port}/token\n"
            f"    service: test\n    issuer: tokens\n    rootcertbundle: {self.bundle}\n"
        )

    def token(self, repository: str, *actions: str) -> str:
        """A token for what may be done with a repository."""
        now = int(time.time())
        parts = [
            {"typ": "JWT", "alg": "RS256", "x5c": [self._chain]},
            {
                "iss": "tokens",
                "aud": "test",
                "sub": "",
                "exp": now + 300,
                "nbf": now - 10,
                "iat": now,
                "jti": "1",
                "access": [{"type": "repository", "name": repository, "actions": list(actions)}],
            },
        ]
        text = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64url(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
