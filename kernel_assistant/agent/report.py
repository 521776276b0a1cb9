"""What a model is told of an evaluation, for both profiles. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernel_assistant.agent.occupancy import occupancy
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import (
    Baseline,
    Candidate,
    Diagnostic,
    Evaluation,
    KernelResources,
    Mismatch,
    Outcome,
    Timing,
)

MOST_DIAGNOSTICS = 8
HEADER_SUFFIXES = (".h", ".cuh")


def report(evaluation: Evaluation, view: EpisodeView, candidate: Candidate, best_ms: float) -> str:
    """Full profile: the outcome, where to look, and what it means. `best_ms` is the episode's best before this one."""
    resources = [_resources(kernel, view, candidate) for kernel in evaluation.resources]
    if evaluation.correct:
        return "\n".join([*_success(evaluation, view.baseline, best_ms), *_launches(evaluation), *resources])
    head = f"{evaluation.outcome.value.replace('_', ' ')} ({evaluation.stage.value})"
    lines = [head if evaluation.diagnostics else f"{head}: {evaluation.message}"]
    if evaluation.mismatch is not None:
        lines.append(_mismatch(evaluation.mismatch))
    lines += [_diagnostic(found, candidate.sources) for found in evaluation.diagnostics[:MOST_DIAGNOSTICS]]
    return "\n".join([*lines, *resources])


def compact(evaluation: Evaluation, baseline: Baseline) -> str:
    """Compact profile: one line in a fixed grammar, at most 80 tokens."""
    if evaluation.correct and evaluation.timing is not None:
        return _compact_success(evaluation, evaluation.timing, baseline)
    found = evaluation.mismatch
    if found is not None and found.index:
        place = ",".join(map(str, found.index))
        return f"wrong {found.output}[{place}] got {number(found.got)} want {number(found.want)}"
    if evaluation.diagnostics:
        kind = {Outcome.compile_error: "compile", Outcome.refused: "refused"}[evaluation.outcome]
        return f"{kind} {_place(evaluation.diagnostics)}"
    word = {Outcome.incorrect: "wrong", Outcome.out_of_memory: "memory"}.get(evaluation.outcome)
    return f"{word or evaluation.outcome.value} {evaluation.message[:120]}"


def _place(diagnostics: Sequence[Diagnostic]) -> str:
    """The first that is in the model's own lines, else the first."""
    own = (found for found in diagnostics if not found.file.endswith(HEADER_SUFFIXES))
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
    """Where the time of a call goes."""
    total = sum(launch.ms for launch in evaluation.launches)
    if not total:
        return []
    parts = [f"{launch.name} {launch.ms:.3g} ms ({launch.ms / total:.0%})" for launch in evaluation.launches]
    share = f"; {evaluation.share_in_our_kernels:.0%} of the time in your kernels" if evaluation.residual else ""
    return [f"time by launch: {', '.join(parts)}{share}"]


def _mismatch(found: Mismatch) -> str:
    place = f"{found.output}[{','.join(map(str, found.index))}]" if found.index else found.output
    share = f"{found.count} of {found.total} elements differ" if found.total else found.why
    return f"{place}: got {number(found.got)}, want {number(found.want)} (inputs: {found.workload}); {share}"


def _diagnostic(found: Diagnostic, sources: dict[str, str]) -> str:
    place = f"{found.file}:{found.line}: " if found.line else f"{found.file}: " if found.file else ""
    lines = sources.get(found.file, "").split("\n")
    quoted = f"\n    {lines[found.line - 1].strip()[:160]}" if 0 < found.line <= len(lines) else ""
    return f"{place}{found.severity}: {found.message}{quoted if quoted.strip() else ''}"


def _resources(kernel: KernelResources, view: EpisodeView, candidate: Candidate) -> str:
    parts = [f"{kernel.registers} registers", f"{kernel.shared_bytes} B shared", f"{kernel.spill_bytes} B spilled"]
    found = occupancy(kernel, candidate.plan, view.graph, view.device.arch)
    if found is not None:
        share, limit = found
        parts.append(f"occupancy {share:.0%}" + (f" (limited by {limit})" if limit else ""))
    return f"kernel {kernel.symbol}: {', '.join(parts)}"


def number(value: float | None) -> str:
    """Three digits, without a leading zero."""
    if value is None or not math.isfinite(value):
        return "nan" if value is None or math.isnan(value) else "inf"
    return f"{value:.3g}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3g}"
