"""The contracts under forge and slither, rebuilt byte by byte, and on a real node."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mxt.receipt.merkle import Tree
from tests.contracts.conftest import PROJECT, REPOSITORY, Chain, RefusedError, artifact, words

sys.path.insert(0, str(REPOSITORY / "tools"))

from make_contracts import CONTRACTS, artifacts, forge

REGISTRY = artifact("MindxtrainRegistry")
CALL = REGISTRY["selectors"]
GAS = {name: int(gas) for name, gas in json.loads((PROJECT / "snapshots/gas.json").read_text()).items()}

# keccak-256 of "digest" and of "cid", as in contracts/test/gas.t.sol: what a call costs depends on its bytes
DIGEST = bytes.fromhex("682a7e258d80bd2421d3103cbe71e3e3b82138116756b97b8256f061dc2f11fb")
CID = bytes.fromhex("3a1574ce2d4c00bd02663ec53434234f93e3c314479d765bb3ef74f3b30fabbd")


# --- forge


def test_every_test_passes_and_costs_what_it_did(tools: None) -> None:
    done = forge("test", "--json", environment={"FORGE_SNAPSHOT_EMIT": "false"})
    assert done.returncode == 0, done.stdout + done.stderr
    suites = json.loads(done.stdout)
    results = {
        (suite.partition(":")[2], name.partition("(")[0]): result
        for suite, content in suites.items()
        for name, result in content["test_results"].items()
    }
    written = re.compile(r"function ((?:test|invariant_)\w+)\(")
    declared = [name for file in PROJECT.glob("test/*.t.sol") for name in written.findall(file.read_text())]
    assert sorted(name for _, name in results) == sorted(declared)
    assert {result["status"] for result in results.values()} == {"Success"}
    for (_, name), result in results.items():
        (kind, figures), *_ = result["kind"].items()
        if name.startswith("testFuzz"):
            assert (kind, figures["runs"]) == ("Fuzz", 256), name
        if name.startswith("invariant"):
            assert (kind, figures["calls"], figures["reverts"]) == ("Invariant", 32 * 32, 0), name
    measured: dict[str, str] = {}
    for result in results.values():
        measured |= result["gas_snapshots"].get("gas", {})
    assert {name: int(gas) for name, gas in measured.items()} == GAS


def test_the_gas_goals_hold() -> None:
    assert GAS["anchor"] <= 49_000
    assert GAS["anchor, a root over 1,000"] <= 100 * 1000


def test_the_sources_are_formatted(tools: None) -> None:
    assert forge("fmt", "--check").stdout == ""


# --- what is committed


def test_the_artifacts_are_rebuilt_byte_by_byte_in_another_folder(tools: None, tmp_path: Path) -> None:
    project = tmp_path / "elsewhere/contracts"
    shutil.copytree(PROJECT / "src", project / "src")
    shutil.copy(PROJECT / "foundry.toml", project)
    (tmp_path / "elsewhere/tools").symlink_to(REPOSITORY / "tools")
    rebuilt = artifacts(project)
    assert sorted(rebuilt) == sorted(place.name for place in (PROJECT / "artifacts").iterdir())
    for name, text in rebuilt.items():
        assert text == (PROJECT / "artifacts" / name).read_text(), name


def opcodes(code: str) -> set[int]:
    """Of the code, without the data that PUSH1 to PUSH32 carry."""
    data = bytes.fromhex(code.removeprefix("0x"))
    found, place = set(), 0
    while place < len(data):
        found.add(data[place])
        place += 1 + (data[place] - 0x5F if 0x60 <= data[place] <= 0x7F else 0)
    return found


CREATE, CALL_OP, CALLCODE, DELEGATECALL, CREATE2, STATICCALL, SELFDESTRUCT = (
    0xF0,
    0xF1,
    0xF2,
    0xF4,
    0xF5,
    0xFA,
    0xFF,
)
SSTORE = 0x55


def writing(name: str) -> list[str]:
    """The functions that can change anything; "payable" behind one that takes ether."""
    return [
        entry.get("name", entry["type"]) + (" payable" if entry["stateMutability"] == "payable" else "")
        for entry in artifact(name)["abi"]
        if entry["type"] in {"function", "receive", "fallback"}
        and entry["stateMutability"] not in {"view", "pure"}
    ]


def test_nobody_can_change_what_a_contract_is() -> None:
    for name in CONTRACTS:
        code = opcodes(artifact(name)["deployed_bytecode"])
        assert not code & {CREATE, CREATE2, CALLCODE, DELEGATECALL, SELFDESTRUCT}, name
    # of other code, the registry runs only ecrecover and SHA-256, which can change nothing
    assert opcodes(REGISTRY["deployed_bytecode"]) >= {SSTORE, STATICCALL}
    assert CALL_OP not in opcodes(REGISTRY["deployed_bytecode"])
    assert writing("MindxtrainRegistry") == ["anchor", "anchorFor"]
    assert writing("X402Receiver") == ["sweep"]


def test_everything_is_pinned_and_no_registry_is_named() -> None:
    lock = json.loads((PROJECT / "package-lock.json").read_text())
    wanted = json.loads((PROJECT / "package.json").read_text())["devDependencies"]
    for name, package in lock["packages"].items():
        if name:
            assert package["integrity"].startswith("sha512-"), name
            assert "resolved" not in package, name
    assert all(lock["packages"][f"node_modules/{name}"]["version"] == pin for name, pin in wanted.items())
    pins = [line for line in (PROJECT / "slither.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", pin) for pin in pins), pins
    for path in (PROJECT / "slither.txt", PROJECT / ".npmrc", REPOSITORY / "tools/setup-contracts.sh"):
        assert "://" not in path.read_text(), path


# --- slither


def slither(folder: Path, sources: dict[str, str]) -> set[tuple[str, str]]:
    """(detector, function or contract) of everything that slither has to say."""
    form = {
        "language": "Solidity",
        "sources": {f"src/{name}": {"content": text} for name, text in sources.items()},
        "settings": {
            "evmVersion": "cancun",
            "outputSelection": {
                "*": {
                    "": ["ast"],
                    "*": ["abi", "metadata", "devdoc", "userdoc", "evm.bytecode", "evm.deployedBytecode"],
                }
            },
        },
    }
    (folder / "input.json").write_text(json.dumps(form))
    (folder / "src").mkdir()
    for name, text in sources.items():
        (folder / "src" / name).write_text(text)
    command = [PROJECT / ".slither/bin/slither", "input.json", "--compile-force-framework", "solc-json"]
    done = subprocess.run(
        [*command, "--solc", REPOSITORY / "tools/solc", "--json", "found.json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    found = json.loads((folder / "found.json").read_text())
    assert found["success"], done.stderr
    assert re.search(r"analyzed \(4 contracts with \d{3} detectors\)", done.stderr), done.stderr
    return {
        (finding["check"], finding["elements"][0]["name"])
        for finding in found["results"].get("detectors", [])
    }


def test_slither_finds_nothing_but_what_is_answered_in_place(tools: None, tmp_path: Path) -> None:
    sources = {file.name: file.read_text() for file in (PROJECT / "src").iterdir()}
    for name in ("clean", "open"):
        (tmp_path / name).mkdir()
    assert slither(tmp_path / "clean", sources) == set()
    # without the comments that answer them; docs/contracts.md has the reasons
    bare = {name: re.sub(r"// slither-disable.*", "", text) for name, text in sources.items()}
    assert slither(tmp_path / "open", bare) == {
        ("timestamp", "anchorFor"),
        ("reentrancy-no-eth", "sweep"),
        ("divide-before-multiply", "_due"),
        ("calls-loop", "_pay"),
        ("low-level-calls", "_pay"),
        ("incorrect-equality", "_pay"),
    }


# --- on a node


@pytest.fixture(scope="module")
def accounts(chain: Chain) -> list[str]:
    return chain.rpc("eth_accounts")


@pytest.fixture(scope="module")
def registry(chain: Chain, accounts: list[str]) -> str:
    """The address of the committed code, created by its committed bytes."""
    address: str = chain.send(accounts[0], REGISTRY["bytecode"])["contractAddress"]
    assert chain.rpc("eth_getCode", address, "latest") == REGISTRY["deployed_bytecode"]
    return address


def test_a_record_on_a_node(chain: Chain, accounts: list[str], registry: str) -> None:
    operator = accounts[1]
    anchor = CALL["anchor(bytes32,bytes32)"] + words(DIGEST, CID)
    receipt = chain.send(operator, anchor, registry)
    assert int(receipt["gasUsed"], 16) == GAS["anchor"]
    (log,) = receipt["logs"]
    assert log["topics"] == [
        REGISTRY["topics"]["Anchored(address,bytes32,bytes32)"],
        "0x" + words(operator),
        "0x" + words(DIGEST),
    ]
    assert log["data"] == "0x" + words(CID)
    assert chain.call(registry, CALL["cidOf(address,bytes32)"] + words(operator, DIGEST)) == "0x" + words(CID)
    with pytest.raises(RefusedError) as refused:
        chain.call(registry, anchor, operator)
    assert refused.value.data == CALL["AlreadyAnchored(address,bytes32,bytes32)"] + words(
        operator, DIGEST, CID
    )


def test_a_record_that_a_wallet_signed(chain: Chain, accounts: list[str], registry: str) -> None:
    operator, sender = accounts[2], accounts[3]
    deadline = 4_000_000_000
    types = {
        "EIP712Domain": "name:string version:string chainId:uint256 verifyingContract:address",
        "Anchor": "operator:address digest:bytes32 cid:bytes32 deadline:uint256",
    }
    typed: dict[str, Any] = {
        "types": {
            name: [dict(zip(("name", "type"), field.split(":"), strict=True)) for field in fields.split()]
            for name, fields in types.items()
        },
        "primaryType": "Anchor",
        "domain": {
            "name": "MindxtrainRegistry",
            "version": "1",
            "chainId": 8453,
            "verifyingContract": registry,
        },
        "message": {
            "operator": operator,
            "digest": "0x" + words(DIGEST),
            "cid": "0x" + words(CID),
            "deadline": deadline,
        },
    }
    # the node's own reading of EIP-712, not ours
    signature = bytes.fromhex(chain.rpc("eth_signTypedData_v4", operator, typed)[2:])
    send = CALL["anchorFor(address,bytes32,bytes32,uint256,uint8,bytes32,bytes32)"] + words(
        operator, DIGEST, CID, deadline, signature[64], signature[:32], signature[32:64]
    )
    receipt = chain.send(sender, send, registry)
    # a signature's zero bytes are cheaper, and no two signatures are alike
    assert abs(int(receipt["gasUsed"], 16) - GAS["anchorFor"]) < 200
    (log,) = receipt["logs"]
    assert log["topics"][1:] == ["0x" + words(operator), "0x" + words(DIGEST)]
    with pytest.raises(RefusedError) as refused:
        chain.call(registry, send, sender)
    assert refused.value.data == CALL["AlreadyAnchored(address,bytes32,bytes32)"] + words(
        operator, DIGEST, CID
    )


def test_a_receiver_on_a_node(chain: Chain, accounts: list[str]) -> None:
    receiver = artifact("X402Receiver")
    payees = words(32, 2, accounts[5], 9500, accounts[6], 500)
    address = chain.send(accounts[0], receiver["bytecode"] + payees)["contractAddress"]
    assert chain.rpc("eth_getCode", address, "latest") == receiver["deployed_bytecode"]
    assert chain.call(address, receiver["selectors"]["payees()"]) == "0x" + payees
    with pytest.raises(RefusedError) as refused:
        chain.call(None, receiver["bytecode"] + words(32, 2, accounts[5], 9500, accounts[6], 501))
    assert refused.value.data == receiver["selectors"]["ShareSum(uint256)"] + words(10_001)


def test_the_registry_and_mxt_agree_on_every_proof(chain: Chain, accounts: list[str], registry: str) -> None:
    operator = accounts[4]

    def included(root: bytes, leaf: bytes, index: int, count: int, path: tuple[bytes, ...]) -> bool:
        selector = CALL["includes(address,bytes32,bytes32,uint256,uint256,bytes32[])"]
        data = words(operator, root, leaf, index, count, 6 * 32, len(path), *path)
        return bool(int(chain.call(registry, selector + data), 16))

    for count in (1, 2, 3, 5, 8, 13, 1000):
        leaves = [hashlib.blake2s(b"%d of %d" % (i, count)).digest() for i in range(count)]
        tree = Tree(leaves)
        chain.send(operator, CALL["anchor(bytes32,bytes32)"] + words(tree.root, CID), registry)
        for index in {0, 1, count // 3, count // 2, count - 2, count - 1} & set(range(count)):
            proof = tree.proof(index)
            assert included(tree.root, leaves[index], index, count, proof.path), (count, index)
            assert not included(tree.root, leaves[index - 1] if count > 1 else CID, index, count, proof.path)
            assert not included(tree.root, leaves[index], index, count, (*proof.path, CID))


# --- without the tools


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for command in ("bash", "dirname", "readlink"):
        found = shutil.which(command)
        assert found
        (tmp_path / command).symlink_to(found)
    script = REPOSITORY / "tools/setup-contracts.sh"
    done = subprocess.run(
        [tmp_path / "bash", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: 'node' is missing, and forge and the Solidity compiler come as npm packages\n"
        "  hint: install Node.js 18 or newer with npm (Debian: apt-get install nodejs npm),"
        " then run tools/setup-contracts.sh again\n"
    )


@pytest.mark.parametrize("arguments", [["--bin", "x.sol"], []])
def test_the_compiler_refuses_what_it_does_not_know(tools: None, arguments: list[str]) -> None:
    done = subprocess.run([REPOSITORY / "tools/solc", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: unknown arguments: {' '.join(arguments) or 'none'}\n"
        "  hint: --version, or --standard-json with the input on stdin\n"
    )
