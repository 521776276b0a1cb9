"""Results in the form in which jobs leave them; a test names the fields that it checks."""

from __future__ import annotations

import msgspec

from kernel_assistant.records import Accuracy, Best, JobOutcome, OptimizeResult

_ERRORS = {"error": 1e-7, "reference_error": 1e-7, "error_ratio": 1.0, "relative_error": 1e-8}
_ACCURACY = Accuracy(**_ERRORS, inputs_tried=3, shapes_tried=2, bit_reproducible=True)
_SPEED = {"speedup_vs_eager": 4.0, "speedup_vs_compile": 2.0, "speedup_vs_compile_ci": (1.94, 2.06), "roofline": 0.5}
_EXACT = {"error_vs_fp64": 1e-7, "error_ratio": 1.0, "precision": "f32"}
_BEST = Best(policy="generator", **_SPEED, **_EXACT, share_in_our_kernels=1.0, files=())
_ENDED = {"outcome": JobOutcome.no_candidate, "best": None, "stop_reason": "finished", "artifacts": {}}
_RESULT = OptimizeResult(task="net.py:Net", target="cpu", device="a CPU", evaluations=1, seconds=1.0, **_ENDED)


def accuracy_of(**fields: object) -> Accuracy:
    """An accuracy as exact as PyTorch and bit-reproducible, except for `fields`."""
    return msgspec.structs.replace(_ACCURACY, **fields)


def best(**fields: object) -> Best:
    """A complete kernel, twice as fast as torch.compile, except for `fields`."""
    return msgspec.structs.replace(_BEST, **fields)


def result(**fields: object) -> OptimizeResult:
    """A finished job: improved if `fields` have a `best`, else without a candidate, unless `fields` say otherwise."""
    outcome = JobOutcome.improved if fields.get("best") else JobOutcome.no_candidate
    return msgspec.structs.replace(_RESULT, **{"outcome": outcome, **fields})
