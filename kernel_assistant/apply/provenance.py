"""The content of `provenance.json`: where a class's kernels come from, the measurements, and the conditions that the
guard checks before each call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from typing import Any

from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.records import to_builtins
from kernel_assistant.worker.applied.fingerprint import fingerprint
from kernel_assistant.worker.runner.plan import evaluate

SCHEMA = "kernel-assistant/applied/1"

#: In bytes. Kernels may use the widest loads there are, so inputs must be aligned as torch allocates them.
ALIGNMENT = {"cpu": 64, "cuda": 16}
#: Products of sizes in kernels may be 32-bit, unless a verified tensor is larger.
MAX_ELEMENTS = 2**31 - 1


@dataclass(frozen=True)
class AppliedOptions:
    """Settings of the guard (the check before each call of applied kernels); a job chooses them by timing the edited
    file.

    The original runs if the largest input has fewer than `min_elements` elements. `compiled_parent` and `exported` are
    "kernel" or "original": which of them runs inside a compiled parent module and in an exported program. `unaligned`
    is "copy" (the kernels run on copies of tensors at unaligned addresses) or "original". `speedup` is the time of the
    original divided by the time of the edited file at the declared size, with its 99.9% interval; it is only recorded.
    """

    min_elements: int = 0
    compiled_parent: str = "kernel"
    exported: str = "original"
    unaligned: str = "original"
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None


def provenance(
    result: VerifiedResult, options: AppliedOptions, tool: str, now: datetime | None = None
) -> dict[str, Any]:
    """Returns the content of `provenance.json` for one class. `tool` is this tool's version, `now` the recorded
    date."""
    task, candidate = result.task, result.candidate.hash()
    return {
        "schema": SCHEMA,
        "class": task.class_name,
        "candidate": candidate,
        "operator": operator_name(task.class_name, candidate),
        "origin": result.candidate.origin,
        "schedule": result.plan.schedule,
        "target": result.plan.target,
        "device": to_builtins(result.device),
        "verified_on": result.device.arch,
        "left_out": result.left_out,
        "versions": {"kernel-assistant": tool, **result.facts.get("versions", {})},
        "date": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "numbers": _numbers(result, options),
        "guard": _guard(result, options),
    }


def operator_name(class_name: str, candidate: str) -> str:
    """Returns the name of the torch operator that runs the kernels of `candidate`, a candidate's hash. The name is the
    same on every machine."""
    plain = re.sub(r"[^a-z0-9_]", "", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()).strip("_")
    return f"{plain or 'module'}_{candidate}"


def _numbers(result: VerifiedResult, options: AppliedOptions) -> dict[str, Any]:
    evaluation = result.evaluation
    return {
        "timing": to_builtins(evaluation.timing),
        "accuracy": to_builtins(evaluation.accuracy),
        "precision": evaluation.precision,
        "share_in_our_kernels": evaluation.share_in_our_kernels,
        "residual": list(evaluation.residual),
        "numerics": result.task.numerics.value,
        "applied": None if options.speedup is None else {"speedup": options.speedup, "speedup_ci": options.speedup_ci},
    }


def _ranges(result: VerifiedResult) -> dict[str, Any]:
    """Returns name → [lowest, highest] size of each free dimension (an axis whose length may differ between calls).
    Both are the declared size if the candidate is not correct at all sizes."""
    ranges = dict(result.facts.get("ranges", {}))
    if result.evaluation.sizes == "all":
        return ranges
    return {**ranges, **{name: [size, size] for name, size in result.graph.dims.items()}}


def _verified_elements(result: VerifiedResult) -> list[int]:
    """Returns the number of elements of each input, parameter and buffer at the declared sizes."""
    dims = result.graph.dims
    return [prod(evaluate(size, dims) for size in value.spec.shape) for value in result.graph.inputs]


def _guard(result: VerifiedResult, options: AppliedOptions) -> dict[str, Any]:
    graph, facts, accuracy = result.graph, result.facts, result.evaluation.accuracy
    users = [
        {"name": f"x{index}", "spec": spec, "kind": "input", "path": ""} for index, spec in enumerate(facts["inputs"])
    ]
    return {
        "inputs": [*users, *(to_builtins(value) for value in graph.inputs if value.kind != "input")],
        "outputs": [to_builtins(graph.spec(name)) for name in graph.outputs],
        "ranges": _ranges(result),
        "state": facts.get("state", []),
        "call": {**facts["call"], "result": facts["result"]},
        "attributes": facts["attributes"],
        "fingerprint": fingerprint(result.task.content, result.task.class_name),
        "cpu_flags": facts.get("cpu_flags", []),
        "alignment": ALIGNMENT[result.plan.target],
        "min_elements": options.min_elements,
        "max_elements": max([MAX_ELEMENTS, *_verified_elements(result)]),
        "compiled_parent": options.compiled_parent,
        "exported": options.exported,
        "unaligned": options.unaligned,
        "bit_reproducible": accuracy is None or accuracy.bit_reproducible,
    }
