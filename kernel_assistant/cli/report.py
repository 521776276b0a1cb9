"""The report at the end of a job, in words that claim no more than was measured."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.cli.free_wins import free_wins_table
from kernel_assistant.cli.text import interval, milliseconds, styled, table, times
from kernel_assistant.records import Accuracy, Evaluation, JobOutcome, OptimizeResult, Timing, decode
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower
from kernel_assistant.session.applied_timing import APPLIED_FILE, read_applied


def report(result: OptimizeResult) -> list[str]:
    """Lines for stdout."""
    evaluation = read_evaluation(result)
    lines = [_headline(result, evaluation), ""]
    if evaluation is not None and evaluation.timing is not None:
        lines += [f"  {line}" for line in _times(evaluation.timing)] + [""]
    rows = _facts(result, evaluation)
    width = max(len(name) for name, _ in rows)
    lines += [f"  {name.ljust(width)}  {text}" for name, text in rows]
    free = free_wins_table(result)
    return [*lines, "", *free] if free else lines


def read_evaluation(result: OptimizeResult) -> Evaluation | None:
    """The evaluation among the artifacts, if it is still there."""
    path = result.artifacts.get("evaluation.json")
    if path is None or not Path(path).is_file():
        return None
    return decode(Path(path).read_bytes(), Evaluation)


def verdict(result: OptimizeResult, timing: Timing | None) -> str:
    """What was found, in a few words."""
    match result.outcome:
        case JobOutcome.improved if timing is not None and timing.compile_ms is None:
            return "measurably faster than eager (torch.compile could not be measured)"
        case JobOutcome.improved:
            return "measurably faster than torch.compile and eager"
        case JobOutcome.no_measurable_gain:
            return _no_gain(timing)
        case JobOutcome.at_limit:
            return "already at the limit: torch.compile reaches what the device allows, nothing was tried"
        case JobOutcome.no_candidate if result.stop_reason == "unsupported":
            return "no candidate: no policy here can write this module's operators"
        case JobOutcome.no_candidate:
            return "no correct candidate was found"
        case JobOutcome.cancelled:
            return "cancelled" + ("; the best so far is kept" if "plan.json" in result.artifacts else "")
        case JobOutcome.profiled:
            return "its lines were timed"
        case JobOutcome.failed:
            return f"failed: {result.stop_reason.replace('_', ' ')}"


def _no_gain(timing: Timing | None) -> str:
    if timing is None:
        return "no gain was confirmed"
    if measurably_slower(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "slower than torch.compile"
    if measurably_slower(timing.speedup_vs_eager, timing.speedup_vs_eager_ci):
        return "slower than eager"
    if timing.compile_ms is None or measurably_faster(timing.speedup_vs_compile, timing.speedup_vs_compile_ci):
        return "not measurably faster than eager"
    return "not measurably faster than torch.compile"


def _headline(result: OptimizeResult, evaluation: Evaluation | None) -> str:
    timing = None if evaluation is None else evaluation.timing
    good = result.outcome is JobOutcome.improved
    text = styled(verdict(result, timing), bold=True, fg="green" if good else "yellow")
    return f"{result.task} on {result.device} ({result.target}): {text}"


def _times(timing: Timing) -> list[str]:
    share = f"{timing.roofline:.0%} of the roofline" if timing.roofline else ""
    return table(
        ("", "time", "ours is faster by", "99.9% interval"),
        [
            (
                "eager",
                milliseconds(timing.eager_ms),
                times(timing.speedup_vs_eager),
                interval(timing.speedup_vs_eager_ci),
            ),
            (
                "torch.compile",
                milliseconds(timing.compile_ms),
                times(timing.speedup_vs_compile),
                interval(timing.speedup_vs_compile_ci),
            ),
            ("ours", milliseconds(timing.candidate_ms), share, ""),
        ],
    )


def _facts(result: OptimizeResult, evaluation: Evaluation | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if evaluation is not None and evaluation.accuracy is not None:
        rows.append(("error", _error(evaluation.accuracy, evaluation.precision)))
        rows.append(("in our kernels", _share(evaluation)))
    if evaluation is not None and not evaluation.correct:
        rows.append((evaluation.outcome.value.replace("_", " "), evaluation.message))
    if evaluation is not None and evaluation.timing is not None and evaluation.timing.warning:
        rows.append(("warning", evaluation.timing.warning))
    if evaluation is not None and evaluation.timing is not None and result.best is None:
        rows.append(("note", "figures of the search, not confirmed on fresh samples"))
    rows += _applied(result)
    if result.best is not None:
        rows.append(("written by", f"the {result.best.policy}"))
    stop = result.stop_reason.replace("_", " ")
    rows.append(("tried", f"{result.evaluations} candidates in {result.seconds:.0f} s; stopped: {stop}"))
    return rows + _hints(result)


def _applied(result: OptimizeResult) -> list[tuple[str, str]]:
    """The edited file as a whole, guard and operator included."""
    path = result.artifacts.get(APPLIED_FILE)
    timing = read_applied(Path(path)) if path else None
    return [("in the file", timing.summary())] if timing else []


def _hints(result: OptimizeResult) -> list[tuple[str, str]]:
    job = result.artifacts.get("job", "")
    rows = []
    if "plan.json" in result.artifacts:
        rows.append(("files", str(Path(result.artifacts["plan.json"]).parent)))
    if result.outcome is JobOutcome.improved:
        rows.append(("apply", f"kernel-assistant apply {job}"))
    elif job:
        rows.append(("details", f"kernel-assistant show {job}"))
    return rows


def _error(accuracy: Accuracy, precision: str) -> str:
    parts = [
        f"{accuracy.error:.2g} at most from float64, {accuracy.error_ratio:.2g} times PyTorch's own",
        precision,
        "bit-reproducible" if accuracy.bit_reproducible else "not bit-reproducible",
        f"{accuracy.inputs_tried} inputs, {accuracy.shapes_tried} shapes",
    ]
    return "; ".join(part for part in parts if part)


def _share(evaluation: Evaluation) -> str:
    share = evaluation.share_in_our_kernels
    if evaluation.residual:
        calls = ", ".join(evaluation.residual)
        return f"{share:.1%} of the time (partial); PyTorch's own calls: {calls}"
    return "all of the time" if share >= 0.9995 else f"{share:.1%} of the time; the rest is in libraries (partial)"
