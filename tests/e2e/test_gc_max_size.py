"""mxt gc --max-size: what was used last stays as long as it fits, what is held stays always."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxt.errors import UsageError
from mxt.store.fit import parse_size
from tests.e2e.conftest import GATE, Workspace, at_gate, let_go, wait_for

MEBI = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000", 1000),
        ("12B", 12),
        ("1K", 1024),
        ("1KiB", 1024),
        ("1kb", 1000),
        ("50GB", 50 * 10**9),
        ("50G", 50 << 30),
        ("1.5T", 3 << 39),
        ("2 MiB", 2 << 20),
        ("9007199254740993P", 9007199254740993 << 50),
        ("0.1KB", 100),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "1e9", "5Q", "1,5G", "1 G B", "1GBB", "iB", "٣G", "1.G"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is no size"):
        parse_size(text)


def version(ws: Workspace, number: int) -> set[str]:
    """Build with another source; a makes 1 MiB, b another."""
    ws.write("in", f"{number}\n")
    return ws.build(":b").executed


@pytest.fixture
def versions(ws: Workspace) -> Workspace:
    """Three generations of two results of 1 MiB; the third is linked."""
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "a", srcs = ["in"], outs = ["o"], cmd = "(head -c 1048576 /dev/zero; cat $<) > $@")
        genrule(name = "b", srcs = [":a"], outs = ["p"], cmd = "(tail -c 2 $<; head -c 1048576 /dev/zero) > $@")
        """,
    )
    for number in (1, 2, 3):
        assert version(ws, number) == {"//:a", "//:b"}
    return ws


def kept(ws: Workspace) -> list[int]:
    """Which generations are found without running anything; leaves the third linked."""
    found = []
    for number in (1, 2, 3):
        ws.write("in", f"{number}\n")
        if "0 to run, 0 after them, 2 cached" in ws.run("build", "-n", ":b").out:
            found.append(number)
    return found


def test_the_least_recently_used_go_first(versions: Workspace) -> None:
    fits = versions.run("gc", "--max-size", "1G")
    assert fits.out.startswith("deleted 0 blobs, 0 results, 0 output folders, ")
    assert re.fullmatch(r"the store takes 6\.\d MiB of 1\.0 GiB", fits.out.splitlines()[1])
    assert versions.run("gc", "--max-size", "2gb").out.endswith(" MiB of 2gb (1.9 GiB)\n")
    assert version(versions, 1) == set()  # a use, though nothing ran
    assert version(versions, 3) == set()
    would = versions.run("gc", "-n", "--max-size", "5M")
    assert re.search(r"^would delete \d blobs, 2 results, 2 output folders, ", would.out)
    assert re.fullmatch(r"the store would take 4\.\d MiB of 5\.0 MiB", would.out.splitlines()[1])
    assert kept(versions) == [1, 2, 3]
    done = versions.run("gc", "--max-size", "5M")
    assert done.out == would.out.replace("would delete", "deleted").replace("would take", "takes")
    assert done.err == ""
    assert kept(versions) == [1, 3]
    assert versions.run("cache", "check").code == 0


def test_without_a_size_what_nothing_refers_to_goes(versions: Workspace) -> None:
    versions.run("gc")
    assert kept(versions) == [3]


def test_what_is_held_stays_whatever_the_size(versions: Workspace) -> None:
    done = versions.run("gc", "--max-size", "1M")
    assert done.code == 0
    assert re.fullmatch(
        r"warning: --max-size 1M cannot be reached: 2\.\d MiB must stay "
        r"\(results 2\.0 MiB, environments and indexes \d+\.\d KiB\)\n"
        r"  hint: results stay that mxt-out links to: delete the links of targets that you no longer want\n",
        done.err,
    )
    assert kept(versions) == [3]
    assert (versions.root / "mxt-out/b/p").stat().st_size > MEBI


def test_what_a_running_build_holds_stays(versions: Workspace) -> None:
    versions.write("in", "1\n")
    text = versions.read("MXTBUILD")
    versions.write(
        "MXTBUILD",
        text + f'genrule(name = "c", srcs = [":b"], outs = ["q"], cmd = "{GATE}; wc -c < $< > $@")\n',
    )
    process = versions.start("build", ":c")
    wait_for(lambda: at_gate(versions))
    assert versions.run("gc", "--max-size", "0").code == 0
    let_go(versions)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert kept(versions) == [1, 3]


def test_logs_of_failures_stay_while_they_fit(ws: Workspace) -> None:
    ws.write("MXTBUILD", 'genrule(name = "a", outs = ["o"], cmd = "echo why; exit 1")')
    ws.build(":a", code=1)
    ws.run("gc", "--max-size", "1G")
    assert ws.run("log", ":a").out == "why\n"
    ws.run("gc", "--max-size", "1")
    assert ws.run("log", ":a").code == 1


def test_a_bad_size(ws: Workspace) -> None:
    bad = ws.run("gc", "--max-size", "lots")
    assert bad.code == 2
    assert bad.err == (
        "error: 'lots' is no size\n"
        "  hint: write 50G or 50GiB (in 1024s), 50GB (in 1000s), or a number of bytes; units K, M, G, T, P\n"
    )
    assert not Path(ws.root, "cache").exists()


def test_what_an_interrupted_build_finished_stays(ws: Workspace) -> None:
    """Hours of training must not go because the evaluation after it was stopped."""
    ws.write(
        "MXTBUILD",
        """
        genrule(name = "train", outs = ["w"], cmd = "echo weights > $@")
        genrule(name = "eval", srcs = [":train"], outs = ["s"], cmd = "test ! -e $(location gate) && cat $(SRCS) > $@", tools = ["gate"])
        filegroup(name = "g", srcs = [":train", ":eval"])
        """,
    )
    ws.write("gate", "closed")
    assert ws.run("build", "//:eval").code == 1
    assert "0 results" in ws.run("gc").out
    ws.write("gate", "open")
    ws.write("MXTBUILD", ws.read("MXTBUILD").replace("test ! -e $(location gate) && ", ""))
    assert ws.build("//:eval").finished == {"//:train": "cached", "//:eval": "executed"}
