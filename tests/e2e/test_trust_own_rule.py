"""A user's own rule, worked through: written, refused, trusted, built, changed, and used as a test."""

from __future__ import annotations

from tests.e2e.conftest import Workspace

WORDCOUNT = '''
"""wordcount(name, srcs, top): the most frequent words of some texts, as JSON."""

import json
from collections import Counter

from mxt.rule import Attributes, Labels, Run, Target


class Attrs(Attributes):
    srcs: Labels
    top: int = 3


def actions(target: Target) -> None:
    target.action(
        run=count,
        inputs={"texts": list(target.attrs.srcs)},
        outputs={"counts": "counts.json"},
        params={"top": target.attrs.top},
    )


def count(run: Run) -> None:
    words: Counter[str] = Counter()
    for step, path in enumerate(run.inputs["texts"], 1):
        words.update(path.read_text().split())
        run.report(step=step, of=len(run.inputs["texts"]))
    if not words:
        raise run.fail("there are no words", where=str(run.inputs["texts"][0]), hint="give it texts with words")
    most = sorted(words.items(), key=lambda item: (-item[1], item[0]))[: run.params["top"]]
    run.outputs["counts"].write_text(json.dumps(dict(most)) + "\\n")
    (run.evidence / "seen.txt").write_text(f"{len(words)} words\\n")
'''


def words(ws: Workspace) -> Workspace:
    ws.write("rules/wordcount.py", WORDCOUNT)
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "more", outs = ["more.txt"], cmd = "echo a b a > $@")
        wordcount(name = "count", srcs = ["one.txt", ":more"], top = 2)
        """,
    )
    ws.write("one.txt", "b b c b\n")
    return ws


def test_a_rule_from_nothing_to_changed(ws: Workspace) -> None:
    words(ws)
    marker = ws.root / "ran"
    ws.write("rules/wordcount.py", WORDCOUNT + f'\nopen("{marker}", "w").close()\n')
    refused = ws.run("build", ":count")
    assert refused.code == 2
    assert refused.err == (
        "error: this workspace has rules of its own that are not trusted: rules/wordcount.py\n"
        "  hint: rules are code that runs as you: read them, then run 'mxt trust'\n"
    )
    assert not marker.exists()  # nothing of it ran
    for verb in ("explain", "test", "log"):
        assert ws.run(verb, ":count").code == 2
    assert not marker.exists()

    ws.write("rules/wordcount.py", WORDCOUNT)
    trusted = ws.run("trust")
    assert trusted.code == 0
    assert "rules/wordcount.py" in trusted.out
    assert trusted.out.splitlines()[-1] == f"trusted 1 file of {ws.root}"

    assert ws.build(":count").executed == {"//:more", "//:count"}
    assert ws.read("mxt-out/count/counts.json") == '{"b": 4, "a": 2}\n'
    assert ws.build(":count").executed == set()

    # another byte: asked again, then run again
    ws.write("rules/wordcount.py", WORDCOUNT.replace("-item[1]", "item[1]"))
    assert ws.run("build", ":count").err == (
        "error: rules differ from what was trusted: rules/wordcount.py changed\n"
        "  hint: read the change, then run 'mxt trust'\n"
    )
    ws.run("trust")
    result = ws.build(":count")
    assert result.executed == {"//:count"}
    assert set(result.reason("//:count")) == {"implementation.digest"}
    assert ws.read("mxt-out/count/counts.json") == '{"c": 1, "a": 2}\n'

    assert ws.run("trust", "--revoke").out == f"no longer trusts {ws.root}\n"
    assert ws.build(":count", code=2).events == []


def test_what_else_is_part_of_a_rule(ws: Workspace) -> None:
    """Private modules beside it and its declared data are its code too; what it does not declare is not."""
    words(ws)
    text = WORDCOUNT.replace("import json\n", "import json\nfrom rules._order import order\n", 1)
    ws.write(
        "rules/wordcount.py", text.replace("(-item[1], item[0])", "order(item)") + '\nDATA = ("stop.txt",)\n'
    )
    ws.write("rules/_order.py", "def order(item):\n    return (-item[1], item[0])\n")
    ws.write("rules/stop.txt", "the\n")
    ws.run("trust")
    ws.build(":count")
    ws.write("rules/unrelated.txt", "")
    assert ws.build(":count").executed == set()
    ws.write("rules/stop.txt", "a\n")
    assert ws.build(":count").executed == {"//:count"}
    ws.write("rules/_order.py", "def order(item):\n    return (item[1], item[0])\n")
    assert ws.run("build", ":count").code == 2
    ws.run("trust")
    assert ws.build(":count").executed == {"//:count"}


def test_a_version_stands_for_the_code(ws: Workspace) -> None:
    words(ws)
    ws.write("rules/wordcount.py", WORDCOUNT + "\nVERSION = 1\n")
    ws.run("trust")
    ws.build(":count")
    ws.write("rules/wordcount.py", WORDCOUNT + "\nVERSION = 1  # the same\n")
    ws.run("trust")
    assert ws.build(":count").executed == set()
    ws.write("rules/wordcount.py", WORDCOUNT + "\nVERSION = 2\n")
    ws.run("trust")
    assert ws.build(":count").reason("//:count") == {"implementation.version": ("1", "2")}


def test_errors_of_a_stage_name_the_workspaces_files(ws: Workspace) -> None:
    words(ws)
    ws.write("one.txt", "")
    ws.write("MXTBUILD", 'wordcount(name = "count", srcs = ["one.txt"])')
    ws.run("trust")
    result = ws.build(":count", code=1)
    assert (
        "error: one.txt: there are no words\n  hint: give it texts with words\n  in: //:count\n" in result.err
    )
    ws.write("rules/wordcount.py", WORDCOUNT.replace("words.update", "wrods.update"))
    ws.run("trust")
    ws.write("one.txt", "a\n")
    result = ws.build(":count", code=1)
    assert "error: //:count: Count failed: NameError: name 'wrods' is not defined" in result.err
    assert "wordcount.py" in result.err


def test_rules_that_do_not_load(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'broken(name = "x")\n')
    for text, message in (
        ("x =\n", "error: rules/broken.py:1:4: not valid Python: invalid syntax"),
        ("import nonesuch\n", "error: rules/broken.py:1: cannot import rule file: ModuleNotFoundError"),
        ("1 / 0\n", "error: rules/broken.py:1: cannot import rule file: ZeroDivisionError: division by zero"),
        ("", "rule 'broken' defines no 'Attrs'"),
    ):
        ws.write("rules/broken.py", text)
        ws.run("trust")
        result = ws.run("build", ":x")
        assert result.code in (1, 2)
        assert message in result.err
    ws.write(
        "rules/broken.py",
        """
        from mxt.rule import Attributes

        class Attrs(Attributes):
            pass

        def actions(target):
            return target.attrs.nonesuch
        """,
    )
    ws.run("trust")
    result = ws.run("build", ":x")
    assert result.code == 1
    assert result.err == (
        "error: MXTBUILD:1:1: rule 'broken' failed on '//:x', at rules/broken.py:7: "
        "AttributeError: 'Attrs' object has no attribute 'nonesuch'\n"
        '    broken(name = "x")\n'
        "    ^\n"
    )


def test_a_rule_that_is_not_pure_python_of_the_user_is_not_asked_for(ws: Workspace) -> None:
    """Core rules need no trust, even in a workspace with rules of its own that it does not use."""
    words(ws)
    assert ws.build(":more").executed == {"//:more"}


def test_a_rule_may_not_take_a_built_in_name(ws: Workspace) -> None:
    ws.write("rules/genrule.py", "")
    result = ws.run("build", "//...")
    assert result.code == 2
    assert "rules/genrule.py takes the name of a rule that comes with mxt" in result.err


def test_evidence_is_kept_and_not_keyed(ws: Workspace) -> None:
    words(ws)
    ws.run("trust")
    ws.build(":count")
    assert ws.run("log", ":count", "--file", "seen.txt").out == "3 words\n"
    assert sorted(p.name for p in (ws.root / "mxt-out/count").iterdir()) == ["counts.json"]
