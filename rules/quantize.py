"""Makes the tuned model smaller with AMD Quark (FP8), and loads it again to see that it computes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxt.rule import Attributes, Config, Label, Refusal, Resources, Run, StageError, Target, not_yet
from rules._refusals import on_gpu, pictures

VERSION = 1
KEYED = (
    "hardware.gpus",
    "hardware.env",
    "model.kind",
    "model.trust_remote_code",
    "quantize.scheme",
    "quantize.exclude",
    "quantize.calibration_rows",
    "data.pack.max_length",
)

# what was exported must compute what Quark computed: largest difference of logits, by the largest logit
TOLERANCE = 1e-3
# schemes whose input scales are fixed ahead of time, on data; the others measure each token as it comes
CALIBRATED = ("fp8",)
SCHEMES = ("ptpc_fp8", "fp8")
CALIBRATION_ROWS = 64
# what quantizing may change: mean difference of logits by their mean size. FP8 keeps three bits after
# the first, 2-3 % a product; a model that is off by as much as this has lost what it was trained for
DRIFT = 0.25
PROBE_TOKENS = 64
PROBE_ROWS = 2


class Attrs(Attributes):
    """model: a model folder. adapter: merged into it first. data: packed sequences, for calibration.

    extension: the target that compiled Quark's extension.
    """

    config: Config
    model: Label
    adapter: Label | None = None
    data: Label | None = None
    extension: Label | None = None


def actions(target: Target) -> None:
    attrs = target.attrs
    calibrated = target.config["quantize.scheme"] in CALIBRATED and attrs.data is not None
    inputs: dict[str, Any] = {
        "model": attrs.model,
        "data": target.outputs(attrs.data) if calibrated else [],
    }
    if attrs.adapter is not None:
        inputs["adapter"] = attrs.adapter
    target.action(
        run=quantize,
        mnemonic="Quantize",
        inputs=inputs,
        outputs={"model": "model/"},
        resources=Resources(cpus=1, memory_mb=3072, gpus=target.config["hardware.gpus"]),
        environment=target.config["hardware.env"],
        refuse=_refusal(target.config),
        accelerants=attrs.extension or True,
    )


def _refusal(config: Mapping[str, Any]) -> Refusal | None:
    """Schemes that are not written yet, and GPUs."""
    scheme = config["quantize.scheme"]
    if scheme not in SCHEMES:
        return not_yet(f"quantizing to {scheme}", hint=f"written are {' and '.join(SCHEMES)}")
    return pictures("quantizing", config) or on_gpu("quantizing", config)


def quantize(run: Run) -> None:
    """Merge, quantize, export, load again, compare. evidence: check.json."""
    from rules._runtime import load_tuned, prepare

    prepare(run, deterministic=True)
    import json

    from rules import _quark
    from rules._export import copy_companions, normalise_config
    from rules._training import fused_experts

    source = run.inputs["model"].absolute()
    adapter = run.inputs.get("adapter")
    run.report(note="merging")
    code = run.config.get("model.trust_remote_code")
    merge = adapter.absolute() if adapter else None
    model = load_tuned(source, merge, attention="eager", code=code).eval()
    exclude = run.config["quantize.exclude"]
    experts = bool(fused_experts(model))
    if not experts:
        _quark.check_exclude(model, exclude)
    probe = probe_rows(model.config.vocab_size)
    original = _logits(model, probe)
    rows = calibration_rows(run, run.inputs["data"])
    run.report(note="loading Quark (compiling its extension, if it is not there)")
    quark = _quark.import_quark()
    if experts:
        _quark.take_experts_apart(model)
        _quark.check_exclude(model, exclude)
    run.report(note="quantizing")
    frozen = _quark.quantize(quark, model, run.config["quantize.scheme"], exclude, rows)
    reference = _logits(frozen, probe)
    run.report(note="exporting")
    folder = run.outputs["model"]
    _quark.export(quark, frozen, folder)
    copy_companions(source, folder)
    normalise_config(folder / "config.json", source)
    run.report(note="loading the result")
    parts = _quark.quantized_parts(folder)
    again = _quark.load_again(quark, folder.absolute()) if experts else _reload(folder, code)
    check = compare(original, reference, _logits(again, probe))
    check |= {"calibration_rows": len(rows), "quantized_weights": parts.layers, "compiler": _quark.compiler()}
    check["quantized_part"] = round(parts.quantized / parts.weights, 4)
    if experts:
        check["quantized_part_of_experts"] = round(parts.quantized_experts / parts.expert_weights, 4)
        _tell_experts(run, check["quantized_part_of_experts"])
    (run.evidence / "check.json").write_text(json.dumps(check, indent=2) + "\n")
    _show(run, check)
    if not check["reloaded_difference"] <= TOLERANCE:
        raise StageError(
            f"exported model computes something else: logits differ by {check['reloaded_difference']:.2e} "
            f"of the largest, {TOLERANCE:g} is allowed",
            hint="the versions of transformers and amd-quark do not fit together: check the toolchain's lock",
        )
    if not check["mean_drift"] <= DRIFT:
        raise StageError(
            f"quantizing changed the model too much: logits differ by {check['mean_drift']:.0%} of their "
            f"mean size, {DRIFT:.0%} is allowed",
            hint="name sensitive layers in quantize.exclude, such as '*down_proj'",
        )


def _tell_experts(run: Run, part: float) -> None:
    """Say it where experts, which are most of the weights, are not small: quantize.exclude may want that."""
    if part == 1:
        return
    said = f"{1 - part:.0%} of the experts' weights are as large as before (quantize.exclude)"
    run.report(summary=said)
    run.panel("verdict", f"Quantization: {said}", good=None, section="Quantization")


def _show(run: Run, check: dict[str, Any]) -> None:
    """The check, each difference beside what is allowed."""
    from rules._panels import facts

    shown = (
        ("scheme", run.config["quantize.scheme"]),
        ("layers quantized", check["quantized_weights"]),
        ("part of the weights that is FP8 now", f"{check['quantized_part']:.1%}"),
        ("part of the experts' weights", _percent(check.get("quantized_part_of_experts"))),
        ("rows to measure input scales on", check["calibration_rows"] or None),
        ("exported against quantized", f"{check['reloaded_difference']:.2g} (at most {TOLERANCE:g})"),
        ("quantized against original, mean", f"{check['mean_drift']:.1%} (at most {DRIFT:.0%})"),
        ("quantized against original, largest", f"{check['quantization_difference']:.1%}"),
        ("same most likely token", f"{check['same_top_token']:.0%}"),
    )
    note = "Differences of logits on the same tokens: of their mean size for the mean, else of the largest."
    facts(run, "Quantization", "Does the smaller model compute the same?", shown, note)


def _percent(part: float | None) -> str | None:
    return None if part is None else f"{part:.1%}"


def calibration_rows(run: Run, data: Sequence[Path]) -> list[dict[str, Any]]:
    """The first packed sequences as model inputs, documents kept apart; none for a dynamic scheme."""
    if run.config["quantize.scheme"] not in CALIBRATED:
        return []
    if not data:
        raise StageError(
            f"scheme '{run.config['quantize.scheme']}' measures input scales on data, the recipe has none",
            hint="use ptpc_fp8, which needs none, or add a 'data' section",
        )
    from rules._packed import PackedCollator, read_packed

    table = read_packed(data, run.config["data.pack.max_length"])
    collate = PackedCollator(1, None, 0)
    out = []
    for row in table.slice(0, run.config["quantize.calibration_rows"] or CALIBRATION_ROWS).to_pylist():
        n = len(row["input_ids"])  # the padding must not be measured
        batch = collate([row])
        out.append({"input_ids": batch["input_ids"][:, :n], "position_ids": batch["position_ids"][:, :n]})
    return out


def compare(original: Any, reference: Any, reloaded: Any) -> dict[str, Any]:
    """How far apart logits are, by the largest: exported from quantized, quantized from the original.

    Each holds the logits of a batch of several rows, and of its first row alone.
    """
    original, _ = original
    reference, reference_alone = reference
    reloaded, reloaded_alone = reloaded
    scale = float(reference.abs().max()) or 1.0
    apart = max(
        float((reloaded - reference).abs().max()), float((reloaded_alone - reference_alone).abs().max())
    )
    return {
        "reloaded_difference": apart / scale,
        "tolerance": TOLERANCE,
        "quantization_difference": float((reference - original).abs().max()) / scale,
        "mean_drift": float((reference - original).abs().mean() / original.abs().mean()),
        "drift_allowed": DRIFT,
        # of Quark's simulation, not of the weights: see rules/_quark.py
        "simulation_batch_difference": float((reloaded[:1] - reloaded_alone).abs().max()) / scale,
        "same_top_token": float((reference.argmax(-1) == original.argmax(-1)).float().mean()),
    }


def probe_rows(vocab_size: int) -> Any:
    """Rows of all kinds of tokens, none like another: (PROBE_ROWS, PROBE_TOKENS)."""
    import torch

    count = PROBE_ROWS * PROBE_TOKENS
    spread = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))
    return spread[torch.arange(count) % vocab_size].reshape(PROBE_ROWS, PROBE_TOKENS)


def _logits(model: Any, ids: Any) -> tuple[Any, Any]:
    """Of all rows together, and of the first alone."""
    import torch

    with torch.no_grad():
        return tuple(model(input_ids=rows, use_cache=False).logits.float() for rows in (ids, ids[:1]))


def _reload(folder: Path, code: str | None) -> Any:
    from rules._runtime import load_model

    return load_model(folder.absolute(), attention="eager", code=code).eval()
