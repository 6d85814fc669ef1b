"""Changing one argument of a call, and no other byte of the file."""

from __future__ import annotations

import pytest

from mxt.cli.call_text import UnplacedError, with_argument

FILE = '''\
# toolchain(name = "no", digest = "comment")
other(digest = "no")
  toolchain(  # digest = "no"
    name = "t", tags = ["digest", "digest = 'no'"],
    image = \'it(s\',
    digest = "old",  # why
)
toolchain(name = "u", image = "i", digest="""old""")
toolchain(name = "v", image = "i")
toolchain(
    name = "w",
    image = "i",
)
toolchain(name = "x", image = "i", digest = PINNED)
toolchain(name = "y", image = "i", digest = "a" + "b")
[toolchain(name = n, image = "i", digest = "old") for n in ["z"]]
pinned(name = "p")
toolchain(name = "q", image = "i", digest = "old"
'''


def changed(line: int, column: int = 1) -> tuple[str, str]:
    """The lines that differ: before, after."""
    after = with_argument(FILE, line, column, "digest", "new", after="image")
    old, new = FILE.splitlines(), after.splitlines()
    while old and old[0] == new[0]:
        del old[0], new[0]
    while old and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "\n".join(old), "\n".join(new)


def test_a_string_is_replaced_where_it_stands() -> None:
    assert changed(3, 3) == ('    digest = "old",  # why', '    digest = "new",  # why')
    before, after = changed(8)
    assert before.replace('"""old"""', '"new"') == after.replace('"""', '"').replace('""new""', '"new"')
    assert changed(16, 2)[1].startswith('[toolchain(name = n, image = "i", digest = "new")')


def test_an_argument_that_is_not_there_is_put_behind_another() -> None:
    assert changed(9)[1] == 'toolchain(name = "v", image = "i", digest = "new")'
    assert changed(10) == ("", '    digest = "new",')


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        (14, 1, "no plain string"),
        (15, 1, "no plain string"),
        (17, 1, "is a plain string there"),
        (18, 1, "does not end"),
        (7, 1, "stands in a macro"),
        (99, 1, "has changed"),
    ],
)
def test_what_cannot_be_placed(line: int, column: int, problem: str) -> None:
    with pytest.raises(UnplacedError, match=problem):
        with_argument(FILE, line, column, "digest", "new", after="image")
