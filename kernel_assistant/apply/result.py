"""Reads the folder in which a job stored its best candidate."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernel_assistant.environment.builds.headers import source_paths
from kernel_assistant.errors import UsageError
from kernel_assistant.records import Candidate, Evaluation, KernelTask, OpGraph, Plan, decode
from kernel_assistant.targets.base import DeviceFacts

T = TypeVar("T")

LEFT_OUT = "left_out.json"

_BINARY = re.compile(r"kernels\.[A-Za-z0-9_.-]+\.(so|cubin)")


@dataclass(frozen=True)
class VerifiedResult:
    """A job's best candidate with its evaluation. `binaries` maps `kernels.ARCH.so` or `kernels.ARCH.cubin` to its
    bytes.

    `facts` is what the worker reported about the opened task: `attributes`, `call` and `result` (explained in
    worker/applied), `inputs` (specs of all tensors of the call, x0, x1, ... in the graph), `ranges`, `versions` and,
    for the CPU, `cpu_flags`, the processor features that the compiler was allowed to use beyond the architecture's
    level. `left_out` maps an architecture that is usually shipped to the reason why there is no binary for it.
    """

    task: KernelTask
    graph: OpGraph
    candidate: Candidate
    evaluation: Evaluation
    device: DeviceFacts
    binaries: dict[str, bytes]
    facts: dict[str, Any]
    left_out: dict[str, str]

    @property
    def plan(self) -> Plan:
        return self.candidate.plan


def read_result(folder: Path) -> VerifiedResult:
    """Reads and checks a result. Raises UsageError if a file is missing or malformed, or if the result cannot be
    applied."""
    plan = _record(folder, "plan.json", Plan)
    result = VerifiedResult(
        task=_record(folder, "task.json", KernelTask),
        graph=_record(folder, "graph.json", OpGraph),
        candidate=Candidate(plan=plan, sources=_sources(folder)),
        evaluation=_record(folder, "evaluation.json", Evaluation),
        device=_record(folder, "device.json", DeviceFacts),
        binaries=_binaries(folder),
        facts=_facts(folder),
        left_out=_left_out(folder),
    )
    _check(result)
    return result


def _record(folder: Path, name: str, kind: type[T]) -> T:
    return decode(_bytes(folder / name), kind)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"the result lacks {path.name}: {error.strerror}", "run the job again") from error


def _sources(folder: Path) -> dict[str, str]:
    return {name: _bytes(path).decode() for name, path in source_paths(folder / "sources").items()}


def _binaries(folder: Path) -> dict[str, bytes]:
    return {path.name: _bytes(path) for path in sorted((folder / "binaries").glob("kernels.*"))}


def _left_out(folder: Path) -> dict[str, str]:
    path = folder / "binaries" / LEFT_OUT
    return dict(json.loads(_bytes(path))) if path.is_file() else {}


def _facts(folder: Path) -> dict[str, Any]:
    facts = json.loads(_bytes(folder / "facts.json"))
    missing = [key for key in ("attributes", "inputs", "call", "result") if key not in facts]
    if missing:
        raise UsageError(f"the result's facts.json lacks {missing[0]}", "run the job again")
    return dict(facts)


def _check(result: VerifiedResult) -> None:
    if not result.evaluation.correct:
        raise UsageError("the candidate was not verified as correct", "run the job again")
    if not result.binaries:
        raise UsageError("the result has no binaries", "run the job again")
    odd = [name for name in result.binaries if not _BINARY.fullmatch(name)]
    if odd:
        raise UsageError(f"{odd[0]} is not named like a binary", "want kernels.ARCH.so or kernels.ARCH.cubin")
    for part in ("call", "result"):
        if "problem" in result.facts[part]:
            raise UsageError(f"it cannot be applied: {result.facts[part]['problem']}", "export the kernels instead")
    if not result.facts["inputs"]:
        raise UsageError("the module takes no tensors", "there is nothing to guard, so nothing is applied")
