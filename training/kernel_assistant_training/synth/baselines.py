"""Invents baseline times for prompts of tasks that are never run. They are computed from bytes and bandwidth, with
noise."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kernel_assistant.records import Baseline, OpGraph
from kernel_assistant.records.graph import references
from kernel_assistant_training.synth.digests import computing, specs_of
from kernel_assistant_training.synth.memory import spec_bytes, traffic


@dataclass(frozen=True)
class DeviceSpeed:
    """The properties of one kind of machine: its architectures, and ranges (low, high) of its copy bandwidth in bytes
    per second and of the launch time of one operator in milliseconds."""

    archs: tuple[str, ...]
    bandwidth: tuple[float, float]
    launch: tuple[float, float]


MACHINES = {
    "cuda": DeviceSpeed(("sm_90", "sm_90", "sm_90", "sm_80", "sm_89"), (3.9e12, 4.4e12), (0.004, 0.007)),
    "cpu": DeviceSpeed(("x86-64-avx512", "x86-64-avx2"), (8e9, 40e9), (0.003, 0.012)),
}


def invented(graph: OpGraph, target: str, random: Random) -> tuple[str, Baseline]:
    """Returns a random architecture, and invented baseline times in milliseconds for `graph`. Half of the baselines
    include a time of `torch.compile`, as real prompts do."""
    machine = MACHINES[target]
    bandwidth, launch = random.uniform(*machine.bandwidth), random.uniform(*machine.launch)
    specs = specs_of(graph)
    eager = 0.0
    for node in computing(graph):
        moved = sum(spec_bytes(specs[name], graph.dims) for name in (*references(node), node.name))
        eager += launch + 1e3 * moved / bandwidth * random.uniform(1.0, 1.3)
    floor = 1e3 * traffic(graph) / bandwidth
    compiled = floor * random.uniform(1.02, 1.8) + launch * random.uniform(1, 3) if random.random() < 0.5 else None
    return random.choice(machine.archs), Baseline(eager_ms=eager, compile_ms=compiled, floor_ms=floor)
