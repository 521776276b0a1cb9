"""Tests the reports that models get, in both forms."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.agent.prompts import compact_system, compact_task
from kernel_assistant.agent.report import compact, occupancy, report
from kernel_assistant.policy.base import EpisodeView
from kernel_assistant.records import (
    Baseline,
    Diagnostic,
    Evaluation,
    KernelResources,
    Mismatch,
    Outcome,
    Stage,
    Tier,
    Timing,
)
from kernel_assistant.records.canonical import canonical
from kernel_assistant.targets.base import DeviceFacts
from tests.agent.test_directives import GRAPH, SCALE
from tests.common.results import accuracy_of

DEVICE = DeviceFacts(target="cuda", name="H200", arch="sm_90")
BASELINE = Baseline(eager_ms=0.9, compile_ms=0.198, floor_ms=0.12)
CANDIDATE = candidate_from({"kernel.cu": SCALE}, GRAPH, "cuda")
VIEW = EpisodeView(graph=GRAPH, target="cuda", device=DEVICE, baseline=BASELINE, steps=(), remaining=1.0)


def evaluation(outcome: Outcome, stage: Stage, **fields: object) -> Evaluation:
    return Evaluation(candidate="c", tier=Tier.quick, outcome=outcome, stage=stage, message="said", **fields)


RIGHT = evaluation(
    Outcome.correct,
    Stage.profile,
    accuracy=accuracy_of(error=1e-6, reference_error=1e-6, relative_error=1e-7, inputs_tried=2, shapes_tried=1),
    timing=Timing(candidate_ms=0.214, eager_ms=0.9, speedup_vs_eager=4.2, floor_ms=0.12, roofline=0.56),
    resources=(KernelResources(symbol="scale", registers=40, shared_bytes=0, spill_bytes=16),),
)
WRONG = evaluation(
    Outcome.incorrect,
    Stage.verify,
    mismatch=Mismatch(output="out0", index=(3, 17), got=1.2, want=0.8, workload="default", count=5, total=100),
)
NAN = evaluation(
    Outcome.incorrect,
    Stage.verify,
    mismatch=Mismatch(output="out0", index=(0,), got=float("nan"), want=-0.5, workload="zeros", count=1, total=2),
)
BROKEN = evaluation(
    Outcome.compile_error,
    Stage.compile,
    diagnostics=(Diagnostic(message="identifier t2 is undefined", file="kernel.cu", line=4),),
)
INSIDE = evaluation(
    Outcome.compile_error,
    Stage.compile,
    diagnostics=(Diagnostic(message="no match", file="rows.cuh", line=40), *BROKEN.diagnostics),
)
HEADER = evaluation(Outcome.compile_error, Stage.compile, diagnostics=INSIDE.diagnostics[:1])
HUNG = evaluation(Outcome.hung, Stage.verify)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (RIGHT, "ok .214 compile .198 floor .12 regs 40 spill 16"),
        (WRONG, "wrong out0[3,17] got 1.2 want .8"),
        (NAN, "wrong out0[0] got nan want -.5"),
        (BROKEN, "compile L4 identifier t2 is undefined"),
        (INSIDE, "compile L4 identifier t2 is undefined"),
        (HEADER, "compile rows.cuh L40 no match"),
        (HUNG, "hung said"),
    ],
)
def test_compact_lines(found, line):
    assert compact(found, BASELINE) == line


def test_the_compact_prompt():
    task = canonical(GRAPH)
    lines = compact_task(task, GRAPH.dims, DEVICE.arch).split("\n")
    assert lines == [
        "x0 f32[B,D0]",
        "p0 [D0]",
        "n0 = mul(x0, p0)",
        "return n0",
        "B=8 D0=256 sm_90 f32",
    ]
    assert all(len(compact_system(target)) < 240 for target in ("cpu", "cuda"))


def test_full_reports():
    right = report(RIGHT, VIEW, CANDIDATE, 0.2).split("\n")
    assert right[0] == "correct, 0.214 ms (quick tier)"
    assert "torch.compile 0.198 ms: 0.93x" in right and "floor 0.12 ms: 56% of the roofline" in right
    assert "slower than the best so far, 0.2 ms" in right
    assert right[-1] == "kernel scale: 40 registers, 0 B shared, 16 B spilled, occupancy 75% (limited by registers)"
    assert "5 of 100 elements differ" in report(WRONG, VIEW, CANDIDATE, 0.2)
    broken = 'compile error (compile)\nkernel.cu:4: error: identifier t2 is undefined\n    #include "plan.h"'
    assert report(BROKEN, VIEW, CANDIDATE, 0.2) == broken
    assert report(HUNG, VIEW, CANDIDATE, 0.2) == "hung (verify): said"


@pytest.mark.parametrize(
    ("registers", "shared", "share", "limit"),
    [(32, 0, 1.0, ""), (255, 0, 0.125, "registers"), (32, 100 << 10, 0.125, "shared memory")],
)
def test_occupancy_on_hopper(registers, shared, share, limit):
    """Blocks have 128 threads, which are 4 of at most 64 warps. 255 registers a thread leave room for two blocks, and
    so do 100 KiB of shared memory.
    """
    kernel = KernelResources(symbol="scale", registers=registers, shared_bytes=shared)
    assert occupancy(kernel, CANDIDATE.plan, GRAPH, "sm_90") == (share, limit)


def test_occupancy_is_not_guessed():
    assert occupancy(KernelResources(symbol="other", registers=32), CANDIDATE.plan, GRAPH, "sm_90") is None
    assert occupancy(KernelResources(symbol="scale", registers=32), CANDIDATE.plan, GRAPH, "sm_120") is None
