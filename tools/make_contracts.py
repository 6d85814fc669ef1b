"""Builds the contracts and writes what is committed of them: contracts/artifacts/ and contracts/snapshots/.

    python tools/make_contracts.py            build, test, write
    python tools/make_contracts.py --check    write nothing; exit 1 if anything is out of date

An artifact is what a client needs and what a reader compares with a chain: the interface, the code that
creates the contract, and the code that must then lie at its address. The same sources give the same bytes
everywhere. tools/setup-contracts.sh fetches the tools.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = REPOSITORY / "contracts"
CONTRACTS = {"MindxtrainRegistry": "mindxtrain_registry.sol", "X402Receiver": "x402_receiver.sol"}


def forge(
    *argv: str, project: Path = PROJECT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run forge in the project, without looking for its settings anywhere else."""
    return subprocess.run(
        [str(PROJECT / "node_modules/.bin/forge"), *argv],
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(project / "out"),
            "NO_COLOR": "1",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def artifacts(project: Path = PROJECT) -> dict[str, str]:
    """File name in artifacts/ -> its text, compiled from scratch from the project's sources."""
    with tempfile.TemporaryDirectory(prefix="mxt-contracts-") as out:
        places = ("--out", f"{out}/out", "--cache-path", f"{out}/cache")
        done = forge("build", "--force", "--ast", "--skip", "test", *places, project=project)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return {
            f"{name}.json": _artifact(json.loads(Path(out, "out", source, f"{name}.json").read_text("utf-8")))
            for name, source in CONTRACTS.items()
        }


def _artifact(built: dict[str, Any]) -> str:
    settings = built["metadata"]["settings"]
    functions = {text: f"0x{selector}" for text, selector in built["methodIdentifiers"].items()}
    form = {
        "compiler": {
            "solc": built["metadata"]["compiler"]["version"],
            "evm": settings["evmVersion"],
            "optimizer_runs": settings["optimizer"]["runs"],
        },
        "abi": built["abi"],
        # Keccak-256 is not in Python: with these a client can call, and read logs and errors, without it
        "selectors": dict(sorted({**functions, **_definitions(built, "error")}.items())),
        "topics": _definitions(built, "event"),
        "bytecode": built["bytecode"]["object"],
        "deployed_bytecode": built["deployedBytecode"]["object"],
    }
    return json.dumps(form, indent=1) + "\n"


def _definitions(built: dict[str, Any], kind: str) -> dict[str, str]:
    """Of the contract's errors or events: signature -> selector."""
    nodes = [node for contract in built["ast"]["nodes"] for node in contract.get("nodes", [])]
    found = {}
    for node in nodes:
        if node["nodeType"] == f"{kind.capitalize()}Definition":
            types = ",".join(_type(parameter) for parameter in node["parameters"]["parameters"])
            found[f"{node['name']}({types})"] = f"0x{node[f'{kind}Selector']}"
    return found


def _type(parameter: dict[str, Any]) -> str:
    text: str = parameter["typeDescriptions"]["typeString"]
    return "address" if text.startswith("contract ") else text


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the contracts and write contracts/artifacts/.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if anything is out of date"
    )
    args = parser.parse_args()
    stale = []
    for name, text in artifacts().items():
        place = PROJECT / "artifacts" / name
        if place.is_file() and place.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not args.check:
            place.parent.mkdir(exist_ok=True)
            place.write_text(text, "utf-8")
    # the tests write snapshots/gas.json, or compare with it
    tested = forge("test", environment={"FORGE_SNAPSHOT_CHECK": "true"} if args.check else {})
    sys.stdout.write(tested.stdout if tested.returncode else "")
    for name in stale:
        print(f"{'out of date' if args.check else 'written'}: contracts/artifacts/{name}")
    return 1 if tested.returncode or (args.check and stale) else 0


if __name__ == "__main__":
    raise SystemExit(main())
