"""wordcount: the most frequent words of a text.

A rule is one file, and its name is the function that an MXTBUILD calls.
"""

from mxt.rule import Attributes, Label, Run, Target


class Attrs(Attributes):
    """text: a file or the target that makes it. top: how many words to keep."""

    text: Label
    top: int = 10


def actions(target: Target) -> None:
    """Analysis: says what will run and what it reads. No work, no heavy imports, no reading of files."""
    target.action(
        run=count,
        inputs={"text": target.attrs.text},
        outputs={"counts": "counts.txt"},
        params={"top": target.attrs.top},
    )


def count(run: Run) -> None:
    """Execution: in a process of its own, in a sandbox that holds the declared inputs only."""
    from collections import Counter

    words = run.inputs["text"].read_text(encoding="utf-8").split()
    if not words:
        raise run.fail("the text has no words", where=run.inputs["text"].name, hint="write something into it")
    run.report(note=f"{len(words)} words")
    # sorted by count, then by word: a result must not depend on the order of a dictionary
    ranked = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{number} {word}\n" for word, number in ranked[: run.params["top"]]]
    run.outputs["counts"].write_text("".join(lines), encoding="utf-8")
