"""The environment variables of all processes that measure; baseline and candidates get the same, so that their times
can be compared."""

from __future__ import annotations

#: Waiting OpenMP threads spin for 10,000 rounds (1.2 ms at most) instead of 300,000, then sleep. With the default, a
#: thread that loses its core to another program keeps the others spinning for whole comparisons on a busy machine:
#: a kernel was judged different from itself in 5 of 22 comparisons, and in 0 of 22 with this value.
OPENMP = {"GOMP_SPINCOUNT": "10000"}

#: Output memory is reused without page faults, so that neither time includes the allocator's cost (docs/judge.md).
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 << 20)}

MEASURING = {**ALLOCATOR, **OPENMP}
#: Environment variable: the fraction of a GPU's memory that a worker may use, in (0, 1] (docs/config.md).
GPU_SHARE = "KERNEL_ASSISTANT_GPU_SHARE"
