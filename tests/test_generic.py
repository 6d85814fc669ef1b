"""mxt/ knows nothing of machine learning: what it says and what it looks at names none of it.

Comments, docstrings and examples of the command line may: they are for readers, and examples should be real.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

MXT = Path(__file__).parents[1] / "mxt"
WORDS = re.compile(
    r"torch|transformers\b|hugging|\bHF_|tokenizer|safetensors|\bepoch|\bgguf|\badapter|\blora\b|\bpeft\b|\btrl\b"
    r"|\bquark\b|\bvllm\b|perplexity|(?<!-)\bgradient|\boptimizer|\bpretrain|\b(trains|trained|training|tuned|quantiz\w+)\b"
    r"|\bneural|\bcuda\b|\bhip\b|\bdataset|\bloss\b|\blearning.rate",
    re.IGNORECASE,
)
# what mxt is for, on the first line of its help
ALLOWED = ("A build system for fine-tuned language models",)


def spoken(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts and names of a module that do something: no docstring, no EXAMPLES."""
    silent: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "EXAMPLES" for t in node.targets):
            silent.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in silent:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr


def found_in(source: str) -> list[str]:
    out = []
    for line, text in spoken(ast.parse(source)):
        if (word := WORDS.search(text)) and not any(allowed in text for allowed in ALLOWED):
            out.append(f"{line}: '{word[0]}' in {text[:60]!r}")
    return out


@pytest.mark.parametrize("folder", sorted({str(p.parent.relative_to(MXT)) for p in MXT.rglob("*.py")}))
def test_no_word_of_machine_learning(folder: str) -> None:
    found = [
        f"mxt/{path.relative_to(MXT)}:{one}"
        for path in sorted((MXT / folder).glob("*.py"))
        for one in found_in(path.read_text("utf-8"))
    ]
    assert found == []


def test_what_it_would_find() -> None:
    assert found_in('"""torch"""\nEXAMPLES = "torch"\n# torch\nx = "a touch of torch"') == [
        "4: 'torch' in 'a touch of torch'"
    ]
    assert found_in("y = z.cuda\nw = linear - tokenizer") == [
        "1: 'cuda' in 'cuda'",
        "2: 'tokenizer' in 'tokenizer'",
    ]


def test_scaffold_files_are_generic() -> None:
    for path in (MXT / "scaffold/files").iterdir():
        assert not WORDS.search(path.read_text("utf-8")), path.name
