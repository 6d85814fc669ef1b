"""The operator's key: who signs what this machine made.

One PEM file in the user's configuration folder, 0600, made at the first build. A line above the PEM
block names the public half, so that a build that signs nothing need not load a cryptography library.
"""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mxt.errors import UsageError
from mxt.store.digest import hash_bytes
from mxt.store.os_errors import explain_os_error

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# RFC 8410: what precedes the 32 bytes of an ed25519 key in PKCS #8
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_PUBLIC = "mxt operator, public key: "


def keyid_of(public: bytes) -> str:
    """The fingerprint of a raw 32-byte public key: 32 hex characters."""
    return hash_bytes(public)[:32]


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is really signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def verify_signature(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether signature over data was made with the private half of a raw public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


class OperatorKey:
    """An ed25519 key. The private half is loaded at the first signature."""

    def __init__(self, path: Path, text: bytes, public: bytes | None) -> None:
        self.path = path
        self._text = text
        self._private: Ed25519PrivateKey | None = None
        self.public = public if public is not None else self._load_public()
        self.keyid = keyid_of(self.public)

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature of data."""
        return self._load().sign(data)

    def _load_public(self) -> bytes:
        return self._load().public_key().public_bytes_raw()

    def _load(self) -> Ed25519PrivateKey:
        if self._private is None:
            private = _private_of(self._text[max(self._text.find(b"-----BEGIN"), 0) :])
            if private is None:
                raise UsageError(
                    "the operator key is not an unencrypted ed25519 key in PEM form",
                    where=str(self.path),
                    hint="move it away; the next build makes a new one",
                )
            self._private = private
            if getattr(self, "public", None) is not None and self._load_public() != self.public:
                raise UsageError(
                    "the public key in the operator key's first line is not that of its private key",
                    where=str(self.path),
                    hint="delete that line",
                )
        return self._private

    def __repr__(self) -> str:  # never the secret, also not in a debugger's output
        return f"OperatorKey({self.keyid})"


def _private_of(pem: bytes) -> Ed25519PrivateKey | None:
    """The key in a PEM text; None where it is not an unencrypted ed25519 key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    lines = pem.split(b"\n")
    if len(lines) >= 3 and lines[0] == b"-----BEGIN PRIVATE KEY-----" and lines[2].startswith(b"-----END"):
        # as _create writes it; the library's reader of all other forms takes 17 ms to import
        with contextlib.suppress(ValueError):
            der = base64.b64decode(lines[1], validate=True)
            if len(der) == len(_PKCS8) + 32 and der.startswith(_PKCS8):
                return Ed25519PrivateKey.from_private_bytes(der[len(_PKCS8) :])
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return private if isinstance(private, Ed25519PrivateKey) else None


def key_path() -> Path:
    """$MXT_KEY_FILE, else $XDG_CONFIG_HOME/mxt/key, else ~/.config/mxt/key."""
    if named := os.environ.get("MXT_KEY_FILE"):
        return Path(os.path.abspath(named))
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    try:
        base = Path(config) if os.path.isabs(config) else Path.home() / ".config"
    except RuntimeError:
        raise UsageError(
            "no home folder is known for the operator key",
            hint="set HOME, or MXT_KEY_FILE to a file of yours",
        ) from None
    return base / "mxt" / "key"


def load_or_create_key(*, keep_out_of: Iterable[str | os.PathLike[str]] = ()) -> OperatorKey:
    """The operator's key, made if there is none; two builds at once agree on one.

    keep_out_of: folders that may be shared, copied or published (workspace, store).
    Raises UsageError for a key inside one of these, readable by others, of another owner, or malformed.
    """
    path = key_path()
    real = os.path.realpath(path)
    for folder in keep_out_of:
        inside = os.path.realpath(folder)
        if real == inside or real.startswith(inside.rstrip("/") + "/"):
            raise UsageError(
                f"the operator key lies inside {os.fspath(folder)!r}, where it could be shared by accident",
                where=str(path),
                hint="set MXT_KEY_FILE to a place in your home folder",
            )
    try:
        return _load(path)
    except FileNotFoundError:
        with explain_os_error("make the operator key", path):
            _create(path)
            return _load(path)


def _load(path: Path) -> OperatorKey:
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UsageError(
                f"cannot read the operator key: {(error.strerror or '').lower()}", where=str(path)
            ) from None
        stack.callback(os.close, fd)
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError("the operator key is not a regular file", where=str(path))
        if facts.st_mode & 0o077:
            raise UsageError(
                f"the operator key is open to other users (mode {stat.S_IMODE(facts.st_mode):04o})",
                where=str(path),
                hint=f"chmod 600 {path}",
            )
        if os.geteuid() not in (0, facts.st_uid):
            raise UsageError("the operator key belongs to another user", where=str(path))
        text = os.read(fd, 65536)
    return OperatorKey(path, text, _public_line(text))


def _public_line(text: bytes) -> bytes | None:
    first = text.split(b"\n", 1)[0].decode("ascii", "replace")
    if not first.startswith(_PUBLIC):
        return None
    try:
        public = base64.b64decode(first[len(_PUBLIC) :], validate=True)
    except ValueError:
        return None
    return public if len(public) == 32 else None


def _create(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    text = _PUBLIC.encode() + base64.b64encode(public) + b"\n" + pem
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    aside = f"{path}.{os.urandom(4).hex()}"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, text)
            os.fsync(fd)
        finally:
            os.close(fd)
        # a link and no rename: of two builds at once the first wins, and both use its key
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        os.unlink(aside)
