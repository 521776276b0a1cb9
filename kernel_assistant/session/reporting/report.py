"""Lists the facts of a result in the order in which every front end shows them."""

from __future__ import annotations

import json
from pathlib import Path

from kernel_assistant.environment.stage_messages import of_side_effects
from kernel_assistant.records import Evaluation, OptimizeResult, decode
from kernel_assistant.session.kinds.applied_timing import APPLIED_FILE, read_applied
from kernel_assistant.session.reporting.verdicts import obstacle_rows, verdicts
from kernel_assistant.session.reporting.words import (
    NOT_CONFIRMED,
    of_accuracy,
    of_ending,
    of_share,
    of_spending,
    written_by,
)


def read_evaluation(result: OptimizeResult) -> Evaluation | None:
    """Reads the evaluation from the artifacts of a result; None if there is no such file."""
    path = result.artifacts.get("evaluation.json")
    if path is None or not Path(path).is_file():
        return None
    return decode(Path(path).read_bytes(), Evaluation)


def facts(result: OptimizeResult, evaluation: Evaluation | None) -> list[tuple[str, str]]:
    """Returns (label, text) for each fact about a result. `evaluation` is that of the result's candidate, if there is
    one; the timing of the edited file is read from the artifacts."""
    rows: list[tuple[str, str]] = [("why", result.why)] if result.why else []
    if evaluation is not None and evaluation.accuracy is not None:
        rows.append(("error", of_accuracy(evaluation.accuracy, evaluation.precision)))
        rows.append(("in our kernels", of_share(evaluation)))
    if evaluation is not None and not evaluation.correct:
        rows.append((evaluation.outcome.value.replace("_", " "), evaluation.message))
    if evaluation is not None and evaluation.timing is not None and evaluation.timing.warning:
        rows.append(("warning", evaluation.timing.warning))
    if evaluation is not None and evaluation.timing is not None and result.best is None:
        rows.append(("note", NOT_CONFIRMED))
    rows += verdicts(result) + obstacle_rows(result)
    rows += _beside(result) + _applied(result)
    if result.best is not None:
        rows.append(("written by", written_by(result.best.policy)))
    if spent := of_spending(result.spent):
        rows.append(("model", spent))
    return [*rows, ("tried", of_ending(result))]


def _beside(result: OptimizeResult) -> list[tuple[str, str]]:
    """Returns one (label, text) with a warning if the module has side effects and the job has a candidate; else []."""
    path = Path(result.artifacts.get("facts.json", ""))
    if "plan.json" not in result.artifacts or not path.is_file():
        return []
    warning = of_side_effects(result.task.rpartition(":")[2], json.loads(path.read_bytes()))
    return [("warning", warning)] if warning else []


def _applied(result: OptimizeResult) -> list[tuple[str, str]]:
    """Returns one (label, text) about the timing of the edited file; [] if it was not timed."""
    path = result.artifacts.get(APPLIED_FILE)
    timing = read_applied(Path(path)) if path else None
    where = "in your session" if result.session else "in your file"
    return [(where, timing.summary())] if timing else []
