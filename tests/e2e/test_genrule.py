"""genrule has Bazel's meaning: variables, shell, environment, outputs."""

from __future__ import annotations

import os
import stat

import pytest

from tests.e2e.conftest import Workspace


def show(ws: Workspace, attrs: str, cmd: str) -> list[str]:
    """The lines that a genrule //p:x writes to its only output, o.txt."""
    ws.write("p/MXTBUILD", f'genrule(name = "x", outs = ["o.txt"], {attrs} cmd = {cmd!r})')
    ws.build("//p:x")
    return ws.read("mxt-out/p/x/o.txt").splitlines()


def test_variables(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "g", outs = ["g1", "sub/g2"], cmd = "for o in $(OUTS); do echo $$o > $$o; done")',
    )
    ws.write("p/a.txt", "")
    ws.write("p/sub/b.txt", "")
    srcs = 'srcs = ["a.txt", "sub/b.txt", "//:g"], tools = ["//:sub/g2"],'
    names = ["$@", "$(@D)", "$(RULEDIR)", "$(SRCS)", "$(OUTS)", "$(location a.txt)", "$(location :sub/b.txt)"]
    names += [
        "$(location //p:a.txt)",
        "$(locations //:g)",
        "$(location //:sub/g2)",
        "$(execpath o.txt)",
        "$$HOME",
        "$$$$",
    ]
    out = show(ws, srcs, "printf '%s\\n' " + " ".join(f'"{n}"' for n in names[:-1]) + " '$$$$' > $@")
    generated = "mxt-out/g/g1 mxt-out/g/sub/g2"
    assert out == [
        "mxt-out/p/x/o.txt",
        "mxt-out/p/x",
        "mxt-out/p/x",
        f"p/a.txt p/sub/b.txt {generated}",
        "mxt-out/p/x/o.txt",
        "p/a.txt",
        "p/sub/b.txt",
        "p/a.txt",
        generated,
        "mxt-out/g/sub/g2",
        "mxt-out/p/x/o.txt",
        "/tmp/home",
        "$$",
    ]
    ws.build("//:g")
    assert ws.read("mxt-out/g/sub/g2") == "mxt-out/g/sub/g2\n"


@pytest.mark.parametrize(
    ("attrs", "cmd", "message"),
    [
        (
            'outs = ["a", "b"]',
            "$@",
            "$@ needs exactly one output, there are 2\n  hint: use $(OUTS) or $(RULEDIR)",
        ),
        ('outs = ["a"]', "$<", "$< needs exactly one source, there are 0\n  hint: use $(SRCS)"),
        ('outs = ["a"]', "$(SRC)", "$(SRC) is not a variable of a genrule, did you mean 'SRCS'?"),
        (
            'outs = ["a"]',
            "$(date)",
            "$(date) is not a variable of a genrule\n  hint: write '$$(...)' for a command subst",
        ),
        (
            'outs = ["a"]',
            "$HOME",
            "'$HOME' is not a variable of a genrule\n  hint: write '$$' for a '$' meant for the shell",
        ),
        ('outs = ["a"]', "cost: 5$", "'$' is not a variable of a genrule\n  hint: write '$$'"),
        ('outs = ["a"]', "$(location nope)", "$(location nope) names neither a source nor an output"),
        ('outs = ["a"], srcs = ["MXTBUILD"]', "$(location MXTBUIL)", ", did you mean 'MXTBUILD'?"),
        (
            'outs = ["a"], srcs = [":g"]',
            "$(location :g)",
            "$(location :g) stands for 2 files\n  hint: use $(locations :g)",
        ),
    ],
)
def test_wrong_variables(ws: Workspace, attrs: str, cmd: str, message: str) -> None:
    ws.write(
        "MXTBUILD",
        f"""
        genrule(name = "x", {attrs}, cmd = {cmd!r})
        filegroup(name = "g", srcs = glob(["f*"], allow_empty = True))
        """,
    )
    ws.write("f1", "")
    ws.write("f2", "")
    result = ws.run("build", "-n", ":x")
    assert result.code == 1
    assert result.err.startswith("error: MXTBUILD:1:1: cmd: ")
    lines = result.err.splitlines()
    assert lines[2].strip() == "^"
    assert message in "\n".join([lines[0], *lines[3:]])


def test_quoting_reaches_bash_as_written(ws: Workspace) -> None:
    cmd = """x='a  b'; printf '%s|' "$$x" $$x 'it'"'"'s' "\\$$x" `echo tick` $$(echo sub) $$((1+2)) é > $@"""
    assert show(ws, "", cmd) == ["a  b|a|b|it's|$x|tick|sub|3|é|"]


def test_environment(ws: Workspace) -> None:
    umask = os.umask(0o077)
    try:
        out = show(
            ws, "", 'env -u PWD -u SHLVL -u _ | sort > $@; umask >> $@; ls -A "$$HOME" "$$TMPDIR" >> $@'
        )
    finally:
        os.umask(umask)
    assert out == [
        "HOME=/tmp/home",
        "LC_ALL=C.UTF-8",
        "PATH=/usr/bin:/bin",
        "SOURCE_DATE_EPOCH=0",
        "TMPDIR=/tmp",
        "TZ=UTC",
        "0022",
        "/tmp:",
        "home",
        "",
        "/tmp/home:",
    ]


def test_packages_may_be_called_like_the_engines_own_folders(ws: Workspace) -> None:
    for name in ("evidence", "progress", "tmp", "inputs", "outputs", "accelerants"):
        ws.write(f"{name}/MXTBUILD", 'genrule(name = "x", srcs = ["f"], outs = ["o"], cmd = "cat $< > $@")')
        ws.write(f"{name}/f", f"{name}\n")
    ws.build("//...")
    ws.build("//...", "--no-sandbox", "--store", "other")
    assert ws.read("mxt-out/evidence/x/o") == "evidence\n"


@pytest.mark.parametrize(
    "cmd", ["false; echo > $@", "false | true; echo > $@", "echo $$UNSET > $@", "( exit 4 ) > $@"]
)
def test_bash_stops_at_the_first_error(ws: Workspace, cmd: str) -> None:
    ws.write("MXTBUILD", f'genrule(name = "x", outs = ["o"], cmd = "{cmd}")')
    assert ws.build(":x", code=1).finished == {"//:x": "failed"}


def test_tools_and_executable(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "tool", outs = ["bin/greet"], executable = True,
                cmd = "printf '#!/bin/sh\\necho hello $$1\\n' > $@")
        genrule(name = "x", srcs = ["who"], tools = [":tool"], outs = ["o"],
                cmd = "$(location :tool) $$(cat $<) > $@; ./here.sh >> $@", )
        genrule(name = "y", tools = ["here.sh"], outs = ["o2"], cmd = "./$(location here.sh) > $@")
        """.replace("; ./here.sh >> $@", ""),
    )
    ws.write("who", "you\n")
    ws.write("here.sh", "#!/bin/sh\necho here\n").chmod(0o755)
    ws.build("//...")
    assert ws.read("mxt-out/x/o") == "hello you\n"
    assert ws.read("mxt-out/y/o2") == "here\n"
    mode = (ws.root / "mxt-out/tool/bin/greet").stat().st_mode
    assert stat.S_IMODE(mode) == 0o555
    assert stat.S_IMODE((ws.root / "mxt-out/x/o").stat().st_mode) == 0o444


def test_several_outputs_and_labels_of_output_files(ws: Workspace) -> None:
    ws.write(
        "p/MXTBUILD",
        """
        genrule(name = "two", outs = ["a.txt", "d/b.txt"], cmd = "echo a > $(location a.txt); echo b > $(location d/b.txt)")
        genrule(name = "by_file", srcs = ["d/b.txt"], outs = ["1"], cmd = "cp $< $@")
        genrule(name = "by_both", srcs = ["//p:two"], outs = ["2"], cmd = "cat $(SRCS) > $@")
        genrule(name = "by_hash", srcs = [":two#a.txt"], outs = ["3"], cmd = "cp $< $@")
        """,
    )
    assert ws.build("//p:d/b.txt").executed == {"//p:two"}  # the label of an output file means its genrule
    ws.build("//...")
    assert [ws.read(f"mxt-out/p/{x}") for x in ("by_file/1", "by_both/2", "by_hash/3")] == [
        "b\n",
        "a\nb\n",
        "a\n",
    ]
    assert ws.read("mxt-out/p/two/d/b.txt") == "b\n"


def test_an_output_folder(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "tree", outs = ["t/"], cmd = "mkdir $@/sub; echo 1 > $@/one; echo x > $@/sub/x; chmod +x $@/sub/x; ln -s sub/x $@/l; mkdir $@/empty")
        genrule(name = "list", srcs = [":tree"], outs = ["l"], cmd = "cd $<; find . -printf '%y %p %m\\n' | sort > $$OLDPWD/$@")
        """,
    )
    ws.build("//...")
    # read-only inside, whatever modes the maker left
    assert [line for line in ws.read("mxt-out/list/l").splitlines() if line[0] != "d"] == [
        "f ./one 444",
        "f ./sub/x 555",
        "l ./l 777",
    ]
    assert {line.split()[1] for line in ws.read("mxt-out/list/l").splitlines() if line[0] == "d"} == {
        ".", "./sub", "./empty"
    }  # fmt: skip
    assert (ws.root / "mxt-out/tree/t/l").read_text() == "x\n"


def test_an_empty_output_and_a_large_one(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", outs = ["e", "big"], cmd = ": > $(location e); head -c 5000000 /dev/zero > $(location big)")',
    )
    ws.build(":x")
    assert [(ws.root / f"mxt-out/x/{n}").stat().st_size for n in ("e", "big")] == [0, 5_000_000]


def test_names_with_spaces_and_beyond_ascii(ws: Workspace) -> None:
    ws.write(
        "pä/MXTBUILD",
        'genrule(name = "x y", srcs = ["ein gäbe.txt"], outs = ["ö.txt"], cmd = "cat \'$<\' > \'$@\'")',
    )
    ws.write("pä/ein gäbe.txt", "ü\n")
    ws.build("//pä:x y")
    assert ws.read("mxt-out/pä/x y/ö.txt") == "ü\n"


def test_many_inputs(ws: Workspace) -> None:
    """More than a sandbox mounts one by one."""
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = glob(["d/*"]), outs = ["o"], cmd = "cat $(SRCS) > $@; ! touch new 2>/dev/null; ! echo > d/1 2> /dev/null")',
    )
    for i in range(100, 300):
        ws.write(f"d/{i}", f"{i}\n")
    ws.build(":x")
    assert ws.read("mxt-out/x/o").split() == [str(i) for i in range(100, 300)]


def test_only_declared_inputs_are_there(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'genrule(name = "x", srcs = ["p/a"], outs = ["o"], cmd = "find . -type f > $$TMPDIR/l; sort $$TMPDIR/l > $@")',
    )
    for name in ("p/a", "p/b", "c"):
        ws.write(name, "")
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == "./p/a\n"


def test_a_link_to_a_source_is_its_content(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["link"], outs = ["o"], cmd = "cat $< > $@")')
    ws.write("real", "one\n")
    (ws.root / "link").symlink_to("real")
    ws.build(":x")
    ws.write("real", "two\n")
    ws.build(":x")
    assert ws.read("mxt-out/x/o") == "two\n"


def test_an_output_that_is_a_link_becomes_a_file(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "x", srcs = ["in"], outs = ["o"], cmd = "ln -s $$PWD/in $@")')
    ws.write("in", "in\n")
    result = ws.build(":x", code=None)
    if result.code == 0:
        assert not (ws.root / "mxt-out/x/o").is_symlink()
        assert ws.read("mxt-out/x/o") == "in\n"
    else:
        assert "as something other than a file" in result.err or "link" in result.err
