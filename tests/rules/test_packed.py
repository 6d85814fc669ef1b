"""Documents in a packed sequence do not see each other: loss and gradients are those of documents alone."""

from __future__ import annotations

from typing import Any

import pytest

from rules._packed import IGNORE, PackedCollator, padded_length
from tests.rules.conftest import Tiny


def rows_of(tiny: Tiny) -> list[dict[str, Any]]:
    from rules._packed import read_packed

    rows: list[dict[str, Any]] = read_packed([tiny.packed], 64).slice(0, 3).to_pylist()
    return rows


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("length", [None, 72])
def test_packed_loss_is_the_loss_of_isolated_documents(
    tiny: Tiny, attention: str, length: int | None
) -> None:
    import torch

    from rules._runtime import load_model

    model = load_model(tiny.model, attention=attention).eval()
    rows = rows_of(tiny)
    batch = PackedCollator(4, length, 0)(rows)  # one row more than there are: it must not count
    batch.pop("real_tokens")
    packed = model(**batch, use_cache=False).loss
    packed.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    model.zero_grad()
    total, tokens = torch.zeros(()), 0
    for row in rows:
        start = 0
        for size in row["seq_lengths"]:
            ids = torch.tensor([row["input_ids"][start : start + size]])
            labels = torch.tensor([row["labels"][start : start + size]])
            kept = int((labels[:, 1:] != IGNORE).sum())
            total = total + model(input_ids=ids, labels=labels, use_cache=False).loss * kept
            tokens += kept
            start += size
    (total / tokens).backward()
    alone = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert packed.item() == pytest.approx((total / tokens).item(), rel=1e-5)
    assert torch.nn.functional.cosine_similarity(gradient, alone, dim=0) > 0.999999


def test_without_restarting_positions_documents_leak(tiny: Tiny) -> None:
    """The test above can fail: with positions that run on, the loss is another one."""
    import torch

    from rules._runtime import load_model

    model = load_model(tiny.model).eval()
    batch = PackedCollator(1, None, 0)(rows_of(tiny)[:1])
    batch.pop("real_tokens")
    right = model(**batch, use_cache=False).loss.item()
    batch["position_ids"] = torch.arange(batch["input_ids"].shape[1])[None]
    assert abs(model(**batch, use_cache=False).loss.item() - right) > 1e-4


def test_collator_marks_boundaries_and_fills_up() -> None:
    row = {"input_ids": [5, 6, 7, 8, 9], "labels": [5, 6, 7, 8, 9], "seq_lengths": [2, 3]}
    batch = PackedCollator(2, None, 1)([row])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 1, 1, 1], [1] * 8]
    assert batch["position_ids"].tolist()[0] == [0, 1, 0, 1, 2, 0, 0, 0]
    assert batch["labels"].tolist()[0] == [IGNORE, 6, IGNORE, 8, 9, IGNORE, IGNORE, IGNORE]
    assert batch["labels"].tolist()[1] == [IGNORE] * 8
    assert int(batch["real_tokens"]) == 5
    assert set(batch) == {"input_ids", "labels", "position_ids", "real_tokens"}  # no attention mask


def test_lengths_that_do_not_add_up_are_refused() -> None:
    from mxt.errors import StageError

    with pytest.raises(StageError, match="seq_lengths sum to 4, its tokens are 3"):
        PackedCollator(1, 16, 0)([{"input_ids": [1, 2, 3], "labels": [1, 2, 3], "seq_lengths": [4]}])


@pytest.mark.parametrize("longest", [1, 7, 8, 9, 128, 4096])
def test_there_is_always_padding(longest: int) -> None:
    assert padded_length(longest) % 8 == 0
    assert 0 < padded_length(longest) - longest <= 8
