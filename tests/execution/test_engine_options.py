"""MXT_CONTAINER_ARGS: what says how a machine starts containers, and nothing that an action would see."""

from __future__ import annotations

import pytest

from mxt.execution.engine_options import engine_options


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("", (), ()),
        ("--runtime crun", ("--runtime", "crun"), ()),
        ("-- --cgroups disabled --ulimit=nofile=9", (), ("--cgroups", "disabled", "--ulimit=nofile=9")),
        (
            "--log-level error -- --annotation '--env A=1'",
            ("--log-level", "error"),
            ("--annotation", "--env A=1"),
        ),
    ],
)
def test_taken(text: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert engine_options(text) == (before, after)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("'", "cannot be read: No closing quotation"),
        ("-- --env SNEAK=1", "gives 'run' '--env'; an action's"),
        ("-- --env=SNEAK=1", "gives 'run' '--env'; an action's"),
        ("-- -eSNEAK=1", "gives 'run' '-e'; an action's"),
        ("-- --cgroups disabled -v /:/host", "gives 'run' '-v'; an action's"),
        ("-- --cgroups=disabled memory", "gives 'run' 'memory'; an action's"),
        ("-- --network host", "gives 'run' '--network'; an action's"),
        ("-- --", "gives 'run' '--'; an action's"),
        ("--module sneak.conf", "holds '--module', which can change what every container sees"),
        ("--hooks-dir=/hooks", "holds '--hooks-dir', which can change what every container sees"),
        ("run --env A=1", "begins with 'run', which is no option"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="MXT_CONTAINER_ARGS") as refused:
        engine_options(text)
    assert str(refused.value).startswith(f"MXT_CONTAINER_ARGS {says}")
