"""Which attention is fast, and which gives the same bits twice? Forward and backward on one NVIDIA GPU.

    python benchmarks/gpu/attention.py --out /tmp/attention.json

Needs torch (2.11 or later, CUDA). What else is importable is measured too, the rest is reported as missing:

    nvidia-cudnn-frontend   cuDNN's deterministic backward, which PyTorch does not reach
    flash-attn-4            FlashAttention-4 (CuTe DSL), with nvidia-cutlass-dsl[cu13]

Two cases at the shape of Qwen3-8B, 8 rows of 4096 tokens: `causal`, one document a row, and `packed`,
several documents a row that don't see each other. Each implementation is checked against float64, timed in
turns with the others (CUDA events, median), run ten times on the same input, every other time beside a
disturbing stream, and profiled for the names of the kernels that really ran. `--compare OLD.json` compares
the digests of the results with those of another process.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import json
import math
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch._functorch.config
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, TOKENS, HEADS, KV_HEADS, HEAD_SIZE = 8, 4096, 32, 8, 128
DOCUMENTS = (1500, 900, 1100, 596)  # of a row, rotated by one from row to row


def longest_of(documents: list[int]) -> int:
    """The longest document, of offsets that begin with 0 and end with the number of tokens."""
    return max(end - start for start, end in itertools.pairwise(documents))


# ---------------------------------------------------------------------------------------------- cuDNN


class CudnnAttention:
    """cuDNN's attention through its own frontend, with the choice of a deterministic backward.

    Tensors are (rows, tokens, heads, head size) with any strides whose last is one. A graph is built once
    for each set of strides; `documents` (offsets, one more than there are documents) makes every document
    attend to itself only, over the rows laid end to end.
    """

    def __init__(self, *, deterministic: bool, documents: list[int] | None = None) -> None:
        self.cudnn: Any = importlib.import_module("cudnn")
        self.handle = self.cudnn.create_handle()
        self.deterministic = deterministic
        self.documents = documents
        self._graphs: dict[Any, tuple[Any, Tensor]] = {}
        self._lengths: Tensor | None = None
        self._offsets: dict[int, Tensor] = {}
        if documents is not None:
            starts = torch.tensor(documents, dtype=torch.int64)
            self._lengths = (starts[1:] - starts[:-1]).to(torch.int32).view(-1, 1, 1, 1).cuda()
            self._starts = starts.view(-1, 1, 1, 1).cuda()

    def _offset(self, tensor: Tensor) -> Tensor:
        pitch = tensor.stride(1)
        if pitch not in self._offsets:
            self._offsets[pitch] = (self._starts * pitch).to(torch.int32)
        return self._offsets[pitch]

    def _declare(self, graph: Any, name: str, tensor: Tensor) -> Any:
        dim, stride = self._layout(tensor)
        node = graph.tensor(name=name, dim=dim, stride=stride, data_type=self.cudnn.data_type.BFLOAT16)
        self._make_ragged(graph, node, tensor)
        return node

    def _layout(self, tensor: Tensor) -> tuple[list[int], list[int]]:
        rows, tokens, heads, size = tensor.shape
        row, pitch, head, one = tensor.stride()
        if one != 1 or (rows > 1 and self.documents is not None and row != tokens * pitch):
            raise ValueError(f"strides {tensor.stride()} are not supported")
        if self.documents is None:
            return [rows, heads, tokens, size], [row, head, pitch, 1]
        return [len(self.documents) - 1, heads, self._longest(), size], [
            self._longest() * pitch,
            head,
            pitch,
            1,
        ]

    def _longest(self) -> int:
        assert self.documents is not None
        return longest_of(self.documents)

    def _make_ragged(self, graph: Any, node: Any, tensor: Tensor) -> None:
        if self.documents is None:
            return
        pitch = tensor.stride(1)
        if pitch not in self._ragged:
            offset = graph.tensor(
                name=f"offset_{pitch}",
                dim=[len(self.documents), 1, 1, 1],
                stride=[1, 1, 1, 1],
                data_type=self.cudnn.data_type.INT32,
            )
            self._ragged[pitch] = offset
            self._bind.append((offset, self._offset(tensor)))
        node.set_ragged_offset(self._ragged[pitch])

    def _new_graph(self) -> Any:
        kinds = self.cudnn.data_type
        self._ragged: dict[int, Any] = {}
        self._bind: list[tuple[Any, Tensor]] = []
        return self.cudnn.pygraph(
            io_data_type=kinds.BFLOAT16,
            intermediate_data_type=kinds.FLOAT,
            compute_data_type=kinds.FLOAT,
            handle=self.handle,
        )

    def _masks(self, graph: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"use_causal_mask": True}
        if self.documents is not None:
            length = graph.tensor(
                name="length",
                dim=[len(self.documents) - 1, 1, 1, 1],
                stride=[1, 1, 1, 1],
                data_type=self.cudnn.data_type.INT32,
            )
            assert self._lengths is not None
            self._bind.append((length, self._lengths))
            options |= {"use_padding_mask": True, "seq_len_q": length, "seq_len_kv": length}
        return options

    def _build(self, graph: Any) -> None:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()

    def _run(self, key: Any, make: Callable[[], tuple[Any, list[Any]]], tensors: list[Tensor]) -> None:
        if key not in self._graphs:
            graph, nodes = make()
            workspace = torch.empty(max(graph.get_workspace_size(), 16), dtype=torch.uint8, device="cuda")
            self._graphs[key] = (graph, nodes, dict(self._bind), workspace)
        graph, nodes, bound, workspace = self._graphs[key]
        self.cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute({**dict(zip(nodes, tensors, strict=True)), **bound}, workspace, handle=self.handle)

    def _statistics(self, q: Tensor) -> tuple[list[int], list[int]]:
        (count, heads, tokens, _), _ = self._layout(q)
        return [count, heads, tokens, 1], [heads * tokens, tokens, 1, 1]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, written to `out` where given, and the softmax statistics that `backward` needs."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        dim, stride = self._statistics(q)
        stats = torch.empty(dim, dtype=torch.float32, device=q.device)

        def make() -> tuple[Any, list[Any]]:
            graph = self._new_graph()
            inputs = [self._declare(graph, name, t) for name, t in zip("qkv", (q, k, v), strict=True)]
            o, s = graph.sdpa(
                name="sdpa",
                q=inputs[0],
                k=inputs[1],
                v=inputs[2],
                generate_stats=True,
                attn_scale=1 / math.sqrt(q.shape[-1]),
                **self._masks(graph),
            )
            o_dim, o_stride = self._layout(out)
            o.set_output(True).set_dim(o_dim).set_stride(o_stride)
            self._make_ragged(graph, o, out)
            s.set_output(True).set_dim(dim).set_stride(stride).set_data_type(self.cudnn.data_type.FLOAT)
            self._build(graph)
            return graph, [*inputs, o, s]

        tensors = [q, k, v, out, stats]
        self._run(("forward", *[(*t.shape, *t.stride()) for t in tensors]), make, tensors)
        return out, stats

    def backward(
        self,
        dout: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        stats: Tensor,
        into: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients; v's goes to `into` where given."""
        grads = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k)]
        grads.append(torch.empty(v.shape, dtype=v.dtype, device=v.device) if into is None else into)
        dim, stride = self._statistics(q)

        def make() -> tuple[Any, list[Any]]:
            graph = self._new_graph()
            names = ("q", "k", "v", "o", "do")
            inputs = [self._declare(graph, n, t) for n, t in zip(names, (q, k, v, out, dout), strict=True)]
            s = graph.tensor(name="stats", dim=dim, stride=stride, data_type=self.cudnn.data_type.FLOAT)
            masks = self._masks(graph)
            if self.documents is not None:
                masks |= {
                    "max_total_seq_len_q": self.documents[-1],
                    "max_total_seq_len_kv": self.documents[-1],
                }
            outputs = graph.sdpa_backward(
                name="sdpa_backward",
                q=inputs[0],
                k=inputs[1],
                v=inputs[2],
                o=inputs[3],
                dO=inputs[4],
                stats=s,
                attn_scale=1 / math.sqrt(q.shape[-1]),
                use_deterministic_algorithm=self.deterministic,
                **masks,
            )
            for node, tensor in zip(outputs, grads, strict=True):
                g_dim, g_stride = self._layout(tensor)
                node.set_output(True).set_dim(g_dim).set_stride(g_stride)
                self._make_ragged(graph, node, tensor)
            self._build(graph)
            return graph, [*inputs, s, *outputs]

        tensors = [q, k, v, out, dout, stats, *grads]
        self._run(("backward", *[(*t.shape, *t.stride()) for t in tensors]), make, tensors)
        return grads[0], grads[1], grads[2]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _CudnnFunction.apply(q, k, v, self)  # type: ignore[no-any-return]


class _CudnnFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, op: CudnnAttention) -> Tensor:
        out, stats = op.forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, stats)
        ctx.op = op
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return *ctx.op.backward(dout, *ctx.saved_tensors), None


# ----------------------------------------------------------------------------- PyTorch and FlashAttention


def sdpa(backend: SDPBackend, *, expand: bool = False, mask: Tensor | None = None) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if expand:
            group = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=not expand
            )
        return out.transpose(1, 2)

    return run


def deterministically(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same with torch's deterministic mode on; with `warn_only` flash attention would ignore it."""
    run.deterministic = True  # type: ignore[attr-defined]
    return run


def varlen(documents: list[int]) -> Callable[..., Tensor]:
    from torch.nn.attention.varlen import varlen_attn

    offsets = torch.tensor(documents, dtype=torch.int32, device="cuda")
    longest = longest_of(documents)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[2] // k.shape[2]
        k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
        flat = [t.flatten(0, 1) for t in (q, k, v)]
        try:
            out = varlen_attn(*flat, offsets, offsets, longest, longest, is_causal=True)
        except TypeError:  # 2.11 names a window instead
            out = varlen_attn(*flat, offsets, offsets, longest, longest, window_size=(-1, 0))
        return out.view(q.shape)

    return run


def flex(document_of: Tensor | None) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    def packed(b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert document_of is not None
        return (i >= j) & (document_of[b, i] == document_of[b, j])

    mask = create_block_mask(
        causal if document_of is None else packed,
        None if document_of is None else document_of.shape[0],
        None,
        TOKENS,
        TOKENS,
        device="cuda",
    )
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return compiled(q, k, v, block_mask=mask, enable_gqa=True).transpose(1, 2)

    return run


def flash4(
    *, deterministic: bool, expand: bool = False, documents: list[int] | None = None
) -> Callable[..., Tensor]:
    """`expand` gives every query head its own copy of K and V, whose gradients are then summed in order."""
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func

    offsets = None if documents is None else torch.tensor(documents, dtype=torch.int32, device="cuda")
    longest = None if documents is None else longest_of(documents)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if expand:
            group = q.shape[2] // k.shape[2]
            k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
        if offsets is None:
            out = flash_attn_func(q, k, v, causal=True, deterministic=deterministic)
            return out[0] if isinstance(out, tuple) else out
        out = flash_attn_varlen_func(
            *(t.flatten(0, 1) for t in (q, k, v)),
            cu_seqlens_q=offsets,
            cu_seqlens_k=offsets,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            causal=True,
            deterministic=deterministic,
        )
        return (out[0] if isinstance(out, tuple) else out).view(q.shape)

    return run


def candidates(
    offsets: list[int] | None, document_of: Tensor | None
) -> dict[str, Callable[[], Callable[..., Tensor]]]:
    """Name -> how to make it; making it fails where it is not installed or does not support the case."""
    if offsets is None:
        made: dict[str, Callable[[], Callable[..., Tensor]]] = {
            "sdpa flash": lambda: sdpa(SDPBackend.FLASH_ATTENTION),
            "sdpa flash, torch deterministic": lambda: deterministically(sdpa(SDPBackend.FLASH_ATTENTION)),
            "sdpa cudnn": lambda: sdpa(SDPBackend.CUDNN_ATTENTION),
            "sdpa efficient": lambda: sdpa(SDPBackend.EFFICIENT_ATTENTION, expand=True),
        }
    else:
        assert document_of is not None
        same = document_of[:, None, :, None] == document_of[:, None, None, :]
        mask = same & torch.ones(TOKENS, TOKENS, dtype=torch.bool, device="cuda").tril()
        made = {
            "torch varlen (flash)": lambda: varlen(offsets),
            "torch varlen (flash), torch deterministic": lambda: deterministically(varlen(offsets)),
            "sdpa cudnn, dense mask": lambda: sdpa(SDPBackend.CUDNN_ATTENTION, mask=mask),
            "sdpa efficient, dense mask": lambda: sdpa(
                SDPBackend.EFFICIENT_ATTENTION, expand=True, mask=mask
            ),
        }
    return made | {
        "flex, compiled": lambda: flex(document_of),
        "cudnn-frontend": lambda: CudnnAttention(deterministic=False, documents=offsets),
        "cudnn-frontend, deterministic": lambda: CudnnAttention(deterministic=True, documents=offsets),
        "fa4": lambda: flash4(deterministic=False, documents=offsets),
        "fa4, deterministic": lambda: flash4(deterministic=True, documents=offsets),
        "fa4, deterministic, kv expanded": lambda: flash4(deterministic=True, expand=True, documents=offsets),
    }


# ---------------------------------------------------------------------------------------------- measuring


def reference_error(
    got: list[Tensor], inputs: list[Tensor], dout: Tensor, document_of: Tensor | None
) -> float:
    """The largest relative error of output and gradients for row 0, key head 0, against float64."""
    group = HEADS // KV_HEADS
    q, k, v = (inputs[i][0, :, : (group if i == 0 else 1)].double().requires_grad_() for i in range(3))
    scores = torch.einsum("ihd,jxd->hij", q, k) / math.sqrt(HEAD_SIZE)
    allowed = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device="cuda").tril()
    if document_of is not None:
        allowed &= document_of[0][:, None] == document_of[0][None, :]
    out = torch.einsum("hij,jxd->ihd", scores.masked_fill(~allowed, -math.inf).softmax(-1), v)
    grads = torch.autograd.grad(out, (q, k, v), dout[0, :, :group].double())
    worst = 0.0
    for want, have in zip((out, *grads), got, strict=True):
        part = have[0, :, : want.shape[1]].double()
        worst = max(worst, ((part - want).norm() / want.norm()).item())
    return worst


def forward_backward(run: Callable[..., Tensor], inputs: list[Tensor], dout: Tensor) -> list[Tensor]:
    out = run(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, dout)]


def digest(tensors: list[Tensor]) -> str:
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return state.hexdigest()


def timed(call: Callable[[], Any], repeats: int) -> list[float]:
    marks = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)
    ]
    for start, end in marks:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in marks]


def kernels(call: Callable[[], Any]) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events = [e for e in profile.key_averages() if e.self_device_time_total > 0]
    events.sort(key=lambda e: -e.self_device_time_total)
    return [f"{e.self_device_time_total / 1000:.2f} ms  {e.key[:200]}" for e in events[:5]]


def measure(case: str, only: str, rounds: int) -> list[dict[str, Any]]:
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(heads: int) -> Tensor:
        return torch.randn(
            BATCH, TOKENS, heads, HEAD_SIZE, generator=generator, device="cuda", dtype=torch.bfloat16
        )

    inputs = [draw(h).requires_grad_() for h in (HEADS, KV_HEADS, KV_HEADS)]
    dout = draw(HEADS)
    offsets, document_of = None, None
    pairs = BATCH * TOKENS * TOKENS / 2
    if case == "packed":
        lengths = [
            DOCUMENTS[(i + row) % len(DOCUMENTS)] for row in range(BATCH) for i in range(len(DOCUMENTS))
        ]
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        numbers = torch.arange(len(lengths), device="cuda")
        document_of = numbers.repeat_interleave(torch.tensor(lengths, device="cuda")).view(BATCH, TOKENS)
        pairs = sum(n * n for n in lengths) / 2
    flops = 4 * pairs * HEADS * HEAD_SIZE  # forward; the backward counts 2.5 times as much

    rows: list[dict[str, Any]] = []
    ready: list[tuple[dict[str, Any], Callable[..., Tensor]]] = []
    disturbance, side = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream()
    for name, make in candidates(offsets, document_of).items():
        if only and not any(part in name for part in only.split("|")):
            continue
        row: dict[str, Any] = {"case": case, "name": name}
        rows.append(row)
        started = time.perf_counter()
        try:
            run = make()
            torch.use_deterministic_algorithms(hasattr(run, "deterministic"))
            first = forward_backward(run, inputs, dout)
            row["first_call_s"] = round(time.perf_counter() - started, 1)
            row["error"] = reference_error(first, inputs, dout, document_of)
            row["digest"] = digest(first)
            equal = [True] * 4
            for repeat in range(10):
                if repeat % 2:
                    with torch.cuda.stream(side):
                        for _ in range(4):
                            torch.mm(disturbance, disturbance)
                again = forward_backward(run, inputs, dout)
                equal = [e and torch.equal(a, b) for e, a, b in zip(equal, first, again, strict=True)]
            row["equal"] = dict(zip(("out", "dq", "dk", "dv"), equal, strict=True))
            row["kernels_forward"] = kernels(lambda r=run: r(*inputs))
            row["kernels_all"] = kernels(lambda r=run: forward_backward(r, inputs, dout))
            ready.append((row, run))
        except Exception as error:  # noqa: BLE001 - whatever keeps a candidate from running is its result
            row["failed"] = f"{type(error).__name__}: {str(error).strip()[:400]}"
            traceback.print_exc(limit=3, file=sys.stderr)
        print(f"{case}: {name}: {row.get('failed') or row['equal']}", flush=True)

    times: dict[str, tuple[list[float], list[float]]] = {row["name"]: ([], []) for row, _ in ready}
    for _ in range(rounds):
        for row, run in ready:
            torch.use_deterministic_algorithms(hasattr(run, "deterministic"))
            out = run(*inputs)
            forward, backward = times[row["name"]]
            forward += timed(lambda r=run: r(*inputs), 6)[1:]
            backward += timed(lambda o=out: torch.autograd.grad(o, inputs, dout, retain_graph=True), 6)[1:]
            del out
    torch.use_deterministic_algorithms(False)
    for row, _ in ready:
        forward, backward = (statistics.median(t) for t in times[row["name"]])
        row |= {"forward_ms": forward, "backward_ms": backward}
        row["tflops_forward"] = flops / forward / 1e9
        row["tflops_backward"] = 2.5 * flops / backward / 1e9
        row["tflops_both"] = 3.5 * flops / (forward + backward) / 1e9
        row["p95_backward_ms"] = sorted(times[row["name"]][1])[int(0.95 * len(times[row["name"]][1]))]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write everything measured there as JSON")
    parser.add_argument("--compare", type=Path, help="what --out of another process wrote")
    parser.add_argument("--cases", default="causal,packed")
    parser.add_argument(
        "--only", default="", help="candidates whose name holds one of these parts, split by |"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns, of five timed repeats each")
    options = parser.parse_args()
    torch._functorch.config.donated_buffer = False  # the backward alone is timed by running it again
    versions = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    print(torch.cuda.get_device_name(), versions)
    rows = [row for case in options.cases.split(",") for row in measure(case, options.only, options.rounds)]
    earlier: dict[tuple[str, str], str] = {}
    if options.compare:
        old = json.loads(options.compare.read_text())["rows"]
        earlier = {(r["case"], r["name"]): r["digest"] for r in old if "digest" in r}
    print(f"\n{'':52} {'fwd':>14} {'bwd':>14} {'both':>6}   same bits  error")
    for row in rows:
        label = f"{row['case']:7} {row['name']}"
        if "failed" in row:
            print(f"{label:52} {row['failed'][:100]}")
            continue
        same = (
            "yes"
            if all(row["equal"].values())
            else "no: " + " ".join(k for k, e in row["equal"].items() if not e)
        )
        if (before := earlier.get((row["case"], row["name"]))) is not None:
            row["equal_across_processes"] = before == row["digest"]
            same += ", across processes " + ("yes" if row["equal_across_processes"] else "no")
        print(
            f"{label:52} {row['forward_ms']:6.2f}ms {row['tflops_forward']:5.0f} {row['backward_ms']:6.2f}ms"
            f" {row['tflops_backward']:5.0f} {row['tflops_both']:6.0f}   {same}  {row['error']:.1e}"
        )
    if options.out:
        options.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
