"""load(), macros, and config() with a schema of the user's own."""

from __future__ import annotations

from tests.e2e.conftest import Workspace


def test_macros(ws: Workspace) -> None:
    ws.write(
        "lib/steps.mxt",
        """
        load(":names.mxt", "suffix")

        def upper(name, src, **kwargs):
            native.genrule(name = name + suffix, srcs = [src], outs = [name + ".txt"], cmd = "tr a-z A-Z < $< > $@", **kwargs)

        def chain(name, src, steps):
            last = src
            for i in range(steps):
                native.genrule(name = "%s_%d" % (name, i), srcs = [last], outs = ["%s_%d.out" % (name, i)], cmd = "(cat $<; echo %d) > $@" % i)
                last = ":%s_%d" % (name, i)
            return last
        """,
    )
    ws.write("lib/names.mxt", 'suffix = "_up"\n')
    ws.write("lib/MXTBUILD", "")
    ws.write(
        "p/MXTBUILD",
        """
        load("//lib:steps.mxt", "chain", loud = "upper")
        loud("hello", src = "in.txt", tags = ["t"])
        end = chain("c", ":hello_up", 3)
        filegroup(name = "end", srcs = [end])
        """,
    )
    ws.write("p/in.txt", "hello\n")
    assert ws.build("//p:end").executed == {"//p:hello_up", "//p:c_0", "//p:c_1", "//p:c_2"}
    assert ws.read("mxt-out/p/c_2/c_2.out") == "HELLO\n0\n1\n2\n"

    ws.write("lib/names.mxt", 'suffix = "_up"  # a comment\n')
    assert ws.build("//p:end").executed == set()
    ws.write("lib/names.mxt", 'suffix = "_loud"\n')
    result = ws.run("build", "//p:end")
    assert result.code == 1
    assert result.err.startswith(
        "error: p/MXTBUILD:3:7: no target or file '//p:hello_up', did you mean 'hello_loud'?\n"
    )


def test_an_error_in_a_macro_shows_both_places(ws: Workspace) -> None:
    ws.write("m.mxt", "def f(name):\n    native.genrule(nam = name)\n")
    ws.write("MXTBUILD", 'load("//:m.mxt", "f")\n\nf("x")\n')
    assert ws.run("build", "//...").err == (
        "error: m.mxt:2:5: genrule() needs a name\n"
        "        native.genrule(nam = name)\n"
        "        ^\n"
        "    called from MXTBUILD:3\n"
        '  hint: name = "..."\n'
    )


def test_load_errors(ws: Workspace) -> None:
    ws.write("a.mxt", 'load("//:b.mxt", "x")\n')
    ws.write("b.mxt", 'load("//:a.mxt", "x")\n')
    ws.write("one/MXTBUILD", 'load("//:a.mxt", "x")\n')
    ws.write("two/MXTBUILD", 'load("//:aa.mxt", "x")\n')
    ws.write("three/MXTBUILD", 'load("@mxt//rules:finetun.mxt", "finetune")\n')
    ws.write("four/MXTBUILD", 'load("//:c.mxt", "priv")\n')
    ws.write("c.mxt", "public = 1\n")
    for package, message in (
        ("one", "load() goes round in a circle: a.mxt -> b.mxt -> a.mxt"),
        ("two", "no file 'aa.mxt' to load, did you mean 'a.mxt'?"),
        ("three", "no file '@mxt//rules/finetun.mxt' to load, did you mean 'finetune.mxt'?"),
        ("four", "priv"),
    ):
        result = ws.run("build", f"//{package}:all")
        assert result.code == 1
        assert message in result.err


SCHEMA = """
    from pydantic import BaseModel, ConfigDict

    class Section(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        words: list[str]
        times: int = 2
        rate: float = 1.0

    class Schema(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        say: Section
        extra: Section | None = None
"""


def test_config_with_a_schema_of_ones_own(ws: Workspace) -> None:
    ws.write("rules/greeting.py", SCHEMA)
    ws.write(
        "MXTBUILD",
        """
        c = config("hello.yaml", schema = "greeting")
        genrule(name = "hi", outs = ["o"], cmd = "echo '%s' > $@" % ((" ".join(c["say"]["words"]) + " ") * c["say"]["times"] + str(c["extra"]) + " " + str(c["say"]["rate"])))
        """,
    )
    ws.write("hello.yaml", "say:\n  words: [a, b]\n")
    result = ws.run("build", ":hi")
    assert result.code == 2
    assert "this workspace has rules of its own that are not trusted: rules/greeting.py" in result.err
    assert ws.run("trust").code == 0
    ws.build(":hi")
    assert ws.read("mxt-out/hi/o") == "a b a b None 1.0\n"

    ws.write("hello.yaml", "# a comment\nsay: {words: [a, b], times: 2}\n")
    assert ws.build(":hi").executed == set()
    ws.write("hello.yaml", "say:\n  words: [a, b]\n  timse: 3\n")
    result = ws.run("build", ":hi")
    assert result.code == 1
    assert result.err == (
        "error: hello.yaml:3:3: unknown key 'timse', did you mean 'times'?\n      timse: 3\n      ^\n"
    )
    ws.write("hello.yaml", "say:\n  words: [a, b]\n  times: many\n")
    assert ws.run("build", ":hi").err.startswith("error: hello.yaml:3:10: 'say.times': ")
    ws.write("MXTBUILD", 'config("hello.yaml", schema = "greetin")\n')
    assert "no schema 'greetin' for config(), did you mean 'greeting'?" in ws.run("build", "//...").err
    ws.write("MXTBUILD", 'config("hallo.yaml", schema = "greeting")\n')
    assert "no file 'hallo.yaml' for config(), did you mean 'hello.yaml'?" in ws.run("build", "//...").err


def test_print_is_shown(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'print("hello", 1)\nfilegroup(name = "x", srcs = [])\n')
    assert ws.run("build", "//...").err == "DEBUG: MXTBUILD: hello 1\n"
