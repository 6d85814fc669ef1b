"""What pyproject.toml promises and what the toolchain holds are the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from mxt.action.toolchain import read_lock, read_pins
from mxt.action.toolchain_lock import normalise

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def versions(requirements: list[str]) -> dict[str, str]:
    return {normalise(name): version for name, _, version in (r.partition("==") for r in requirements)}


def test_every_requirement_is_pinned_as_in_the_toolchain() -> None:
    pins = versions(read_pins(REPOSITORY / "toolchains" / "cpu-py311.txt"))
    asked = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        asked += extra
    for name, version in versions(asked).items():
        assert pins.get(name) == version, name


def test_the_lock_and_the_pins_name_the_same_closure() -> None:
    lock = read_lock(REPOSITORY / "toolchains" / "cpu-py311.lock.json")
    pins = versions(read_pins(REPOSITORY / "toolchains" / "cpu-py311.txt"))
    # the local part says which build of torch: "2.13.0+cpu" is what "==2.13.0" must have found
    assert {d.name: d.version.partition("+")[0] for d in lock.distributions} == pins
    assert lock.distributions[[d.name for d in lock.distributions].index("torch")].version.endswith("+cpu")


def test_development_tools_are_no_part_of_the_closure() -> None:
    closure = versions(read_pins(REPOSITORY / "toolchains" / "cpu-py311.txt"))
    tools = versions(read_pins(REPOSITORY / "toolchains" / "dev-py311.txt"))
    assert not closure.keys() & tools.keys()


def test_the_engine_imports_only_what_it_declares() -> None:
    declared = {"blake3", "cryptography", "igraph", "packaging", "pydantic", "yaml", "starlark"}
    used: set[str] = set()
    for file in (REPOSITORY / "mxt").rglob("*.py"):
        for match in re.finditer(r"^\s*(?:from|import) ([a-zA-Z_0-9]+)", file.read_text(), re.MULTILINE):
            used.add(match[1])
    known = sys.stdlib_module_names | {"mxt"}
    assert used - known <= declared


def test_no_registry_is_named_in_pins_or_scripts() -> None:
    for name in (
        "toolchains/cpu-py311.txt",
        "toolchains/dev-py311.txt",
        "tools/setup.sh",
        "mxtw",
        "test",
        ".ci/run",
    ):
        assert "://" not in (REPOSITORY / name).read_text(), name


def test_the_command_starts_fast() -> None:
    """No heavy import before the verb is known (bare Python is 7 ms)."""
    code = "import sys; import mxt.cli.main; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(REPOSITORY)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {
        "pydantic",
        "rich",
        "asyncio",
        "numpy",
        "igraph",
        "yaml",
        "cryptography",
        "starlark",
        "argparse",
        "inspect",
        "ast",
    }
    assert not heavy & set(done.stdout.split())
