"""Which of cuBLASLt's algorithms is fastest for each GEMM of the LoRA step, once the chip is hot?

    python benchmarks/gpu/gemm.py --out /tmp/plan.json

Needs torch (2.11 or later, CUDA); cuBLASLt is the library that torch has loaded. The library's own first
choice is made for a cool chip. Under a training load an H200 lies at its power limit, its clock falls from
1980 to about 1450 MHz, and the algorithm that needs least energy wins. So each candidate runs long enough to
be measured hot, in turns with the others. The plan (shape -> algorithm, in cuBLASLt's own 64 bytes, with
the library's version) is what `lora_step.py --gemm-plan` runs with.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BF16, FP32, COMPUTE_FP32 = 14, 0, 68  # cudaDataType_t, cublasComputeType_t
TRANSPOSE_A, WORKSPACE_LIMIT = 3, 1  # attributes of the operation and of the preference
WORKSPACE = 64 << 20


class Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_ubyte * 64),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """out = x @ w or x @ w.t() for bf16 rows of any pitch, by an algorithm that the caller names."""

    def __init__(self) -> None:
        torch.ones(2, 2, device="cuda", dtype=torch.bfloat16).mm(
            torch.ones(2, 2, device="cuda", dtype=torch.bfloat16)
        )
        self.library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self.library.cublasLtGetVersion())
        self.handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self.handle))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self._described: dict[Any, tuple[Any, ...]] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} answered {status}")

    def _layout(self, rows: int, columns: int, pitch: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        self._call(
            "cublasLtMatrixLayoutCreate",
            ctypes.byref(layout),
            BF16,
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(pitch),
        )
        return layout

    def key(self, x: Tensor, w: Tensor, out: Tensor, *, transposed: bool) -> str:
        """rows x inner x columns, the pitches, and whether the weight is transposed."""
        pitches = "/".join(str(t.stride(0)) for t in (x, w, out))
        return f"{len(x)}x{x.shape[1]}x{out.shape[1]} {pitches} {'t' if transposed else 'n'}"

    def _describe(self, x: Tensor, w: Tensor, out: Tensor, *, transposed: bool) -> tuple[Any, ...]:
        """cuBLAS counts columns first, so this asks it for out' = w' x'."""
        key = self.key(x, w, out, transposed=transposed)
        if key not in self._described:
            operation = ctypes.c_void_p()
            self._call("cublasLtMatmulDescCreate", ctypes.byref(operation), COMPUTE_FP32, FP32)
            turn = ctypes.c_int32(int(transposed))
            self._call(
                "cublasLtMatmulDescSetAttribute",
                operation,
                TRANSPOSE_A,
                ctypes.byref(turn),
                ctypes.c_size_t(4),
            )
            layouts = [self._layout(t.shape[1], t.shape[0], t.stride(0)) for t in (w, x, out)]
            self._described[key] = (operation, *layouts)
        return self._described[key]

    def algorithms(self, x: Tensor, w: Tensor, out: Tensor, *, transposed: bool, most: int) -> list[bytes]:
        operation, *layouts = self._describe(x, w, out, transposed=transposed)
        preference = ctypes.c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        limit = ctypes.c_size_t(WORKSPACE)
        self._call(
            "cublasLtMatmulPreferenceSetAttribute",
            preference,
            WORKSPACE_LIMIT,
            ctypes.byref(limit),
            ctypes.c_size_t(8),
        )
        found, count = (Heuristic * most)(), ctypes.c_int()
        self._call(
            "cublasLtMatmulAlgoGetHeuristic",
            self.handle,
            operation,
            *layouts,
            layouts[-1],
            preference,
            most,
            found,
            ctypes.byref(count),
        )
        return [bytes(f.algorithm) for f in found[: count.value] if f.state == 0]

    def run(self, x: Tensor, w: Tensor, out: Tensor, algorithm: bytes, *, transposed: bool) -> Tensor:
        operation, *layouts = self._describe(x, w, out, transposed=transposed)
        self._call(
            "cublasLtMatmul",
            self.handle,
            operation,
            ctypes.byref(self.one),
            ctypes.c_void_p(w.data_ptr()),
            layouts[0],
            ctypes.c_void_p(x.data_ptr()),
            layouts[1],
            ctypes.byref(self.zero),
            ctypes.c_void_p(out.data_ptr()),
            layouts[2],
            ctypes.c_void_p(out.data_ptr()),
            layouts[2],
            algorithm,
            ctypes.c_void_p(self.workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        return out


def timed(call: Any, milliseconds: float, guess: float) -> float:
    count = max(3, int(milliseconds / guess))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count


def kernel_of(call: Any) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return max(profile.key_averages(), key=lambda e: e.self_device_time_total).key[:120]


def probe(lt: CublasLt, x: Tensor, w: Tensor, out: Tensor, *, transposed: bool, most: int) -> dict[str, Any]:
    flops = 2 * len(x) * x.shape[1] * out.shape[1]
    reference = torch.mm(x, w.t() if transposed else w)

    def default() -> None:
        torch.mm(x, w.t() if transposed else w, out=out)

    candidates = {}
    for index, algorithm in enumerate(lt.algorithms(x, w, out, transposed=transposed, most=most)):
        out.fill_(float("nan"))
        try:
            lt.run(x, w, out, algorithm, transposed=transposed)
        except RuntimeError:
            continue
        error = ((out.float() - reference.float()).norm() / reference.float().norm()).item()
        if error < 1e-2:
            candidates[index] = algorithm
    calls = {"torch": default} | {
        str(i): (lambda a=a: lt.run(x, w, out, a, transposed=transposed)) for i, a in candidates.items()
    }
    guess = timed(default, 100, 5)
    first = {name: timed(call, 60, guess) for name, call in calls.items()}
    best = ["torch", *[n for n in sorted(first, key=first.__getitem__) if n != "torch"][:4]]
    rounds: dict[str, list[float]] = {name: [] for name in best}
    for _ in range(4):
        for name in best:
            rounds[name].append(timed(calls[name], 120, guess))
    found = {name: statistics.median(times) for name, times in rounds.items()}
    winner = min(found, key=found.__getitem__)
    row = {
        "key": lt.key(x, w, out, transposed=transposed),
        "candidates": len(candidates),
        "tflops": {name: round(flops / ms / 1e9, 1) for name, ms in found.items()},
        "kernels": {name: kernel_of(calls[name]) for name in ("torch", winner)},
        "winner": winner,
        "gain": found["torch"] / found[winner] - 1,
    }
    if winner != "torch" and row["gain"] > 0.005:
        row["algorithm"] = candidates[int(winner)].hex()
    return row


def report(name: str, found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    row = {"gemm": name} | found
    rows.append(row)
    print(f"{name:18} {row['key']:44} {row['gain']:+.1%} {row['tflops']} {row['kernels']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=16384, help="tokens of a micro-batch")
    parser.add_argument("--most", type=int, default=48, help="algorithms to ask for")
    parser.add_argument("--head", action="store_true", help="the output matrix too, in chunks of 8192 tokens")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lt = CublasLt()
    print(torch.cuda.get_device_name(), torch.__version__, "cublasLt", lt.version)

    def draw(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02

    hot = draw(8192, 8192)
    until = time.perf_counter() + 2
    while time.perf_counter() < until:
        timed(lambda: hot @ hot, 200, 2)
    rows = []
    count, pad = options.rows, 64
    for name, width, out in (
        ("qkv", 4096, 6144),
        ("o", 4096, 4096),
        ("gate_up", 4096, 24576),
        ("down", 12288, 4096),
    ):
        packed = draw(out + pad, width + pad)
        cases = {
            "forward": (draw(count, width + pad), packed[:out], draw(count, out), True),
            "backward": (draw(count, out + pad), packed[:, :width], draw(count, width), False),
        }
        for way, (x, w, y, transposed) in cases.items():
            report(f"{name} {way}", probe(lt, x, w, y, transposed=transposed, most=options.most), rows)
    if options.head:
        part, vocabulary = 8192, 151936
        head, logits = draw(vocabulary, 4096), draw(part, vocabulary)
        normed, out = draw(part, 4096 + pad)[:, :4096], draw(part, 4096)
        for way, case in (
            ("forward", (normed, head, logits, True)),
            ("backward", (logits, head, out, False)),
        ):
            x, w, y, transposed = case
            report(f"head {way}", probe(lt, x, w, y, transposed=transposed, most=options.most), rows)
    plan = {"cublaslt": lt.version, "device": torch.cuda.get_device_name()}
    plan["algorithms"] = {row["key"]: row["algorithm"] for row in rows if "algorithm" in row}
    if options.out:
        options.out.write_text(json.dumps(plan | {"measured": rows}, indent=1))


if __name__ == "__main__":
    main()
