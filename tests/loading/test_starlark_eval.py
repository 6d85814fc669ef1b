"""What MXTBUILD and .mxt files can do, and how each mistake in them is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mxt.errors import LoadError
from mxt.loading.loader import Package
from tests.loading.conftest import Space

Build = Callable[[str], Package]


def test_a_rules_call_is_recorded(build: Build) -> None:
    target = build(
        'x = 1\ngenrule(\n    name = "a",\n    srcs = ["b"],\n    n = 1.0,\n    i = 1,\n    z = None,\n)\n'
    ).targets["a"]
    assert (target.rule, target.name, target.where, target.macro) == ("genrule", "a", "MXTBUILD:2:1", "")
    assert target.attrs == {"srcs": ["b"], "n": 1.0, "i": 1, "z": None}
    assert repr(target.attrs["n"]) == "1.0"


def test_comprehensions_and_columns(build: Build) -> None:
    targets = build('x = [genrule(name = "t%d" % i) for i in range(3)]; genrule(name = "u")\n').targets
    assert [t.where for t in targets.values()] == ["MXTBUILD:1:6"] * 4
    assert list(targets) == ["t0", "t1", "t2", "u"]


def test_json_values_survive(build: Build) -> None:
    attrs = (
        build(
            'genrule(name = "a", x = {"1": "nan", "null": None, "b": "{1: inf}"},'
            " t = (1, 2.0), s = struct(a = [True]),"
            ' f = [0.1, 1e300, -0.0, 5e-324], u = "é\\u2028\\n")\n'
        )
        .targets["a"]
        .attrs
    )
    assert attrs["x"] == {"1": "nan", "null": None, "b": "{1: inf}"}
    assert repr(attrs["t"]) == "[1, 2.0]"
    assert attrs["s"] == {"a": [True]}
    assert repr(attrs["f"]) == "[0.1, 1e+300, -0.0, 5e-324]"
    assert attrs["u"] == "é\u2028\n"


def test_macros(space: Space) -> None:
    space.write("m/m.mxt", 'load(":n.mxt", "two")\ndef one(name):\n    two(name = name)\n')
    space.write(
        "m/n.mxt",
        "def two(name):\n    genrule(name = name, here = package_name())\n"
        '    native.filegroup(name = name + "_f", srcs = native.glob(["*.x"]))\n',
    )
    space.write("p/a.x")
    space.write("p/MXTBUILD", 'load("//m:m.mxt", uno = "one")\n\nuno(name = "a")\n')
    package = space.load("p")
    assert package.targets["a"].where == "p/MXTBUILD:3:1"
    assert package.targets["a"].macro == "two at m/n.mxt:2"
    assert package.targets["a"].attrs == {"here": "p"}
    assert package.targets["a_f"].attrs == {"srcs": ["a.x"]}
    assert {"m/m.mxt", "m/n.mxt", "p/MXTBUILD"} == set(package.reads.files)


def test_a_loaded_file_is_read_once_and_counted_for_every_package(space: Space) -> None:
    space.write("n.mxt", "y = 1\n")
    space.write("m.mxt", 'load("//:n.mxt", "y")\nx = [y]\n')
    for package in ("p", "q"):
        space.write(f"{package}/MXTBUILD", 'load("//:m.mxt", "x")\n')
    loader = space.loader()
    assert {"m.mxt", "n.mxt"} < set(loader.package("p").reads.files)
    assert {"m.mxt", "n.mxt"} < set(loader.package("q").reads.files)


def test_loaded_values_are_frozen(space: Space) -> None:
    space.write("m.mxt", "x = [1]\n")
    space.write("MXTBUILD", 'load(":m.mxt", "x")\nx.append(2)\n')
    with pytest.raises(LoadError, match=r"immutable"):
        space.load()


def test_own_names_hide_built_in_ones(build: Build) -> None:
    assert (
        build('def filegroup(name):\n    genrule(name = name)\nfilegroup(name = "a")\n').targets["a"].rule
        == "genrule"
    )


def test_print_and_workspace(space: Space) -> None:
    space.write("MXTBUILD", 'workspace(name = "w", version = 1)\nprint("a", 1)\n')
    assert space.load().workspace == {"name": "w", "version": 1}
    assert space.printed == ["MXTBUILD: a 1"]


def test_windows_line_ends(build: Build) -> None:
    assert build('x = 1\r\ngenrule(name = "a")\r\n').targets["a"].where == "MXTBUILD:2:1"


MISTAKES = [
    # content, line:column, message
    ('genrul(name = "a")', "1:1", "unknown rule 'genrul', did you mean 'genrule'?"),
    ("\n  \nx = filegrop", "3:5", "unknown name 'filegrop', did you mean 'filegroup'?"),
    ("sources = 1\nx = surces", "2:5", "unknown name 'surces', did you mean 'sources'?"),
    ("qqqqqq()", "1:1", "unknown rule 'qqqqqq'"),
    ('x = ["a"].apend(1)', "1:5", "object of type 'list' has no attribute 'apend', did you mean 'append'?"),
    ('x = {"a": 1}["b"]', "1:5", "key 'b' was not found"),
    ("x = 1 // 0", "1:5", "floor division by zero: 1 // 0"),
    ('genrule(cmd = "x")', "1:1", "genrule() needs a name"),
    ('genrule("a")', "1:1", "genrule() takes named arguments only"),
    ("genrule(name = 3)", "1:1", "name of genrule() must be text, not '3'"),
    ('genrule(name = "../a")', "1:1", "name '../a': goes up with '..'"),
    ('genrule(name = "a#b")', "1:1", "name 'a#b': must not hold '#'"),
    ('genrule(name = "a")\n\ngenrule(name = "a")', "3:1", "target 'a' is already defined at MXTBUILD:1:1"),
    ('genrule(name = "a", name = "b")', "1:21", "repeated named argument"),
    ('genrule(name = "a", x = len)', "1:1", "a function cannot be the value of an attribute"),
    ('genrule(name = "a", x = range(3))', "1:1", "a range cannot be the value of an attribute"),
    (
        'genrule(name = "a", x = [float("nan")])',
        "1:1",
        "nan cannot be the value of an attribute of genrule()",
    ),
    ('genrule(name = "a", x = -1e308 * 10)', "1:1", "-inf cannot be the value of an attribute of genrule()"),
    ('genrule(name = "a", x = {1: 2})', "1:1", "a dict in an attribute of genrule() has the key 1"),
    ('genrule(name = "a", x = {None: 2})', "1:1", "a dict in an attribute has a key that is not text"),
    ('genrule(name = "a", big = [1 << 60])', "1:1", "'big' of genrule() holds an integer beyond 2^53"),
    (
        "x = []\nx.append(x)\ngenrule(name = 'a', x = x)",
        "3:1",
        "a value that contains itself cannot be the value of an attribute",
    ),
    ('x = glob(["*.nope"])', "1:5", "glob pattern '*.nope' matches no file"),
    ('x = glob("a")', "1:5", "include of glob() must be a list of patterns, not 'a'"),
    ("x = glob([1])", "1:5", "glob pattern '1' must be text"),
    ('x = glob(["a"], bogus = 1)', "1:5", "glob() has no parameter 'bogus'"),
    ("x = glob()", "1:5", "glob() needs the parameter 'include'"),
    ('fail("no", 3)', "1:1", "no 3"),
    ("def f(a):\n    pass\nf()", "3:1", "f() needs the parameter 'a'"),
    ("def f(a):\n    pass\nf(1, b = 2)", "3:1", "f() has no parameter 'b'"),
    ("def f(a):\n    pass\nf(1, 2)", "3:1", "f() takes fewer positional arguments"),
    ("x = foo\nfoo = 1", "1:5", "local variable 'foo' referenced before assignment"),
    ("for x in [1]:\n    pass", "1:1", "'for' stands outside a function"),
    ("if True:\n    pass", "1:1", "'if' stands outside a function"),
    ("import os", "1:1", "'import' is a reserved word"),
    ("while True:\n  pass", "1:1", "'while' is a reserved word"),
    ("x = [1,\n\n", "1:5", "'[' is never closed"),
    ("x = 1 +", "1:8", "the statement ends too early"),
    ('x = "abc\ny = 1', "1:5", "syntax error: unfinished string literal"),
    ("x = 1\n\tx = 1", "2:1", "tabs are not allowed"),
    ("  x = 1", "1:1", "unexpected indentation"),
    ("def f():\nx = 1", "2:1", "an indented block is missing"),
    ("a b", "1:3", "syntax error: unexpected identifier 'b'"),
    ("workspace(name = 'a')\nworkspace(name = 'b')", "2:1", "workspace() is called twice"),
    ('load("//nope:x.mxt", "x")', "1:1", "no package '//nope' for load('//nope:x.mxt')"),
    ('load(":macro.mxt", "x")', "1:1", "no file 'macro.mxt' to load, did you mean 'macros.mxt'?"),
    ('load(":macros.mxt", "macroo")', "1:21", "module has no symbol 'macroo', did you mean 'macro'?"),
    ('load(":macros.mxt", "_hidden")', "1:21", "cannot import private symbol '_hidden'"),
    ('load("macros.bzl", "x")', "1:1", "load() takes a .mxt file, not 'macros.bzl'"),
    ('load("../x.mxt", "x")', "1:1", "label '../x.mxt': goes up with '..'"),
    ('load("/etc/x.mxt", "x")', "1:1", "label '/etc/x.mxt': is an absolute path"),
    ('load("@foo//a:x.mxt", "x")', "1:1", "label '@foo//a:x.mxt': unknown repository '@foo'"),
    ('load("@mxt//a:x.mxt", "x")', "1:1", "no package '@mxt//a'"),
]


@pytest.mark.parametrize(("content", "place", "message"), MISTAKES, ids=[m[0][:40] for m in MISTAKES])
def test_mistakes(space: Space, build: Build, content: str, place: str, message: str) -> None:
    space.write("macros.mxt", "def macro():\n    pass\n_hidden = 1\n")
    with pytest.raises(LoadError) as caught:
        build(content + "\n")
    problem = caught.value
    assert (problem.where, problem.message) == (f"MXTBUILD:{place}", message)
    line, column = (int(n) for n in place.split(":"))
    shown, caret = problem.excerpt.split("\n")[:2]
    assert shown == "    " + content.split("\n")[line - 1].replace("\t", " ")
    assert caret == " " * (4 + column - 1) + "^"


def test_a_mistake_in_a_macro_names_the_call(space: Space) -> None:
    space.write(
        "m.mxt", "def outer(name):\n    inner(name)\ndef inner(n):\n    genrule(name = n, cmd = len)\n"
    )
    space.write("MXTBUILD", 'load(":m.mxt", "outer")\n\nouter(\n    name = "x",\n)\n')
    with pytest.raises(LoadError) as caught:
        space.load()
    assert str(caught.value) == (
        "m.mxt:4:5: a function cannot be the value of an attribute\n"
        "        genrule(name = n, cmd = len)\n"
        "        ^\n"
        "    called from MXTBUILD:3\n"
        "  hint: attributes are text, numbers, booleans, None, and lists and dicts of them"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('genrule(name = "x")', "genrule() is called while a .mxt file is loaded"),
        ('x = glob(["*"])', "glob() is called while a .mxt file is loaded"),
        ("x = package_name()", "package_name() is called while a .mxt file is loaded"),
        ("x = undefined_thing", "unknown name 'undefined_thing'"),
        ('load("//:m.mxt", "y")\nx = 1', "load() goes round in a circle: m.mxt -> m.mxt"),
        ('load("//:back.mxt", "z")\nx = 1', "load() goes round in a circle: m.mxt -> back.mxt -> m.mxt"),
    ],
)
def test_mistakes_at_the_top_of_a_loaded_file(space: Space, content: str, message: str) -> None:
    space.write("m.mxt", content + "\n")
    space.write("back.mxt", 'load("//:m.mxt", "x")\n')
    space.write("MXTBUILD", 'load(":m.mxt", "x")\n')
    with pytest.raises(LoadError) as caught:
        space.load()
    assert caught.value.message == message


def test_files_that_are_not_text(space: Space) -> None:
    space.write("MXTBUILD", b"x = 1\ny = '\xff'\n")
    with pytest.raises(LoadError, match=r"is not UTF-8") as caught:
        space.load()
    assert caught.value.where == "MXTBUILD:2:6"


def test_workspace_below_the_root(space: Space) -> None:
    space.write("p/MXTBUILD", 'x = 1\nworkspace(name = "x")\n')
    with pytest.raises(LoadError, match=r"workspace\(\) belongs into the MXTBUILD of a workspace's root"):
        space.load("p")


def test_a_link_to_a_loaded_file_outside(space: Space) -> None:
    (space.root.parent / "out.mxt").write_text("x = 1\n")
    (space.root / "m.mxt").symlink_to("../out.mxt")
    space.write("MXTBUILD", 'load(":m.mxt", "x")\n')
    with pytest.raises(LoadError, match=r"'m.mxt' leads out of the workspace"):
        space.load()
