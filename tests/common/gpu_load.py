"""A process that keeps a GPU busy, and the figures of nvidia-smi for that GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from kernel_assistant.targets.cuda import identities

#: Multiplies matrices until its input is closed, which the end of the test's process does as well.
PROGRAM = """
import os, sys, threading
import torch

def until_told():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=until_told, daemon=True).start()
kept = torch.ones(torch.cuda.mem_get_info()[0] // 4, dtype=torch.uint8, device="cuda")
left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
right, out = torch.randn_like(left), torch.empty_like(left)
torch.mm(left, right, out=out)
torch.cuda.synchronize()
print("busy", kept.numel(), flush=True)
while True:
    for _ in range(20):
        torch.mm(left, right, out=out)
    torch.cuda.synchronize()
"""
_ASKED = (
    *("uuid", "index", "name", "memory.used", "memory.total", "utilization.gpu"),
    *("power.draw", "enforced.power.limit", "temperature.gpu"),
)
MIB = 1 << 20


@dataclass
class Load:
    """`uuid` is the driver's name of the GPU, `held` the bytes that the process has allocated there."""

    process: subprocess.Popen[str]
    uuid: str
    held: int

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@dataclass(frozen=True)
class Said:
    """The figures of one GPU by nvidia-smi: memory in bytes, `busy` in per cent, power in watts, temperature in degrees
    Celsius; None if nvidia-smi does not report the value.
    """

    index: int
    name: str
    memory: float | None
    memory_total: float | None
    busy: float | None
    power: float | None
    power_limit: float | None
    temperature: float | None


@contextmanager
def busy_gpu() -> Iterator[Load]:
    """The first GPU that CUDA sees. It is kept busy, and a quarter of its free memory is allocated."""
    uuid = identities()[0]
    env = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid}
    command, pipe = [sys.executable, "-c", PROGRAM], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
    assert process.stdin is not None and process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert words and words[0] == "busy", f"the load ended with {process.wait(60)}"
        yield Load(process, uuid, int(words[1]))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def nvidia_smi(uuid: str) -> Said:
    """The current figures of nvidia-smi; the test is skipped if the tool is missing."""
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except FileNotFoundError:
        pytest.skip("needs nvidia-smi")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    _, index, name, *cells = next(row for row in rows if row[0] == uuid)
    used, total, *rest = (_number(cell) for cell in cells)
    memory, memory_total = (None if one is None else one * MIB for one in (used, total))
    return Said(int(index), name, memory, memory_total, *rest)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
