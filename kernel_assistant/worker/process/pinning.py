"""Binds the threads of OpenMP to cores, so that times do not depend on where the scheduler wakes them.

Without binding, a pool thread is often woken on the core of the thread that wakes it, and stays there for a scheduler
tick; in some processes this goes on for seconds. The same kernel then takes 10% longer in one of two equal processes,
for whole comparisons (docs/judge.md). So the pools of the judge and of the runner are bound to the same cores, in the
same order.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: Variables that the user may have set; then nothing is changed.
CHOSEN = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def cpus() -> list[int]:
    """Returns the CPUs that this process may use: first one CPU of each core, then the remaining hardware threads of
    the cores."""
    first: list[int] = []
    others: list[int] = []
    cores: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _siblings(cpu)
        (others if core in cores else first).append(cpu)
        cores.add(core)
    return first + others


#: The CPUs of this process's pool; empty before `import_torch`, and if the user has chosen others.
_pool_cpus: list[int] = []
#: Ids of processes whose pool has been started: this one, or none after a fork.
_started: set[int] = set()


def environment() -> dict[str, str]:
    """Returns environment variables that make another process bind its OpenMP threads to cores as this process does;
    empty if this process does not."""
    return {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in _pool_cpus)} if _pool_cpus else {}


def import_torch() -> None:
    """Imports torch with the threads of its OpenMP pool bound to cores, and starts that pool. Raises ImportError.

    The OpenMP runtime reads its variables when it is loaded, and binds the calling thread as well when the pool starts.
    Afterwards that thread may use all CPUs again and the variables are removed, because compilers that the thread
    starts would inherit both.
    """
    load_torch()
    if not _pool_cpus or os.getpid() in _started:
        return
    with _variables():
        import torch

        torch.ones(1 << 20).add_(1)
        os.sched_setaffinity(0, _pool_cpus)
    _started.add(os.getpid())


def load_torch() -> None:
    """Imports torch without starting its OpenMP pool, for a process that forks: each child then starts its own pool.
    Raises ImportError."""
    if _pool_cpus or any(name in os.environ for name in CHOSEN):
        return
    _pool_cpus[:] = cpus()
    with _variables():
        importlib.import_module("torch")


@contextmanager
def pinned() -> Iterator[None]:
    """Context manager that binds the calling thread to the first CPU of the pool, on which the runner's main thread
    runs."""
    before = os.sched_getaffinity(0)
    if _pool_cpus:
        os.sched_setaffinity(0, _pool_cpus[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _variables() -> Iterator[None]:
    chosen = environment()
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]


def _siblings(cpu: int) -> str:
    """Returns a text that identifies the core of `cpu`: it is the same for all CPUs of that core."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)
