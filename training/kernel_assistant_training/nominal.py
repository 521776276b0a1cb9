"""Nominal times (computed from sizes) replace measured times, so that a run that is rewarded only for correctness is
reproducible, although reports contain times. They say nothing about speed: every correct kernel takes
exactly as long as eager PyTorch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.records import Baseline, Evaluation, OpGraph, Stage, Tier, Timing
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.synth.memory import traffic

CLOCKS = ("measured", "nominal")
#: Bytes per second, for the roofline that conversations state.
BANDWIDTH = 1e10
#: The bandwidth for the judge: higher than any machine's, so that no correct kernel is rejected as impossibly fast.
UNBOUNDED = 1e15
#: Times are nominal, so the judge need not fill more memory to flush a large cache.
CACHE_BYTES = 32 << 20
#: Replaces the message which element differs and by how much.
DIFFERS = "values differ"
#: The share of the roofline that every kernel reaches: a lesson accepts it, and an episode does not stop for it.
ROOFLINE = 0.93


def unbounded(target: str, folder: Path) -> Path:
    """Writes nominal bandwidths of the device to `folder` and returns `folder`. Without them, bandwidths measured on a
    busy machine would be too low, and correct candidates would be rejected as impossibly fast. Raises MissingError
    without a device."""
    device = detect(target)
    known = msgspec.structs.replace(
        device,
        copy_bandwidth=BANDWIDTH,
        read_bandwidth=BANDWIDTH,
        bandwidth_datasheet=UNBOUNDED,
        cache_bytes=min(device.cache_bytes, CACHE_BYTES),
    )
    keep_ceilings(known, folder)
    return folder


def nominal_baseline(graph: OpGraph) -> Baseline:
    """Returns nominal times of the reference in milliseconds, computed from the bytes that the graph reads and
    writes."""
    floor = 1e3 * traffic(graph) / BANDWIDTH
    return Baseline(eager_ms=floor / ROOFLINE, compile_ms=None, floor_ms=floor)


def nominal_times(evaluation: Evaluation, graph: OpGraph) -> Evaluation:
    """Returns an evaluation of the tier `verify`, turned into one of the quick tier with nominal times. Drops the
    details of a mismatch, because they vary with the judge's random inputs."""
    evaluation = msgspec.structs.replace(evaluation, tier=Tier.quick)
    if evaluation.mismatch is not None:
        evaluation = msgspec.structs.replace(evaluation, mismatch=None, message=DIFFERS)
    if not evaluation.correct:
        return evaluation
    baseline = nominal_baseline(graph)
    timing = Timing(
        candidate_ms=baseline.eager_ms,
        eager_ms=baseline.eager_ms,
        speedup_vs_eager=1.0,
        floor_ms=baseline.floor_ms,
        roofline=ROOFLINE,
    )
    return msgspec.structs.replace(evaluation, stage=Stage.profile, timing=timing, launches=())
