"""The right answer to a step, in double precision, and how near a candidate must come to it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

from rules._probe.workload import Workload, run_step

# largest relative error of the loss, least cosine of all gradients together
TOLERANCE = {"float32": (1e-4, 0.9999), "bfloat16": (2e-2, 0.99)}
# A token whose two best experts are nearly equal goes to one in double precision and may go to the other
# here: neither is wrong, and its part of the gradient is another. So gradients may be further apart.
EXPERTS_LEAST = {"float32": 0.999, "bfloat16": 0.97}


class Reference:
    """Losses and gradients of each needed micro-batch. Losses are sums, so rows simply add up."""

    def __init__(self, workload: Workload, sizes: Iterable[int]) -> None:
        import torch

        workload.select("eager")
        model = copy.deepcopy(workload.model).double()
        workload.plain_experts(model)
        wanted = set(sizes)
        self.loss: dict[int, float] = {}
        self.gradient: dict[int, Any] = {}
        loss, gradient = 0.0, torch.zeros(0, dtype=torch.float64)
        whole = workload.batch(max(wanted))
        for row in range(max(wanted)):
            loss += run_step(model, {k: v[row : row + 1] for k, v in whole.items()})
            found = flat_gradient(model)
            gradient = found if not len(gradient) else gradient + found
            if row + 1 in wanted:
                self.loss[row + 1], self.gradient[row + 1] = loss, gradient.clone()
        most, least = TOLERANCE[workload.dtype]
        self.tolerance = most, EXPERTS_LEAST[workload.dtype] if workload.experts else least

    def why_wrong(self, model: Any, micro_batch: int, loss: float) -> str | None:
        """The reason why a step's result, still in the model's gradients, is not right; else None."""
        import torch

        expected = self.loss[micro_batch]
        error = abs(loss - expected) / abs(expected)
        right, found = self.gradient[micro_batch], flat_gradient(model)
        cosine = float(torch.dot(right, found) / (right.norm() * found.norm()))
        length = float(found.norm() / right.norm())
        most, least = self.tolerance
        if not (math.isfinite(loss) and error <= most):
            return f"wrong loss: {loss:.6g}, the reference has {expected:.6g}"
        if not (cosine >= least and abs(length - 1) <= 10 * most):
            return f"wrong gradient: cosine {cosine:.6f} to the reference, length {length:.6f} of it"
        return None


def flat_gradient(model: Any) -> Any:
    """All gradients as one vector of doubles, in the order of the parameters' names."""
    import torch

    parts = [
        p.grad.detach().double().reshape(-1)
        for _, p in sorted(model.named_parameters(), key=lambda item: item[0])
        if p.requires_grad and p.grad is not None
    ]
    return torch.cat(parts)
