"""A workspace's own rules run only as they were when the user trusted them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mxt.errors import UsageError
from mxt.loading.trust import check_trust, distrust, rule_digests, trust, trust_file
from tests.loading.conftest import Space


@pytest.fixture
def ruled(space: Space) -> Space:
    space.write("rules/one.py", "VALUE = 1\n")
    space.write("rules/_helper.py", "")
    space.write("rules/sub/deep.py", "")
    space.write("rules/__pycache__/one.cpython-311.pyc", b"planted")
    space.write("rules/macro.mxt", "x = 1\n")
    return space


def check(space: Space) -> None:
    check_trust(space.root, rule_digests(space.root / "rules"), space.environ)


def test_untrusted_names_the_files_and_the_command(ruled: Space) -> None:
    with pytest.raises(UsageError) as caught:
        check(ruled)
    assert "rules/_helper.py, rules/one.py, rules/sub/deep.py" in caught.value.message
    assert "mxt trust" in caught.value.hint


def test_trusted(ruled: Space) -> None:
    assert sorted(trust(ruled.root, ruled.environ)) == [
        "rules/_helper.py",
        "rules/one.py",
        "rules/sub/deep.py",
    ]
    check(ruled)


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("rules/one.py", "VALUE = 2\n", "rules/one.py changed"),
        ("rules/_helper.py", "#", "rules/_helper.py changed"),
        ("rules/new.py", "", "rules/new.py is new"),
        ("rules/one.py", None, "rules/one.py is gone"),
    ],
)
def test_any_change_takes_the_trust_away(ruled: Space, path: str, content: str | None, says: str) -> None:
    trust(ruled.root, ruled.environ)
    if content is None:
        (ruled.root / path).unlink()
    else:
        ruled.write(path, content)
    with pytest.raises(UsageError, match=f"rules differ from what was trusted: {says}"):
        check(ruled)
    trust(ruled.root, ruled.environ)
    check(ruled)


def test_trust_is_for_one_workspace(ruled: Space, tmp_path: Path) -> None:
    trust(ruled.root, ruled.environ)
    with pytest.raises(UsageError, match=r"not trusted"):
        check_trust(tmp_path / "other", rule_digests(ruled.root / "rules"), ruled.environ)
    assert distrust(ruled.root, ruled.environ)
    assert not distrust(ruled.root, ruled.environ)
    with pytest.raises(UsageError, match=r"not trusted"):
        check(ruled)


def test_the_file_is_the_users(ruled: Space) -> None:
    trust(ruled.root, ruled.environ)
    file = trust_file(ruled.environ)
    assert file == Path(ruled.environ["XDG_CONFIG_HOME"]) / "mxt/trust.json"
    assert file.parent.stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0
    assert list(json.loads(file.read_text())["workspaces"]) == [os.path.realpath(ruled.root)]
    assert os.listdir(file.parent) == ["trust.json"]


def test_where_the_file_is() -> None:
    assert trust_file({"HOME": "/h"}) == Path("/h/.config/mxt/trust.json")
    assert trust_file({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path("/h/.config/mxt/trust.json")


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"version": 2, "workspaces": {}}', '{"version": 1, "workspaces": {"a": 1}}']
)
def test_a_damaged_file_trusts_nothing(ruled: Space, content: str) -> None:
    trust(ruled.root, ruled.environ)
    trust_file(ruled.environ).write_text(content)
    with pytest.raises(UsageError, match=r"is damaged or of another version"):
        check(ruled)


def test_a_link_out_of_rules_is_refused(ruled: Space) -> None:
    outside = ruled.root.parent / "evil.py"
    outside.touch()
    (ruled.root / "rules/evil.py").symlink_to(outside)
    with pytest.raises(UsageError, match=r"'rules/evil.py' is a link out of rules/"):
        trust(ruled.root, ruled.environ)
