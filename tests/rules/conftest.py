"""One tiny model and its packed rows for all tests that run stages."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rules import tiny_model


class Tiny(NamedTuple):
    """model: a folder. packed: 40 sequences, ten steps an epoch."""

    model: Path
    packed: Path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    packed = tiny_model.make_packed(folder / "packed.parquet", 40)
    return Tiny(tiny_model.make_model(folder / "model"), packed)


@pytest.fixture(scope="session")
def mixture(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The same with four experts in each layer, two of them for each token."""
    return tiny._replace(model=tiny_model.make_model(tmp_path_factory.mktemp("mixture") / "model", experts=4))
