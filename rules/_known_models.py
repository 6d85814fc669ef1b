"""The shapes of models that recipes of the catalogue name, so that a recipe can be judged before a download.

From each model's config.json; a model that is not here is judged when its own config.json has arrived.
"""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """The language model's sizes, by the names that config.json has for them.

    positions: the longest sequence. tied: input and output embeddings share weights. experts, per_token,
    expert_intermediate, shared_intermediate: of a mixture of experts, whose layers have no other feed-forward
    part; shared_intermediate is the width of the expert that every token passes through.
    linear_layers: how many of the layers have linear attention (Gated DeltaNet) instead of heads that look at
    every token; linear_key_heads, linear_value_heads and linear_head_dim are theirs.
    gated: query projections are twice as wide, as they carry a gate for the output.
    weights: all of them, as transformers makes the model (without heads that only speed up decoding).
    vision_weights: those of the part that reads pictures; 0 where there is none.
    code: whether it needs Python files of its own (trust_remote_code).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int | None
    vocab: int
    positions: int
    tied: bool = False
    experts: int | None = None
    per_token: int | None = None
    expert_intermediate: int | None = None
    shared_intermediate: int | None = None
    linear_layers: int = 0
    linear_key_heads: int | None = None
    linear_value_heads: int | None = None
    linear_head_dim: int | None = None
    gated: bool = False
    weights: int | None = None
    vision_weights: int = 0
    code: bool = False

    def widths(self) -> dict[str, int]:
        """The smaller side of each linear layer that adapters are put on by default: the rank it can have."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": queries}
        if self.intermediate is not None:
            found |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), self.intermediate)
        if self.expert_intermediate is not None:
            found |= {"gate_up_proj": 2 * self.expert_intermediate, "down_proj": self.expert_intermediate}
        return {name: min(width, self.hidden) for name, width in found.items()}


KNOWN: dict[str, Shape] = {
    "amd/Instella-3B-Instruct": Shape(2560, 36, 32, 32, 80, 6912, 50304, 4096, code=True),
    "Qwen/Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151936, 40960, weights=8_190_735_360),
    "Qwen/Qwen3-32B": Shape(5120, 64, 64, 8, 128, 25600, 151936, 40960, weights=32_762_123_264),
    "Qwen/Qwen3-30B-A3B": Shape(
        hidden=2048,
        layers=48,
        heads=32,
        kv_heads=4,
        head_dim=128,
        intermediate=None,
        vocab=151936,
        positions=40960,
        experts=128,
        per_token=8,
        expert_intermediate=768,
        weights=30_532_122_624,
    ),
    "Qwen/Qwen3-VL-8B-Instruct": Shape(
        hidden=4096,
        layers=36,
        heads=32,
        kv_heads=8,
        head_dim=128,
        intermediate=12288,
        vocab=151936,
        positions=262144,
        weights=8_767_123_696,
        vision_weights=576_388_336,
    ),
    "Qwen/Qwen3.6-27B": Shape(
        hidden=5120,
        layers=64,
        heads=24,
        kv_heads=4,
        head_dim=256,
        intermediate=17408,
        vocab=248320,
        positions=262144,
        linear_layers=48,
        linear_key_heads=16,
        linear_value_heads=48,
        linear_head_dim=128,
        gated=True,
        weights=27_356_728_560,
        vision_weights=460_730_096,
    ),
    "Qwen/Qwen3.6-35B-A3B": Shape(
        hidden=2048,
        layers=40,
        heads=16,
        kv_heads=2,
        head_dim=256,
        intermediate=None,
        vocab=248320,
        positions=262144,
        experts=256,
        per_token=8,
        expert_intermediate=512,
        shared_intermediate=512,
        linear_layers=30,
        linear_key_heads=16,
        linear_value_heads=32,
        linear_head_dim=128,
        gated=True,
        weights=35_107_181_936,
        vision_weights=446_571_248,
    ),
}
