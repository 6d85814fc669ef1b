"""What runs inside a container has an image's own Python, 3.10 or newer, and maybe nothing but that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# names that Python 3.11 brought and that this code base uses elsewhere
_LOOK = """
import ast, datetime, enum, hashlib, importlib, pathlib, sys, types, typing
del datetime.UTC, enum.StrEnum, hashlib.file_digest
sys.modules["tomllib"] = None
sys.modules["typing"] = older = types.ModuleType("typing")  # the real one needs its names itself
older.__dict__.update({k: v for k, v in vars(typing).items() if k not in ("Self", "assert_never", "Never")})
sys.path.insert(0, sys.argv[1])
import mxt.execution.inside, mxt.loading.rule_modules, mxt.panels, mxt.store.progress
import mxt.rule
mxt.rule.executing = True
count = 0
for path in sorted(pathlib.Path(sys.argv[1], "rules").glob("*.py")):
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    if "actions" in names:
        importlib.import_module(f"rules.{path.stem}")
        count += 1
print(count)
"""


def test_stages_and_what_starts_them_need_the_standard_library_of_python_3_10_alone() -> None:
    # without site-packages; what a stage needs beside them it imports when it runs
    argv = [sys.executable, "-I", "-S", "-B", "-c", _LOOK, str(REPOSITORY)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 15
