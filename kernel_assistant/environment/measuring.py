"""Environment variables of the processes that measure: the same for the baseline's side and the candidate's."""

from __future__ import annotations

#: OpenMP threads that wait spin for 10,000 rounds (1.2 ms at most) and not 300,000, then sleep. With the default
#: a thread that has lost its core to somebody else's work keeps the others spinning, for whole comparisons on a busy
#: machine: a kernel was called different from itself in 5 of 22 comparisons, and in 0 of 22 with this.
OPENMP = {"GOMP_SPINCOUNT": "10000"}

#: Output memory is recycled without page faults, so that the allocator's cost is in neither side (see docs/judge.md).
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 << 20)}

MEASURING = {**ALLOCATOR, **OPENMP}
#: Which part of a GPU's memory a worker keeps to, in (0, 1]: docs/config.md.
GPU_SHARE = "KERNEL_ASSISTANT_GPU_SHARE"
