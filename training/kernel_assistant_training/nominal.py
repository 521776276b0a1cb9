"""Times of a nominal machine in the place of measured ones: a run that is rewarded for correctness alone is then the
same whenever it is run, since prompts and observations name times. Nothing of it is a claim about speed: every right
kernel takes as long as eager PyTorch, and so none is faster.
"""

from __future__ import annotations

import msgspec

from kernel_assistant.records import Baseline, Evaluation, OpGraph, Timing
from kernel_assistant_training.synth.memory import traffic

CLOCKS = ("measured", "nominal")
#: Bytes a second.
BANDWIDTH = 1e10
#: Of the roofline, that everything reaches: what a teacher leaves as it is, and no reason for an episode to stop.
ROOFLINE = 0.93


def nominal_baseline(graph: OpGraph) -> Baseline:
    """From the bytes of the graph at its sizes."""
    floor = 1e3 * traffic(graph) / BANDWIDTH
    return Baseline(eager_ms=floor / ROOFLINE, compile_ms=None, floor_ms=floor)


def nominal_times(found: Evaluation, graph: OpGraph) -> Evaluation:
    """The same verdict with nominal times, where it has any."""
    if found.timing is None:
        return found
    baseline = nominal_baseline(graph)
    timing = Timing(
        candidate_ms=baseline.eager_ms,
        eager_ms=baseline.eager_ms,
        speedup_vs_eager=1.0,
        floor_ms=baseline.floor_ms,
        roofline=ROOFLINE,
    )
    return msgspec.structs.replace(found, timing=timing, launches=())
