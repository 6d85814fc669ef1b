"""Builds the contracts and writes what is committed of them: contracts/artifacts/ and contracts/snapshots/.

    python tools/make_contracts.py            build, test, write
    python tools/make_contracts.py --check    write nothing; exit 1 if anything is out of date

An artifact is what a client needs and what a reader compares with a chain: the interface, the code that creates the
contract, and the code that must then lie at its address. The same sources give the same bytes everywhere.
tools/setup-contracts.sh fetches the tools.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = REPOSITORY / "contracts"
CONTRACTS = {"MindxtrainRegistry": "mindxtrain_registry.sol", "X402Receiver": "x402_receiver.sol"}


def forge(*argv: str, project: Path = PROJECT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run forge in the project, without looking for its settings anywhere else."""
    return subprocess.run(
        [str(PROJECT / "node_modules/.bin/forge"), *argv],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(project / "out"), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def artifacts(project: Path = PROJECT) -> dict[str, str]:
    """File name in artifacts/ -> its text, compiled from scratch from the project's sources."""
    with tempfile.TemporaryDirectory(prefix="mxt-contracts-") as out:
        places = ("--out", f"{out}/out", "--cache-path", f"{out}/cache")
        built = forge("build", "--force", "--skip", "test", *places, project=project)
        if built.returncode:
            raise SystemExit(built.stdout + built.stderr)
        return {
            f"{name}.json": _artifact(json.loads(Path(out, "out", source, f"{name}.json").read_text("utf-8")))
            for name, source in CONTRACTS.items()
        }


def _artifact(built: dict[str, Any]) -> str:
    settings = built["metadata"]["settings"]
    form = {
        "compiler": {
            "solc": built["metadata"]["compiler"]["version"],
            "evm": settings["evmVersion"],
            "optimizer_runs": settings["optimizer"]["runs"],
        },
        "abi": built["abi"],
        "bytecode": built["bytecode"]["object"],
        "deployed_bytecode": built["deployedBytecode"]["object"],
    }
    return json.dumps(form, indent=1) + "\n"


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
    tested = forge("test", **({"FORGE_SNAPSHOT_CHECK": "true"} if args.check else {}))
    sys.stdout.write(tested.stdout if tested.returncode else "")
    for name in stale:
        print(f"{'out of date' if args.check else 'written'}: contracts/artifacts/{name}")
    return 1 if tested.returncode or (args.check and stale) else 0


if __name__ == "__main__":
    raise SystemExit(main())
