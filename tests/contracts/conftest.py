"""The contracts' tools, fetched once, and a chain: anvil, a real node on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = REPOSITORY / "contracts"


def artifact(name: str) -> dict[str, Any]:
    return json.loads((PROJECT / f"artifacts/{name}.json").read_text())


@pytest.fixture(scope="session")
def tools() -> None:
    """forge, anvil, the compiler and slither are in place."""
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"no {command} here (Debian: apt-get install nodejs npm)")
    done = subprocess.run([REPOSITORY / "tools/setup-contracts.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class RefusedError(Exception):
    """The chain refused; data: what the contract answered."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.data: str = error.get("data") or ""


@dataclass
class Chain:
    """JSON-RPC and the little of the ABI that these tests need."""

    url: str

    def rpc(self, method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            form = json.loads(answer.read())
        if "error" in form:
            raise RefusedError(form["error"])
        return form["result"]

    def send(self, sender: str, data: str, to: str | None = None) -> dict[str, Any]:
        """A transaction, and its receipt once it is in a block."""
        fields = {"from": sender, "data": data} | ({"to": to} if to else {})
        transaction = self.rpc("eth_sendTransaction", fields)
        for _ in range(1000):
            if receipt := self.rpc("eth_getTransactionReceipt", transaction):
                assert receipt["status"] == "0x1", receipt
                return receipt
            time.sleep(0.01)
        pytest.fail(f"{transaction} got into no block")

    def call(self, to: str | None, data: str, sender: str = "0x" + "00" * 20) -> str:
        """What a transaction would answer; raises RefusedError where it would fail."""
        return self.rpc("eth_call", {"from": sender, "data": data} | ({"to": to} if to else {}), "latest")


def words(*values: int | str | bytes) -> str:
    """Each value in 32 bytes, as hex: numbers and addresses to the right, bytes as they are."""
    return "".join(
        value.hex()
        if isinstance(value, bytes)
        else f"{int(value, 16) if isinstance(value, str) else value:064x}"
        for value in values
    )


@pytest.fixture(scope="module")
def chain(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """anvil with ten accounts whose keys it holds; each transaction is a block."""
    home = tmp_path_factory.mktemp("anvil")
    command = [PROJECT / "node_modules/.bin/anvil", "--port", "0", "--chain-id", "8453"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as anvil:
        assert anvil.stdout is not None
        for line in anvil.stdout:
            if found := re.match(r"Listening on (127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail("anvil ended before it listened")
        try:
            yield Chain(f"http://{found[1]}")
        finally:
            anvil.terminate()
            anvil.stdout.read()
