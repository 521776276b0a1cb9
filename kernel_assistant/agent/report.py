"""Writes the report of an evaluation for a model, for both profiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import (
    Baseline,
    Candidate,
    Diagnostic,
    Evaluation,
    KernelResources,
    Mismatch,
    OpGraph,
    Outcome,
    Plan,
    Timing,
)
from kernel_assistant.worker.runner.plan import PlanError, evaluate

MOST_DIAGNOSTICS = 8
HEADER_SUFFIXES = (".h", ".cuh")
#: Limits of an SM are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
#: Registers are allocated to a warp in units of 256, and a block takes 1 KiB of shared memory besides its own.
WARP = 32
REGISTERS = 65536
UNIT = 256
RESERVED = 1024
#: Architecture → warps, blocks, shared bytes.
SM = {
    "sm_80": (64, 32, 164 << 10),
    "sm_86": (48, 16, 100 << 10),
    "sm_89": (48, 24, 100 << 10),
    "sm_90": (64, 32, 228 << 10),
}


def report(evaluation: Evaluation, view: EpisodeView, candidate: Candidate, best_ms: float) -> str:
    """Returns the report of the full profile: the outcome, with errors or times in detail. `best_ms` is the best time
    of the episode before this evaluation, in milliseconds."""
    resources = [_resources(kernel, view, candidate) for kernel in evaluation.resources]
    if evaluation.correct:
        only = [f"at the declared sizes only; at others {evaluation.elsewhere}"] if evaluation.elsewhere else []
        return "\n".join([*_success(evaluation, view.baseline, best_ms), *only, *_launches(evaluation), *resources])
    head = f"{evaluation.outcome.value.replace('_', ' ')} ({evaluation.stage.value})"
    lines = [head if evaluation.diagnostics else f"{head}: {evaluation.message}"]
    if evaluation.mismatch is not None:
        lines.append(_mismatch(evaluation.mismatch))
    lines += [_diagnostic(diagnostic, candidate.sources) for diagnostic in evaluation.diagnostics[:MOST_DIAGNOSTICS]]
    return "\n".join([*lines, *resources])


def compact(evaluation: Evaluation, baseline: Baseline) -> str:
    """Returns the report of the compact profile: one line in a fixed grammar, at most 80 tokens, with the times of
    `baseline` or with the first error."""
    if evaluation.correct and evaluation.timing is not None:
        return _compact_success(evaluation, evaluation.timing, baseline)
    mismatch = evaluation.mismatch
    if mismatch is not None and mismatch.index:
        index = ",".join(map(str, mismatch.index))
        return f"wrong {mismatch.output}[{index}] got {number(mismatch.got)} want {number(mismatch.want)}"
    if evaluation.diagnostics:
        kind = {Outcome.compile_error: "compile", Outcome.refused: "refused"}[evaluation.outcome]
        return f"{kind} {_first_diagnostic(evaluation.diagnostics)}"
    word = {Outcome.incorrect: "wrong", Outcome.out_of_memory: "memory"}.get(evaluation.outcome)
    return f"{word or evaluation.outcome.value} {evaluation.message[:120]}"


def _first_diagnostic(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns the first diagnostic about the model's own lines or, if there is none, the first of all; shortened."""
    own = (diagnostic for diagnostic in diagnostics if not diagnostic.file.endswith(HEADER_SUFFIXES))
    first = next(own, diagnostics[0])
    words = [first.file] if first.file.endswith(HEADER_SUFFIXES) else []
    words += [f"L{first.line}"] if first.line else []
    return " ".join([*words, first.message[:120]])


def _compact_success(evaluation: Evaluation, timing: Timing, baseline: Baseline) -> str:
    words = ["ok", number(timing.candidate_ms)]
    compiled = timing.compile_ms or baseline.compile_ms
    words += ["compile", number(compiled)] if compiled else ["eager", number(timing.eager_ms)]
    words += ["floor", number(timing.floor_ms)] if timing.floor_ms else []
    if evaluation.resources:
        words += ["regs", str(max(kernel.registers for kernel in evaluation.resources))]
        spilled = sum(kernel.spill_bytes for kernel in evaluation.resources)
        words += ["spill", str(spilled)] if spilled else []
    return " ".join(words)


def _success(evaluation: Evaluation, baseline: Baseline, best_ms: float) -> list[str]:
    timing, accuracy = evaluation.timing, evaluation.accuracy
    if timing is None or accuracy is None:
        return ["correct, not timed"]
    compiled = timing.compile_ms or baseline.compile_ms
    lines = [f"correct, {timing.candidate_ms:.4g} ms ({evaluation.tier.value} tier)"]
    lines.append(f"eager {timing.eager_ms:.4g} ms: {timing.speedup_vs_eager:.2f}x")
    if compiled:
        lines.append(f"torch.compile {compiled:.4g} ms: {compiled / timing.candidate_ms:.2f}x")
    if timing.floor_ms:
        lines.append(f"floor {timing.floor_ms:.4g} ms: {timing.roofline:.0%} of the roofline")
    if timing.candidate_ms > best_ms:
        lines.append(f"slower than the best so far, {best_ms:.4g} ms")
    lines.append(f"error {accuracy.error:.2g} against float64, {accuracy.error_ratio:.2g} times PyTorch's own")
    return [*lines, *([f"warning: {timing.warning}"] if timing.warning else [])]


def _launches(evaluation: Evaluation) -> list[str]:
    """Returns a list with one line that names the time and share of each launch of a call; an empty list if no launch
    was timed."""
    total = sum(launch.ms for launch in evaluation.launches)
    if not total:
        return []
    parts = [f"{launch.name} {launch.ms:.3g} ms ({launch.ms / total:.0%})" for launch in evaluation.launches]
    share = f"; {evaluation.share_in_our_kernels:.0%} of the time in your kernels" if evaluation.residual else ""
    return [f"time by launch: {', '.join(parts)}{share}"]


def _mismatch(mismatch: Mismatch) -> str:
    element = f"{mismatch.output}[{','.join(map(str, mismatch.index))}]" if mismatch.index else mismatch.output
    share = f"{mismatch.count} of {mismatch.total} elements differ" if mismatch.total else mismatch.why
    return f"{element}: got {number(mismatch.got)}, want {number(mismatch.want)} (inputs: {mismatch.workload}); {share}"


def _diagnostic(diagnostic: Diagnostic, sources: dict[str, str]) -> str:
    location = (
        f"{diagnostic.file}:{diagnostic.line}: "
        if diagnostic.line
        else f"{diagnostic.file}: "
        if diagnostic.file
        else ""
    )
    lines = sources.get(diagnostic.file, "").split("\n")
    quoted = f"\n    {lines[diagnostic.line - 1].strip()[:160]}" if 0 < diagnostic.line <= len(lines) else ""
    return f"{location}{diagnostic.severity}: {diagnostic.message}{quoted if quoted.strip() else ''}"


def _resources(kernel: KernelResources, view: EpisodeView, candidate: Candidate) -> str:
    parts = [f"{kernel.registers} registers", f"{kernel.shared_bytes} B shared", f"{kernel.spill_bytes} B spilled"]
    share_and_limit = occupancy(kernel, candidate.plan, view.graph, view.device.arch)
    if share_and_limit is not None:
        share, limit = share_and_limit
        parts.append(f"occupancy {share:.0%}" + (f" (limited by {limit})" if limit else ""))
    return f"kernel {kernel.symbol}: {', '.join(parts)}"


def number(value: float | None) -> str:
    """Formats a number with three digits, without a zero before the decimal point; "nan" for None."""
    if value is None or not math.isfinite(value):
        return "nan" if value is None or math.isnan(value) else "inf"
    return f"{value:.3g}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3g}"


def occupancy(kernel: KernelResources, plan: Plan, graph: OpGraph, arch: str) -> tuple[float, str] | None:
    """Returns the share of the warps of an SM that the kernel can occupy at the base sizes, and the name of the
    resource that limits it ("" at 1.0); None if the share is not known."""
    launch = next((one for one in plan.launches if one.symbol == kernel.symbol), None)
    if arch not in SM or launch is None or not kernel.registers:
        return None
    try:
        x, y, z = (evaluate(size, graph.dims) for size in launch.block)
        dynamic = evaluate(launch.shared, graph.dims)
    except PlanError:
        return None
    most_warps, most_blocks, shared = SM[arch]
    warps = -(-x * y * z // WARP)
    if not 0 < warps <= 1024 // WARP:
        return None
    of_a_warp = -(-kernel.registers * WARP // UNIT) * UNIT
    blocks = {
        "registers": REGISTERS // of_a_warp // warps,
        "shared memory": shared // (kernel.shared_bytes + dynamic + RESERVED),
        "the block's size": min(most_warps // warps, most_blocks),
    }
    limit = min(blocks, key=lambda name: blocks[name])
    share = blocks[limit] * warps / most_warps
    return share, "" if share == 1.0 else limit
