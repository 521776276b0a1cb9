"""The facts of a result in the order in which they are told, for every front end."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.records import Evaluation, OptimizeResult, decode
from kernel_assistant.session.applied_timing import APPLIED_FILE, read_applied
from kernel_assistant.session.words import NOT_CONFIRMED, of_accuracy, of_ending, of_share


def read_evaluation(result: OptimizeResult) -> Evaluation | None:
    """The evaluation among the artifacts, if it is still there."""
    path = result.artifacts.get("evaluation.json")
    if path is None or not Path(path).is_file():
        return None
    return decode(Path(path).read_bytes(), Evaluation)


def facts(result: OptimizeResult, evaluation: Evaluation | None) -> list[tuple[str, str]]:
    """Name and words of each; `evaluation` is that of the result's candidate. Reads what is said of the edited file."""
    rows: list[tuple[str, str]] = []
    if evaluation is not None and evaluation.accuracy is not None:
        rows.append(("error", of_accuracy(evaluation.accuracy, evaluation.precision)))
        rows.append(("in our kernels", of_share(evaluation)))
    if evaluation is not None and not evaluation.correct:
        rows.append((evaluation.outcome.value.replace("_", " "), evaluation.message))
    if evaluation is not None and evaluation.timing is not None and evaluation.timing.warning:
        rows.append(("warning", evaluation.timing.warning))
    if evaluation is not None and evaluation.timing is not None and result.best is None:
        rows.append(("note", NOT_CONFIRMED))
    rows += _applied(result)
    if result.best is not None:
        rows.append(("written by", f"the {result.best.policy}"))
    return [*rows, ("tried", of_ending(result))]


def _applied(result: OptimizeResult) -> list[tuple[str, str]]:
    """The edited file as a whole, guard and operator included."""
    path = result.artifacts.get(APPLIED_FILE)
    timing = read_applied(Path(path)) if path else None
    return [("in the file", timing.summary())] if timing else []
