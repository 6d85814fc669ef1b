"""What is wrong with an MXTBUILD is shown with file, line, column, the line, a caret, and the way out."""

from __future__ import annotations

import time

import pytest

from tests.e2e.conftest import Workspace

# content -> the whole of standard error
EXACT: dict[str, tuple[str, str]] = {
    "unknown rule": (
        'genrul(name = "x")\n',
        "MXTBUILD:1:1: unknown rule 'genrul', did you mean 'genrule'?\n    genrul(name = \"x\")\n    ^\n",
    ),
    "unknown rule, far from any": (
        '\n\n  \nwibble(name = "x")\n',
        "MXTBUILD:4:1: unknown rule 'wibble'\n    wibble(name = \"x\")\n    ^\n",
    ),
    "unknown name": (
        'x = glob(["*"])\nfilegroup(name = "f", srcs = xs)\n',
        "MXTBUILD:2:30: unknown name 'xs'",
    ),
    "unclosed": (
        'genrule(\n    name = "x",\n',
        "MXTBUILD:1:8: '(' is never closed\n    genrule(\n           ^\n",
    ),
    "tab": (
        "def f():\n\tpass\n",
        "MXTBUILD:2:1: tabs are not allowed",
    ),
    "import": (
        "import os\n",
        (
            "MXTBUILD:1:1: 'import' is a reserved word\n    import os\n    ^\n"
            '  hint: write load("//package:file.mxt", "name")\n'
        ),
    ),
    "for": (
        "for x in []:\n    pass\n",
        "MXTBUILD:1:1: 'for' stands outside a function",
    ),
    "no name": (
        'genrule(outs = ["o"], cmd = "")\n',
        'MXTBUILD:1:1: genrule() needs a name\n    genrule(outs = ["o"], cmd = "")\n    ^\n  hint: name = "..."\n',
    ),
    "unknown attribute": (
        'genrule(name = "x", out = ["o"], cmd = "")\n',
        "MXTBUILD:1:1: genrule 'x' has no attribute 'out', did you mean 'outs'?",
    ),
    "missing attribute": (
        'genrule(name = "x", outs = ["o"])\n',
        "MXTBUILD:1:1: genrule 'x' lacks the attribute 'cmd'",
    ),
    "wrong type": (
        'genrule(name = "x", outs = "o", cmd = "")\n',
        "MXTBUILD:1:1: attribute 'outs' of genrule 'x' must be a list, not 'o'",
    ),
    "wrong type in a list": (
        'genrule(name = "x", outs = ["o", 1], cmd = "")\n',
        "MXTBUILD:1:1: attribute 'outs' of genrule 'x' must be a list of text; it holds 1",
    ),
    "a boolean is no number": (
        'genrule(name = "x", outs = ["o"], cmd = "", cpus = True)\n',
        "MXTBUILD:1:1: attribute 'cpus' of genrule 'x' must be a whole number, not True",
    ),
    "positional": (
        'genrule("x")\n',
        "MXTBUILD:1:1: genrule() takes named arguments only",
    ),
    "fail": (
        'fail("not like this")\n',
        'MXTBUILD:1:1: not like this\n    fail("not like this")\n    ^\n',
    ),
    "division by zero": ("x = 1 // 0\n", "MXTBUILD:1:5: "),
    "recursion": (
        "def f(n):\n    return f(n + 1)\nf(0)\n",
        "MXTBUILD:2:12: recursion is too deep",
    ),
    "not UTF-8": ("x = '\udcff'\n", "MXTBUILD:1:6: is not UTF-8\n  hint: save it as UTF-8\n"),
    "integer beyond 2^53": (
        f'platform(name = "p", arch = "x", threads = {2**53 + 1})\n',
        "MXTBUILD:1:1: 'threads' of platform() holds an integer beyond 2^53",
    ),
    "a function as a value": (
        'genrule(name = "x", outs = ["o"], cmd = glob)\n',
        "MXTBUILD:1:1: a function cannot be the value of an attribute",
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_message(ws: Workspace, case: str) -> None:
    content, expected = EXACT[case]
    ws.write("MXTBUILD", content.encode("utf-8", "surrogateescape"))
    result = ws.run("build", "-n", "//...")
    assert (result.code, result.out) == (1, "")
    if expected.endswith("\n"):
        assert result.err == f"error: {expected}"
    else:
        assert result.err.startswith(f"error: {expected}"), result.err
        assert result.err.splitlines()[2].strip() == "^", result.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "def f():\n    for i in range(1000000000):\n        pass\nf()\n",
            "MXTBUILD:2:5: evaluation takes longer than 0.5 s",
        ),
        ("x = [0] * 1000000000\n", "MXTBUILD"),
        ("x = 'a' * 5000000000\n", "MXTBUILD"),
        ("x = " + "[" * 20000 + "]" * 20000 + "\n", "MXTBUILD:1:"),
        ("x = " + "(" * 200000 + "\n", "MXTBUILD:1:"),
        ("x = " + "+".join(["1"] * 200000) + "\n", "MXTBUILD"),
        ("#" * (5 << 20), "MXTBUILD: is larger than 4 MiB"),
    ],
    ids=["endless", "huge list", "huge text", "deep list", "open brackets", "long sum", "huge file"],
)
def test_files_that_would_eat_the_machine(ws: Workspace, content: str, message: str) -> None:
    ws.write("MXTBUILD", content.encode())
    began = time.monotonic()
    result = ws.run("build", "-n", "//...", env={"MXT_LOAD_TIMEOUT": "0.5"})
    assert time.monotonic() - began < 15
    assert (result.code, result.out) == (1, "")
    assert message in result.err.splitlines()[0]
    assert result.err.startswith("error: MXTBUILD")
    assert len(result.err) < 2000


def test_an_error_in_one_package_names_it(ws: Workspace) -> None:
    ws.write("deep/er/MXTBUILD", '# a comment\n\nfilegroup(name = "x", scrs = [])\n')
    assert ws.run("build", "//...").err == (
        "error: deep/er/MXTBUILD:3:1: filegroup 'x' has no attribute 'scrs', did you mean 'srcs'?\n"
        '    filegroup(name = "x", scrs = [])\n'
        "    ^\n"
        "  hint: its attributes: name, srcs, tags, toolchain, platform\n"
    )


def test_attributes_of_a_python_rule(ws: Workspace) -> None:
    ws.write(
        "rules/echo.py",
        """
        from mxt.rule import Attributes

        class Attrs(Attributes):
            text: str
            times: int = 1

        def actions(target):
            target.action(run=run, outputs={"o": "o"})

        def run(run):
            run.outputs["o"].write_text("x")
        """,
    )
    ws.run("trust")
    ws.write("MXTBUILD", 'echo(name = "x", txt = "t", times = "many")\n')
    assert ws.run("build", "//...").err.startswith(
        "error: MXTBUILD:1:1: echo 'x' lacks the attribute 'text'; "
        "attribute 'times': input should be a valid integer; "
        "has no attribute 'txt', did you mean 'text'?\n"
    )
