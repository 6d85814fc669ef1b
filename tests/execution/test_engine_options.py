"""MXT_CONTAINER_ARGS: what says how a machine starts containers, and nothing that an action would see."""

from __future__ import annotations

import pytest

from mxt.errors import ToolchainError
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
        ("-- --env SNEAK=1", "gives 'run' '--env'"),
        ("-- --env=SNEAK=1", "gives 'run' '--env'"),
        ("-- -eSNEAK=1", "gives 'run' '-e'"),
        ("-- --cgroups disabled -v /:/host", "gives 'run' '-v'"),
        ("-- --cgroups=disabled memory", "gives 'run' 'memory'"),
        ("-- --network host", "gives 'run' '--network'"),
        ("-- --", "gives 'run' '--'"),
        ("--module sneak.conf", "holds '--module'"),
        ("--hooks-dir=/hooks", "holds '--hooks-dir'"),
        ("run --env A=1", "begins with 'run', which is no option"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(ToolchainError) as refused:
        engine_options(text)
    assert refused.value.message == f"MXT_CONTAINER_ARGS {says}"
