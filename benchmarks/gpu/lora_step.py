"""One LoRA training step of Qwen3-8B on one Hopper GPU: how fast it gets, and whether it repeats bit for bit.

    python benchmarks/gpu/lora_step.py --variant strict --attention fa4 --gemm-plan /tmp/plan.json
    python benchmarks/gpu/lora_step.py --variant peft               the plain transformers + PEFT loop
    python benchmarks/gpu/lora_step.py --check                      gradients against PEFT's, layer by layer
    python benchmarks/gpu/lora_step.py --check --tiny               the same on a CPU, seconds

Needs torch (2.11 or later); on the GPU nvidia-cudnn-frontend for `--attention cudnn`, flash-attn-4 with
nvidia-cutlass-dsl[cu13] for `--attention fa4`; transformers and peft for `--variant peft` and `--check`; a
plan from `benchmarks/gpu/gemm.py --head` for `--gemm-plan`, without which the GEMMs are torch's choice.

Random weights of the true configuration, random tokens: a speed figure, no proof of learning. r=16 on all
seven linears, bf16 base and compute, fp32 master adapter and Adam state, 8 rows of 4096 tokens a step, one
document a row. `strict` is byte-identical from process to process, also when each has an empty
TORCHINDUCTOR_CACHE_DIR of its own (compare `adapter_sha256`); `free` need not be.

What makes it fast (docs/performance.md says what was measured):

- Base and adapter lie in one matrix [[W, sB], [A, .]]. Forward multiplies [x, xA'] by its upper rows,
  backward [dy, dy.sB] by its left columns: the adapter costs no second pass over y or dx.
- q, k, v are one GEMM, gate and up another. Nothing computes a gradient of a frozen weight.
- The backward is written out: it saves what costs a GEMM to get, and no autograd node lies in between.
- What lies between GEMMs is one kernel each, which writes straight into the next GEMM's input.
- The loss is computed in chunks, on the tokens that count, with its gradient in place of the logits.
- Attention has a deterministic backward that is nearly as fast (benchmarks/gpu/attention.py).
- The GEMM algorithms are those that are fastest on a hot chip (benchmarks/gpu/gemm.py).
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch._inductor.config
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU
    triton = None

if TYPE_CHECKING:
    from collections.abc import Callable

PEAK = 989e12  # dense bf16, by the datasheet
FLOP_PER_TOKEN = 33.9e9  # 4N for the matmuls, 3 x the causal attention's forward; no recompute of any kind
LINEARS = {"qkv": ("q_proj", "k_proj", "v_proj"), "o": ("o_proj",), "gate_up": ("gate_proj", "up_proj")}
LINEARS["down"] = ("down_proj",)


@dataclass(frozen=True)
class Config:
    hidden: int = 4096
    layers: int = 36
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    intermediate: int = 12288
    vocabulary: int = 151936
    theta: float = 1e6
    eps: float = 1e-6
    rank: int = 16
    scale: float = 2.0  # lora_alpha / rank

    def outputs(self) -> dict[str, int]:
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        wide = self.intermediate
        return {"q_proj": query, "k_proj": key, "v_proj": key, "o_proj": self.hidden} | {
            "gate_proj": wide,
            "up_proj": wide,
            "down_proj": self.hidden,
        }

    def inputs(self) -> dict[str, int]:
        return {"qkv": self.hidden, "o": self.heads * self.head_size} | {
            "gate_up": self.hidden,
            "down": self.intermediate,
        }


TINY = Config(hidden=64, layers=2, heads=4, kv_heads=2, head_size=16, intermediate=96, vocabulary=128, rank=4)


# ----------------------------------------------------------------------------- what lies between the GEMMs


def norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    f = x.float()
    f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps)
    out.copy_(weight * f.to(x.dtype))


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float, out: Tensor) -> Tensor:
    """x + y, and its norm in `out`."""
    total = x + y
    norm(total, weight, eps, out)
    return total


def norm_gradient(x: Tensor, weight: Tensor, eps: float, dy: Tensor) -> Tensor:
    f = x.float()
    scale = torch.rsqrt(f.square().mean(-1, keepdim=True) + eps)
    normed = f * scale
    g = dy.float() * weight.float()
    return scale * (g - normed * (g * normed).mean(-1, keepdim=True))


def norm_backward(x: Tensor, weight: Tensor, eps: float, dy: Tensor, dx: Tensor, out: Tensor) -> None:
    """`dx`, the residual's gradient so far, and the norm's added to it, into `out`."""
    out.copy_(dx.float() + norm_gradient(x, weight, eps, dy))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


if triton is not None:

    @triton.jit
    def norm_rope_kernel(
        x, weight, cos, sin, y, tokens, pitch, eps, heads: tl.constexpr, half: tl.constexpr
    ) -> None:
        token = tl.program_id(0).to(tl.int64)
        head, at = tl.arange(0, heads)[:, None], tl.arange(0, half)[None, :]
        angle = (token % tokens) * half + at
        place = token * pitch + head * (2 * half) + at
        one, two = tl.load(x + place).to(tl.float32), tl.load(x + place + half).to(tl.float32)
        scale = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * half) + eps)[:, None]
        one, two = (one * scale).to(y.dtype.element_ty), (two * scale).to(y.dtype.element_ty)
        one = (one * tl.load(weight + at)).to(tl.float32)
        two = (two * tl.load(weight + half + at)).to(tl.float32)
        c, s = tl.load(cos + angle), tl.load(sin + angle)
        into = y + token * (heads * 2 * half) + head * (2 * half) + at
        tl.store(into, (one * c - two * s).to(y.dtype.element_ty))
        tl.store(into + half, (two * c + one * s).to(y.dtype.element_ty))

    @triton.jit
    def norm_rope_backward_kernel(
        x, weight, cos, sin, dy, dx, tokens, pitch, out_pitch, eps, heads: tl.constexpr, half: tl.constexpr
    ) -> None:
        token = tl.program_id(0).to(tl.int64)
        head, at = tl.arange(0, heads)[:, None], tl.arange(0, half)[None, :]
        angle = (token % tokens) * half + at
        place = token * pitch + head * (2 * half) + at
        one, two = tl.load(x + place).to(tl.float32), tl.load(x + place + half).to(tl.float32)
        scale = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * half) + eps)[:, None]
        one, two = one * scale, two * scale
        source = dy + token * (heads * 2 * half) + head * (2 * half) + at
        d_one, d_two = tl.load(source).to(tl.float32), tl.load(source + half).to(tl.float32)
        c, s = tl.load(cos + angle), tl.load(sin + angle)
        g_one = (d_one * c + d_two * s) * tl.load(weight + at).to(tl.float32)
        g_two = (d_two * c - d_one * s) * tl.load(weight + half + at).to(tl.float32)
        mean = ((tl.sum(g_one * one, 1) + tl.sum(g_two * two, 1)) / (2 * half))[:, None]
        into = dx + token * out_pitch + head * (2 * half) + at
        tl.store(into, (scale * (g_one - one * mean)).to(dx.dtype.element_ty))
        tl.store(into + half, (scale * (g_two - two * mean)).to(dx.dtype.element_ty))


def fast_norm_rope(qk: Tensor, weight: Tensor, eps: float, cos: Tensor, sin: Tensor) -> Tensor:
    rows, tokens, heads, size = qk.shape
    y = torch.empty(qk.shape, dtype=qk.dtype, device=qk.device)
    norm_rope_kernel[(rows * tokens,)](
        qk, weight, cos, sin, y, tokens, qk.stride(1), eps, heads, size // 2, num_warps=max(1, heads // 8)
    )
    return y


def fast_norm_rope_backward(
    qk: Tensor, weight: Tensor, eps: float, cos: Tensor, sin: Tensor, dy: Tensor, out: Tensor
) -> None:
    rows, tokens, heads, size = qk.shape
    assert dy.is_contiguous()
    norm_rope_backward_kernel[(rows * tokens,)](
        *(qk, weight, cos, sin, dy, out, tokens, qk.stride(1), out.stride(1), eps, heads, size // 2),
        num_warps=max(1, heads // 8),
    )


def norm_rope(qk: Tensor, weight: Tensor, eps: float, cos: Tensor, sin: Tensor) -> Tensor:
    """qk is (rows, tokens, heads, head size), cos and sin (tokens, 1, head size / 2)."""
    f = qk.float()
    f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps)
    f = (weight * f.to(qk.dtype)).float()
    return rotate(f, cos, sin).to(qk.dtype)


def norm_rope_backward(
    qk: Tensor, weight: Tensor, eps: float, cos: Tensor, sin: Tensor, dy: Tensor, out: Tensor
) -> None:
    out.copy_(norm_gradient(qk, weight, eps, rotate(dy.float(), cos, -sin)))


def swiglu(gate_up: Tensor, out: Tensor) -> None:
    gate, up = gate_up.chunk(2, -1)
    out.copy_(F.silu(gate.float()).to(gate.dtype) * up)


def swiglu_backward(gate_up: Tensor, dy: Tensor, d_gate: Tensor, d_up: Tensor) -> None:
    gate, up = (t.float() for t in gate_up.chunk(2, -1))
    dy = dy.float()
    sigmoid = torch.sigmoid(gate)
    d_gate.copy_(dy * up * sigmoid * (1 + gate * (1 - sigmoid)))
    d_up.copy_(dy * gate * sigmoid)


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """The summed loss times `weight`; its gradient takes the place of the logits."""
    f = logits.float()
    top = torch.logsumexp(f, -1, keepdim=True)
    hit = torch.arange(f.shape[-1], device=f.device) == labels[:, None]
    loss = (top.squeeze(-1) - f.gather(-1, labels[:, None]).squeeze(-1)).sum() * weight
    logits.copy_((torch.exp(f - top) - hit.float()) * weight)
    return loss


class Elementwise:
    """The functions above, compiled one by one on a GPU and as they are elsewhere."""

    def __init__(self, *, compiled: bool) -> None:
        def ready(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=False, fullgraph=True) if compiled else function

        self.norm, self.add_norm, self.norm_backward = ready(norm), ready(add_norm), ready(norm_backward)
        if compiled:  # Inductor's kernels for these two reach 1.6 TB/s
            self.norm_rope, self.norm_rope_backward = fast_norm_rope, fast_norm_rope_backward
        else:
            self.norm_rope, self.norm_rope_backward = norm_rope, norm_rope_backward
        self.swiglu, self.swiglu_backward = ready(swiglu), ready(swiglu_backward)
        self.cross_entropy = ready(cross_entropy)


# ----------------------------------------------------------------------------------------------- the model


def gradient_gemm(a: Tensor, b: Tensor) -> Tensor:
    """a' b in fp32."""
    if a.is_cuda:
        return torch.mm(a.t(), b, out_dtype=torch.float32)
    return a.t().float() @ b.float()


class Gemms:
    """x @ w, by the plan's algorithm for this shape where it names one, else by torch's."""

    def __init__(self, plan: Path | None = None) -> None:
        self.algorithms: dict[str, bytes] = {}
        self.hits: set[str] = set()
        if plan is not None:
            from gemm import CublasLt

            self.lt = CublasLt()
            read = json.loads(plan.read_text())
            if read["cublaslt"] != self.lt.version:
                raise SystemExit(f"the plan is for cuBLASLt {read['cublaslt']}, this is {self.lt.version}")
            self.algorithms = {key: bytes.fromhex(value) for key, value in read["algorithms"].items()}

    def __call__(self, x: Tensor, w: Tensor, *, transposed: bool) -> Tensor:
        out = torch.empty(len(x), w.shape[0 if transposed else 1], dtype=x.dtype, device=x.device)
        if not self.algorithms:
            return torch.mm(x, w.t() if transposed else w, out=out)
        key = self.lt.key(x, w, out, transposed=transposed)
        if (algorithm := self.algorithms.get(key)) is None:
            return torch.mm(x, w.t() if transposed else w, out=out)
        self.hits.add(key)
        return self.lt.run(x, w, out, algorithm, transposed=transposed)


class PackedLinear:
    """Frozen weights that read the same input, and their adapters, in one matrix [[W, sB], [A, .]].

    The adapter's part is `pad` wide, all its matrices beside each other, and filled up with zeros.
    """

    def __init__(self, weights: list[Tensor], rank: int, scale: float, gemm: Gemms) -> None:
        self.gemm = gemm
        self.out_features, self.in_features = sum(len(w) for w in weights), weights[0].shape[1]
        self.rows = [len(w) for w in weights]
        self.rank, self.scale = rank, scale
        self.pad = -(-rank * len(weights) // 64) * 64
        out, width = self.out_features, self.in_features
        first = weights[0]
        self.packed = torch.zeros(out + self.pad, width + self.pad, dtype=first.dtype, device=first.device)
        position = 0
        for weight in weights:
            self.packed[position : position + len(weight), :width] = weight
            position += len(weight)

    def adapter_sizes(self) -> list[tuple[int, int]]:
        return [(self.rank * len(self.rows), self.in_features), *[(rows, self.rank) for rows in self.rows]]

    def bind(self, values: list[Tensor], gradients: list[Tensor]) -> None:
        """The fp32 masters and their gradients: A of all together, then each B."""
        self.a, *self.b = values
        self.da, *self.db = gradients
        out, width, rank = self.out_features, self.in_features, self.rank
        self.a_place = self.packed[out : out + len(self.a), :width]
        self.b_places, position = [], 0
        for i, rows in enumerate(self.rows):
            columns = slice(width + i * rank, width + (i + 1) * rank)
            self.b_places.append(self.packed[position : position + rows, columns])
            position += rows

    def input_buffer(self, rows: int) -> Tensor:
        width = self.in_features + self.pad
        return torch.empty(rows, width, dtype=self.packed.dtype, device=self.packed.device)

    def gradient_buffer(self, rows: int) -> Tensor:
        width = self.out_features + self.pad
        return torch.empty(rows, width, dtype=self.packed.dtype, device=self.packed.device)

    def forward(self, x: Tensor) -> Tensor:
        """x is an input buffer whose first columns hold the input; the rest is filled here."""
        out, width = self.out_features, self.in_features
        torch.mm(x[:, :width], self.packed[out:, :width].t(), out=x[:, width:])
        return self.gemm(x, self.packed[:out], transposed=True)

    def backward(self, dy: Tensor, x: Tensor, *, need_input: bool = True) -> Tensor | None:
        """dy is a gradient buffer, filled likewise. Adds to the adapter's gradients, returns the input's."""
        out, width, rank = self.out_features, self.in_features, self.rank
        torch.mm(dy[:, :out], self.packed[:out, width:], out=dy[:, out:])
        self.da.add_(gradient_gemm(dy[:, out:], x[:, :width])[: len(self.a)])
        db, position = gradient_gemm(dy[:, :out], x[:, width:]), 0
        for i, rows in enumerate(self.rows):
            block = db[position : position + rows, i * rank : (i + 1) * rank]
            self.db[i].add_(block, alpha=self.scale)
            position += rows
        return self.gemm(dy, self.packed[:, :width], transposed=False) if need_input else None


class TorchAttention:
    """PyTorch's own attention behind the same two calls; its backward runs the forward again."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        out.copy_(self._run(q, k, v))
        return out, out

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, _out: Tensor, _stats: Tensor, into: Tensor
    ) -> tuple[Tensor, ...]:
        """The gradients; v's goes to `into`."""
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        with torch.enable_grad():
            grads = torch.autograd.grad(self._run(*inputs), inputs, dout)
        return *grads[:2], into.copy_(grads[2])

    def _run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


class Flash4Attention:
    """FlashAttention-4's kernels behind the same two calls."""

    def __init__(self, *, deterministic: bool) -> None:
        from flash_attn.cute import interface

        self.interface, self.deterministic = interface, deterministic

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        found = self.interface._flash_attn_fwd(q, k, v, causal=True, return_lse=True, out=out)
        return out, found[1]

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, stats: Tensor, into: Tensor
    ) -> tuple[Tensor, ...]:
        call = self.interface._flash_attn_bwd
        return call(q, k, v, out, dout, stats, causal=True, deterministic=self.deterministic, dv=into)[:3]


class Layer:
    def __init__(self, config: Config, weight: Callable[[str], Tensor], index: int, gemm: Gemms) -> None:
        self.config = config
        block = f"model.layers.{index}."
        at = {
            n: ("mlp." if n in ("gate_proj", "up_proj", "down_proj") else "self_attn.")
            for n in config.outputs()
        }
        self.linears = {
            name: PackedLinear(
                [weight(f"{block}{at[n]}{n}.weight") for n in parts], config.rank, config.scale, gemm
            )
            for name, parts in LINEARS.items()
        }
        self.norm_1, self.norm_2 = (
            weight(f"{block}{n}.weight") for n in ("input_layernorm", "post_attention_layernorm")
        )
        self.norm_q, self.norm_k = (weight(f"{block}self_attn.{n}.weight") for n in ("q_norm", "k_norm"))


class Model:
    """Decoder, loss and backward, written out. `weight` gives a tensor by its name in transformers."""

    def __init__(
        self,
        config: Config,
        weight: Callable[[str], Tensor],
        attention: Any,
        *,
        compiled: bool,
        gemm: Gemms | None = None,
    ) -> None:
        self.config, self.attention, self.gemm = config, attention, gemm or Gemms()
        self.do = Elementwise(compiled=compiled)
        self.layers = [Layer(config, weight, i, self.gemm) for i in range(config.layers)]
        self.embedding, self.head = weight("model.embed_tokens.weight"), weight("lm_head.weight")
        self.last_norm = weight("model.norm.weight")
        self.device = self.embedding.device
        linears = [linear for layer in self.layers for linear in layer.linears.values()]
        sizes = [size for linear in linears for size in linear.adapter_sizes()]
        total = sum(a * b for a, b in sizes)
        self.adapter = torch.zeros(total, device=self.device)  # one flat fp32 tensor: one optimizer launch
        self.gradient = torch.zeros_like(self.adapter)
        self.adapter.grad = self.gradient
        position, values, gradients = 0, [], []
        for a, b in sizes:
            values.append(self.adapter[position : position + a * b].view(a, b))
            gradients.append(self.gradient[position : position + a * b].view(a, b))
            position += a * b
        for linear in linears:
            count = len(linear.adapter_sizes())
            linear.bind(values[:count], gradients[:count])
            values, gradients = values[count:], gradients[count:]
        self.masters = [p for linear in linears for p in (linear.a, *linear.b)]
        self.places = [p for linear in linears for p in (linear.a_place, *linear.b_places)]
        self.b_places = [p for linear in linears for p in linear.b_places]
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}

    def draw_adapter(self, seed: int, b_std: float) -> None:
        """A as PEFT draws it (uniform, bound 1/sqrt(inputs)); B is zero there, so b_std is for checks."""
        generator = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            for linear in layer.linears.values():
                noise = torch.rand(linear.a.shape, generator=generator)
                linear.a.copy_((noise * 2 - 1) / linear.in_features**0.5)
                for b in linear.b:
                    b.copy_(torch.randn(b.shape, generator=generator) * b_std)
        self.refresh()

    def refresh(self) -> None:
        """Masters to where the GEMMs read them, in bf16."""
        torch._foreach_copy_(self.places, self.masters)
        torch._foreach_mul_(self.b_places, self.config.scale)

    def angles(self, tokens: int) -> tuple[Tensor, Tensor]:
        if tokens not in self._angles:
            size, dtype = self.config.head_size, self.embedding.dtype
            steps = torch.arange(0, size, 2, dtype=torch.int64, device=self.device).float() / size
            angle = torch.arange(tokens, device=self.device).float()[:, None] / self.config.theta**steps
            self._angles[tokens] = tuple(f(angle).to(dtype).float()[:, None] for f in (torch.cos, torch.sin))
        return self._angles[tokens]

    def _split(self, qkv: Tensor, rows: int) -> list[Tensor]:
        size = self.config.head_size
        counts = [self.config.heads * size, self.config.kv_heads * size, self.config.kv_heads * size]
        parts = qkv.view(rows, -1, qkv.shape[-1])[..., : sum(counts)].split(counts, -1)
        return [part.unflatten(-1, (-1, size)) for part in parts]

    @torch.no_grad()
    def micro_step(self, ids: Tensor, labels: Tensor, counted: Tensor | None, weight: float) -> Tensor:
        """Loss of these rows times `weight`; adds to the gradients.

        Labels are shifted already; `counted` says which tokens have one, None = all.
        """
        do, eps = self.do, self.config.eps
        rows, tokens = ids.shape
        count = rows * tokens
        cos, sin = self.angles(tokens)
        x = self.embedding[ids.flatten()]
        saved: list[tuple[Tensor, ...]] = []
        normed = self.layers[0].linears["qkv"].input_buffer(count)
        do.norm(x, self.layers[0].norm_1, eps, normed[:, : self.config.hidden])
        for index, layer in enumerate(self.layers):
            of = layer.linears
            qkv = of["qkv"].forward(normed)
            q, k, v = self._split(qkv, rows)
            q, k = (do.norm_rope(t, w, eps, cos, sin) for t, w in ((q, layer.norm_q), (k, layer.norm_k)))
            mixed = of["o"].input_buffer(count)
            _, stats = self.attention.forward(q, k, v, self._heads(mixed, rows))
            middle_in = of["gate_up"].input_buffer(count)
            middle = do.add_norm(
                x, of["o"].forward(mixed), layer.norm_2, eps, middle_in[:, : self.config.hidden]
            )
            gate_up = of["gate_up"].forward(middle_in)
            product = of["down"].input_buffer(count)
            do.swiglu(gate_up, product[:, : self.config.intermediate])
            saved.append((x, normed, qkv, q, k, mixed, stats, middle, middle_in, gate_up, product))
            last = index + 1 == len(self.layers)
            normed = of["qkv"].input_buffer(count)
            x = do.add_norm(
                middle,
                of["down"].forward(product),
                self.last_norm if last else self.layers[index + 1].norm_1,
                eps,
                normed[:, : self.config.hidden],
            )
        loss, d_normed = self._loss(normed[:, : self.config.hidden], labels.flatten(), counted, weight)
        dx = self.layers[-1].linears["down"].gradient_buffer(count)
        hidden = self.config.hidden
        do.norm_backward(x, self.last_norm, eps, d_normed, torch.zeros_like(d_normed), dx[:, :hidden])
        del normed, d_normed
        for index in reversed(range(len(self.layers))):
            dx = self._layer_backward(self.layers[index], saved.pop(), dx, rows, need_input=index > 0)
        return loss

    def _heads(self, buffer: Tensor, rows: int) -> Tensor:
        width = self.config.heads * self.config.head_size
        view = buffer.view(rows, -1, buffer.shape[-1])[..., :width]
        return view.unflatten(-1, (self.config.heads, self.config.head_size))

    def _layer_backward(
        self, layer: Layer, saved: tuple[Tensor, ...], dx: Tensor, rows: int, *, need_input: bool
    ) -> Tensor:
        x, normed, qkv, q, k, mixed, stats, middle, middle_in, gate_up, product = saved
        do, of, eps, hidden = self.do, layer.linears, self.config.eps, self.config.hidden
        d_product = of["down"].backward(dx, product)
        d_gate_up = of["gate_up"].gradient_buffer(len(dx))
        d_gate, d_up = d_gate_up[:, : of["gate_up"].out_features].chunk(2, -1)
        do.swiglu_backward(gate_up, d_product, d_gate, d_up)
        d_middle_in = of["gate_up"].backward(d_gate_up, middle_in)
        del d_product, d_gate_up, d_gate, d_up
        d_middle = of["o"].gradient_buffer(len(dx))
        do.norm_backward(middle, layer.norm_2, eps, d_middle_in, dx[:, :hidden], d_middle[:, :hidden])
        d_mixed = of["o"].backward(d_middle, mixed)
        raw_q, raw_k, v = self._split(qkv, rows)
        d_qkv = of["qkv"].gradient_buffer(len(dx))
        cos, sin = self.angles(q.shape[1])
        out_q, out_k, out_v = self._split(d_qkv, rows)
        heads = self._heads(mixed, rows)
        dq, dk, _ = self.attention.backward(d_mixed.view(q.shape), q, k, v, heads, stats, out_v)
        do.norm_rope_backward(raw_q, layer.norm_q, eps, cos, sin, dq, out_q)
        do.norm_rope_backward(raw_k, layer.norm_k, eps, cos, sin, dk, out_k)
        d_normed = of["qkv"].backward(d_qkv, normed, need_input=need_input)
        if d_normed is None:
            return dx
        out = of["down"].gradient_buffer(len(dx))
        do.norm_backward(x, layer.norm_1, eps, d_normed, d_middle[:, :hidden], out[:, :hidden])
        return out

    def _loss(
        self, x: Tensor, labels: Tensor, counted: Tensor | None, weight: float
    ) -> tuple[Tensor, Tensor]:
        if counted is not None:
            x, labels, whole = x[counted], labels[counted], x
        loss, chunk = torch.zeros((), device=x.device), 8192
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        factor = torch.full((), weight, device=x.device)
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            logits = self.gemm(x[part], self.head, transposed=True)
            loss += self.do.cross_entropy(logits, labels[part], factor)
            dx[part] = self.gemm(logits, self.head, transposed=False)
        if counted is None:
            return loss, dx
        return loss, torch.zeros(whole.shape, dtype=x.dtype, device=x.device).index_copy_(0, counted, dx)


# ------------------------------------------------------------------------------------------------ measuring


def random_weights(config: Config, device: str, seed: int = 0) -> Callable[[str], Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    inner = {n: config.inputs()[name] for name, parts in LINEARS.items() for n in parts}

    def weight(name: str) -> Tensor:
        part = name.split(".")[-2]
        if "norm" in part:
            size = config.head_size if part in ("q_norm", "k_norm") else config.hidden
            return torch.ones(size, dtype=torch.bfloat16, device=device)
        shape = (config.outputs()[part], inner[part]) if part in inner else (config.vocabulary, config.hidden)
        value = torch.empty(shape, dtype=torch.bfloat16, device=device)
        return value.normal_(0, 0.02, generator=generator)

    return weight


def batches(config: Config, rows: int, tokens: int, count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(count):
        ids = torch.randint(config.vocabulary, (rows, tokens + 1), generator=generator)
        made.append((ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    return made


def make_attention(name: str, device: str, *, deterministic: bool) -> Any:
    if device == "cpu":
        return TorchAttention()
    if name == "fa4":
        return Flash4Attention(deterministic=deterministic)
    from attention import CudnnAttention

    return CudnnAttention(deterministic=deterministic)


def own_step(
    model: Model, optimizer: torch.optim.Optimizer, micro: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """A step that never waits for the device: which tokens count is found where the batch was made."""

    def step(ids: Tensor, labels: Tensor) -> Tensor:
        weight = 1.0 / int((labels != -100).sum())
        model.gradient.zero_()
        loss = torch.zeros((), device=model.device)
        for part, target in zip(ids.split(micro), labels.split(micro), strict=True):
            counted = (target.flatten() != -100).nonzero().squeeze(-1)
            where = None if len(counted) == target.numel() else counted.to(model.device)
            loss += model.micro_step(part.to(model.device), target.to(model.device), where, weight)
        length = model.gradient.norm()
        model.gradient.mul_((1.0 / (length + 1e-6)).clamp(max=1.0))
        optimizer.step()
        model.refresh()
        return loss

    return step


def peft_model(config: Config, device: str, dtype: torch.dtype, attention: str = "sdpa") -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    described = Qwen3Config(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_size,
        rms_norm_eps=config.eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.theta},
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation=attention,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(described)
    torch.set_default_dtype(before)
    names = [n for parts in LINEARS.values() for n in parts]
    lora = LoraConfig(r=config.rank, lora_alpha=int(config.rank * config.scale), target_modules=names)
    return get_peft_model(model, lora)


def peft_step(model: Any, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step(ids: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        device = parameters[0].device
        loss = peft_loss(model, ids.to(device), labels.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


def peft_loss(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    logits = model(input_ids=ids).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def adapter_names(config: Config) -> list[tuple[int, str, int, str]]:
    """(layer, packed linear, place in it, name in transformers), in the order of Model.masters' linears."""
    return [
        (
            layer,
            packed,
            place,
            f"layers.{layer}.{'mlp' if packed in ('gate_up', 'down') else 'self_attn'}.{name}",
        )
        for layer in range(config.layers)
        for packed, parts in LINEARS.items()
        for place, name in enumerate(parts)
    ]


class Reference:
    """PEFT's model with our adapter's values, and its gradients by name."""

    def __init__(self, config: Config, device: str, dtype: torch.dtype) -> None:
        self.config, self.model = config, peft_model(config, device, dtype)
        for parameter in (p for p in self.model.parameters() if p.requires_grad):
            parameter.data = parameter.data.float()
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.train()
        self.modules = dict(self.model.base_model.model.model.named_modules())

    def weights(self) -> dict[str, Tensor]:
        state = self.model.base_model.model.state_dict()
        return {name.replace("base_layer.", ""): value for name, value in state.items()}

    def take_adapter(self, model: Model) -> None:
        for layer, packed, place, name in adapter_names(self.config):
            linear = model.layers[layer].linears[packed]
            ranks = slice(place * self.config.rank, (place + 1) * self.config.rank)
            self.modules[name].lora_A["default"].weight.data.copy_(linear.a[ranks])
            self.modules[name].lora_B["default"].weight.data.copy_(linear.b[place])

    def gradients(self, ids: Tensor, labels: Tensor) -> tuple[float, dict[str, Tensor]]:
        self.model.zero_grad()
        loss = peft_loss(self.model, ids, labels)
        loss.backward()
        found = {}
        for *_, name in adapter_names(self.config):
            for part in ("lora_A", "lora_B"):
                found[f"{name}.{part}"] = getattr(self.modules[name], part)["default"].weight.grad.clone()
        return loss.item(), found


def own_gradients(model: Model, ids: Tensor, labels: Tensor) -> tuple[float, dict[str, Tensor]]:
    counted = (labels.flatten() != -100).nonzero().squeeze(-1)
    model.gradient.zero_()
    loss = model.micro_step(ids, labels, counted, 1.0 / len(counted))
    found, rank = {}, model.config.rank
    for layer, packed, place, name in adapter_names(model.config):
        linear = model.layers[layer].linears[packed]
        found[f"{name}.lora_A"] = linear.da[place * rank : (place + 1) * rank].clone()
        found[f"{name}.lora_B"] = linear.db[place].clone()
    return loss.item(), found


def check(config: Config, device: str, tokens: int, attention: Any) -> dict[str, Any]:
    """Every adapter matrix's gradient beside PEFT's (bf16 base, fp32 adapter) and an all-fp32 model's.

    Two bf16 computations of a deep random model differ by their rounding, so the question is whether
    ours is as near to fp32 as PEFT's is. How near PEFT is to itself with another attention kernel says
    what to expect.
    """
    reference = Reference(config, device, torch.bfloat16 if device == "cuda" else torch.float32)
    weights = reference.weights()
    model = Model(config, weights.__getitem__, attention, compiled=device == "cuda")
    ids, labels = (t.to(device) for t in batches(config, 2, tokens, 1)[0])
    labels[:, : tokens // 4] = -100
    sets: dict[str, dict[str, tuple[float, dict[str, Tensor]]]] = {}
    cases = {"first step (B = 0)": 0.0, "B = 0.02": 0.02}
    for case, b_std in cases.items():
        model.draw_adapter(seed=3, b_std=b_std)
        reference.take_adapter(model)
        sets[case] = {"own": own_gradients(model, ids, labels), "peft": reference.gradients(ids, labels)}
        if device == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(enabled=False)
            sets[case]["peft with flash attention"] = reference.gradients(ids, labels)
            torch.backends.cuda.enable_cudnn_sdp(enabled=True)
    reference.model.float()
    for case, b_std in cases.items():
        model.draw_adapter(seed=3, b_std=b_std)
        reference.take_adapter(model)
        sets[case]["fp32"] = reference.gradients(ids, labels)
    result: dict[str, Any] = {}
    for case, found in sets.items():
        names = [n for n in found["fp32"][1] if cases[case] or n.endswith("lora_B")]
        result[case] = {"losses": {who: loss for who, (loss, _) in found.items()}}
        pairs = [("own", "peft"), ("peft with flash attention", "peft")]
        pairs += [("own", "fp32"), ("peft", "fp32")]
        for one, two in pairs:
            if one not in found:
                continue
            cosines = {n: cosine(found[one][1][n], found[two][1][n]) for n in names}
            worst = min(cosines, key=cosines.__getitem__)
            result[case][f"{one} | {two}"] = {
                "least": cosines[worst],
                "median": statistics.median(cosines.values()),
                "where": worst,
                "all": cosines,
            }
            print(
                f"{case:20} {one} | {two}: least {cosines[worst]:.6f} ({worst}), "
                f"median {statistics.median(cosines.values()):.6f}"
            )
        print(case, result[case]["losses"])
    return result


def cosine(a: Tensor, b: Tensor) -> float:
    return F.cosine_similarity(a.double().flatten(), b.double().flatten(), dim=0).item()


def digest(parameters: list[Tensor]) -> str:
    state = hashlib.sha256()
    for parameter in parameters:
        state.update(parameter.detach().cpu().numpy().tobytes())
    return state.hexdigest()


def measure(
    step: Callable[[Tensor, Tensor], Tensor], data: list[tuple[Tensor, Tensor]], warmup: int, device: str
) -> dict[str, Any]:
    """The steps after warm-up run one into the other, as in training; only the end waits for the device."""

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    losses, before = [], wait()
    losses.append(step(*data[0]))
    first = wait() - before
    losses += [step(*batch) for batch in data[1:warmup]]
    gc.collect()
    gc.freeze()
    before = wait()
    losses += [step(*batch) for batch in data[warmup:]]
    seconds = wait() - before
    speed = sum(ids.numel() for ids, _ in data[warmup:]) / seconds
    result = {
        "tokens_per_s": speed,
        "mfu": speed * FLOP_PER_TOKEN / PEAK,
        "first_step_s": first,
        "losses": [loss.item() for loss in losses],
        "torch": torch.__version__,
    }
    if device == "cuda":
        result |= {
            "peak_GiB": torch.cuda.max_memory_allocated() / 2**30,
            "device": torch.cuda.get_device_name(),
        }
    return result


def profile(step: Callable[[Tensor, Tensor], Tensor], data: tuple[Tensor, Tensor], top: int) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        step(*data)
        torch.cuda.synchronize()
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events) / 1000
    lines = [f"{total:8.1f} ms  all kernels"]
    lines += [
        f"{e.self_device_time_total / 1000:8.1f} ms {e.count:5d} x  {e.key[:150]}" for e in events[:top]
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", choices=("strict", "free", "peft"), default="strict")
    parser.add_argument("--attention", choices=("cudnn", "fa4"), default="cudnn")
    parser.add_argument("--gemm-plan", type=Path, help="what benchmarks/gpu/gemm.py --out wrote")
    parser.add_argument("--check", action="store_true", help="gradients against PEFT's instead of speed")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--micro", type=int, default=4, help="rows at a time")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N longest kernels")
    parser.add_argument("--out", type=Path, help="write everything measured there as JSON")
    options = parser.parse_args()
    started = time.perf_counter()
    device = "cpu" if options.tiny else "cuda"
    config = TINY if options.tiny else Config()
    tokens = 32 if options.tiny else options.tokens
    torch.manual_seed(0)
    strict = options.variant == "strict"
    # Inductor times several configurations of a reduction and keeps the fastest: its bits then depend on
    # the day, or on whoever filled its cache.
    torch._inductor.config.deterministic = strict
    if options.check:
        attention = make_attention(options.attention, device, deterministic=strict)
        result = check(config, device, tokens, attention)
    else:
        result = {"variant": options.variant}
        if options.variant == "peft":
            reference = peft_model(config, device, torch.bfloat16)
            parameters = [p for p in reference.parameters() if p.requires_grad]
            for parameter in parameters:
                parameter.data = parameter.data.float()
            reference.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            reference.train()
            step = peft_step(reference, torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0, fused=True))
        else:
            result |= {"attention": options.attention, "micro": options.micro}
            attention = make_attention(options.attention, device, deterministic=strict)
            gemm = Gemms(options.gemm_plan)
            model = Model(
                config, random_weights(config, device), attention, compiled=device == "cuda", gemm=gemm
            )
            model.draw_adapter(seed=2, b_std=0.0)
            parameters = [model.adapter]
            optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0, fused=True)
            step = own_step(model, optimizer, options.micro)
        data = batches(config, options.rows, tokens, options.warmup + options.steps)
        print(f"built in {time.perf_counter() - started:.1f} s", flush=True)
        result |= measure(step, data, options.warmup, device)
        result["adapter_sha256"] = digest(parameters)
        if options.variant != "peft" and (missed := set(gemm.algorithms) - gemm.hits):
            raise SystemExit(f"the plan names shapes that this run does not have: {sorted(missed)}")
        if options.profile:
            result["kernels"] = profile(step, data[-1], options.profile)
            print("\n".join(result["kernels"]))
        print({k: v for k, v in result.items() if k != "kernels"})
    if options.out:
        options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
