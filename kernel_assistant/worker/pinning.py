"""Keeps the threads of OpenMP where they are, so that a time does not depend on where the scheduler woke them.

Left alone, a pool thread is often woken on the core of the thread that wakes it, and stays there for a scheduler tick;
a process keeps that habit for seconds. The same kernel then takes 10% longer in one of two equal processes, for whole
comparisons (docs/judge.md). So the pools of the judge and of the runner are bound to the same cores, in the same order.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: What the user may have set already, which then stands.
CHOSEN = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def cpus() -> list[int]:
    """The CPUs this process may use, one of each core first."""
    first: list[int] = []
    others: list[int] = []
    cores: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _siblings(cpu)
        (others if core in cores else first).append(cpu)
        cores.add(core)
    return first + others


#: The places of this process's pool; none until `import_torch`, or if the user has chosen others.
_places: list[int] = []
#: Processes whose pool has been started: this one, or none after a fork.
_started: set[int] = set()


def environment() -> dict[str, str]:
    """Variables that bind the pool of another process as the one here is bound."""
    return {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in _places)} if _places else {}


def import_torch() -> None:
    """Import torch with its OpenMP pool bound, and start that pool. Raises ImportError.

    The runtime reads its variables when it is loaded, and binds the calling thread as well when the pool starts. That
    thread gets all CPUs back and the variables go, because compilers that it starts inherit both.
    """
    load_torch()
    if not _places or os.getpid() in _started:
        return
    with _variables():
        import torch

        torch.ones(1 << 20).add_(1)
        os.sched_setaffinity(0, _places)
    _started.add(os.getpid())


def load_torch() -> None:
    """The same without the pool, for a process that forks: each child then starts its own. Raises ImportError."""
    if _places or any(name in os.environ for name in CHOSEN):
        return
    _places[:] = cpus()
    with _variables():
        importlib.import_module("torch")


@contextmanager
def pinned() -> Iterator[None]:
    """The calling thread on the first place, where the runner's main thread is."""
    before = os.sched_getaffinity(0)
    if _places:
        os.sched_setaffinity(0, _places[:1])
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
    """A name of the core that `cpu` is part of."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)
