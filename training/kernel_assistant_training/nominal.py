"""Times of a nominal machine in the place of measured ones: a run that is rewarded for correctness alone is then the
same whenever it is run, since prompts and observations name times. Nothing of it is a claim about speed: every right
kernel takes as long as eager PyTorch, and so none is faster.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.records import Baseline, Evaluation, OpGraph, Timing
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.synth.memory import traffic

CLOCKS = ("measured", "nominal")
#: Bytes a second, of the floors that conversations name.
BANDWIDTH = 1e10
#: The same as the judge has it: beyond any machine, so that nothing right is too fast to be true.
UNBOUNDED = 1e15
#: Times are nominal: memory need not be filled so that a large cache is cold.
CACHE_BYTES = 32 << 20
#: In the place of which element differs and by how much.
DIFFERS = "values differ"
#: Of the roofline, that everything reaches: what a teacher leaves as it is, and no reason for an episode to stop.
ROOFLINE = 0.93


def unbounded(target: str, folder: Path) -> Path:
    """`folder`, which has bandwidths afterwards: those measured on a machine that is never quiet are too low, and a
    right candidate would be called impossibly fast. Raises MissingError without a device."""
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
    """From the bytes of the graph at its sizes."""
    floor = 1e3 * traffic(graph) / BANDWIDTH
    return Baseline(eager_ms=floor / ROOFLINE, compile_ms=None, floor_ms=floor)


def nominal_times(found: Evaluation, graph: OpGraph) -> Evaluation:
    """The same verdict with nominal times, where it has any, and without an element that differs: the judge draws
    other inputs each time, and what they give is not the same twice."""
    if found.mismatch is not None:
        found = msgspec.structs.replace(found, mismatch=None, message=DIFFERS)
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
