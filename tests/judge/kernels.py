"""A small task and hand-written candidates for it: an RMS norm over rows of 256 with a learned scale."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.environment.ceilings import keep_ceilings
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import BufferSpec, Candidate, KernelTask, Launch, Numerics, Plan, Tier
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant.targets.detect import detect
from kernel_assistant.worker.device_lock import DeviceLock
from tests.common.caches import new_cache
from tests.common.tasks import task_of

ROWS, WIDTH = 48, 256

MODULE = f"""
import torch, torch.nn as nn

class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

def get_inputs():
    return [torch.randn({ROWS}, {WIDTH})]

def get_init_inputs():
    return [{WIDTH}]
"""

#: Correct, on one thread (two that wait for each other on a full machine cost milliseconds). Tests break the marks.
SOURCE = """#include "plan.h"
#include <math.h>
/*GLOBAL*/
extern "C" void norm(const norm_args* a) {
  /*ENTRY*/
  for (int64_t r = 0; r < a->rows; r++) {
    const float* x = a->x + r * 256;
    float* o = a->o + r * 256;
    float sum = 0.0f;
    /*ROW*/
    for (int i = 0; i < 256; i++) sum += x[i] * x[i];
    const float k = 1.0f / sqrtf(sum / 256 + 1e-6f);
    for (int i = 0; i < 256; i++) o[i] = x[i] * k * a->w[i];
    /*END*/
  }
}
"""


def task(text: str = MODULE, name: str = "Norm", numerics: Numerics = Numerics.kernelbench) -> KernelTask:
    """A task from the text of a file, which need not exist on disk."""
    return task_of(f"/nowhere/{name.lower()}.py", text, name, module_name=name.lower(), numerics=numerics)


def plan(**changes: object) -> Plan:
    """The launch plan of `SOURCE`."""
    fields: dict[str, object] = {
        "target": "cpu",
        "dims": ("B",),
        "inputs": (buffer("x0", "B", "256"), buffer("p0", "256")),
        "outputs": (buffer("out0", "B", "256"),),
        "launches": (Launch(symbol="norm", args=(("x", "x0"), ("w", "p0"), ("o", "out0"), ("rows", "B"))),),
        "schedule": "by hand",
    }
    return Plan(**{**fields, **changes})  # type: ignore[arg-type]


def buffer(name: str, *shape: str, dtype: str = "f32") -> BufferSpec:
    return BufferSpec(name=name, dtype=dtype, shape=shape)


def candidate(*edits: tuple[str, str], source: str = SOURCE, **changes: object) -> Candidate:
    """`source` with each (old, new) replaced; every old text must be there."""
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return Candidate(plan=plan(**changes), sources={"norm.cpp": source}, origin="test")


def numbered(count: int, *edits: tuple[str, str]) -> list[Candidate]:
    """Correct candidates that differ in a comment only."""
    return [candidate(*edits, ("/*END*/", f"/* {index} */")) for index in range(count)]


@contextmanager
def environment(
    worker: WorkerClient,
    cache: Path,
    subject: KernelTask | None = None,
    cancel: threading.Event | None = None,
    events: list[object] | None = None,
    lock: DeviceLock | None = None,
    throughput: bool = False,
    device: DeviceFacts | None = None,
    nominal: bool = True,
) -> Iterator[Environment]:
    """A real environment for the task's target; with `throughput` it is set up for many candidates in the quick tier.
    `device` is a device with measured bandwidths. Without `nominal` verdicts rest on the judge's clock.
    """
    seen, subject = [] if events is None else events, subject or task()
    new_cache(cache)
    if device is not None:
        keep_ceilings(device, cache)
    with open_environment(
        subject,
        device=device or detect(subject.target),
        worker=worker,
        sandbox_mode="auto",
        cache_dir=cache,
        cancel=cancel or threading.Event(),
        emit=seen.append,
        lock=lock,
        most=Tier.quick if throughput else Tier.full,
        throughput=throughput,
        nominal=nominal,
    ) as opened:
        yield opened


def new_worker(log: Path | None = None) -> WorkerClient:
    """A worker under the interpreter of the tests."""
    return WorkerClient(sys.executable, log=log)
