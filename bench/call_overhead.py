"""The overhead of a call: calls in a row, on one thread, with tensors so small that their computation does not
count."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure, Settings
from bench.subjects import built, compiler, trivial
from kernel_assistant.records import to_builtins

COUNT = 64


def measure(settings: Settings) -> list[Figure]:
    import torch

    candidate = trivial(settings.target, count=COUNT)
    with compiler(settings.target) as (using, folder):
        made = built(using, candidate)
        binary = folder / made.name
        binary.write_bytes(made.content)
        device = torch.device("cuda", 0) if settings.target == "cuda" else torch.device("cpu")
        calls = _calls(to_builtins(candidate.plan), binary, device)
        with torch.no_grad():
            costs = {name: _cost(call, device, settings) for name, call in calls.items()}
    plain = costs["torch.mul(out=)"]
    return [
        Figure(name, seconds * 1e6, "µs", "", ("≤", plain * 1e6) if name == "plan, pointers fixed" else None)
        for name, seconds in costs.items()
    ]


def _calls(plan: dict[str, Any], binary: Path, device: Any) -> dict[str, Callable[[], object]]:
    import torch

    from kernel_assistant.worker.applied.operators import register
    from kernel_assistant.worker.runner import executor

    x = torch.ones(COUNT, device=device)
    out = torch.empty_like(x)
    if device.type == "cuda":
        from kernel_assistant.worker.runner.cuda_driver import Driver

        torch.cuda.synchronize()
        module: Any = executor.CudaModule(Driver(device.index), binary.read_bytes())
    else:
        module = executor.CpuModule(str(binary))
    bound = executor.bind(plan, {}, module)
    frozen = bound.freeze([x.data_ptr(), out.data_ptr()])

    def run(tensor: torch.Tensor) -> list[torch.Tensor]:
        result = torch.empty_like(tensor)
        bound.run([tensor.data_ptr(), result.data_ptr()], 0)
        return [result]

    operator = register("bench_twice", plan["target"], plan["inputs"], plan["outputs"], run)
    if not torch.equal(operator(x), 2 * x + 1):
        raise RuntimeError("the operator computes something else")
    scale = torch.nn.Hardtanh().to(device)
    return {
        "plan, pointers fixed": lambda: frozen(0),
        "plan, pointers given": lambda: bound.run([x.data_ptr(), out.data_ptr()], 0),
        "plan as a torch operator, output allocated": lambda: operator(x),
        "torch.mul(out=)": lambda: torch.mul(x, 2.0, out=out),
        "torch.mul": lambda: torch.mul(x, 2.0),
        "eager module of one operator": lambda: scale(x),
    }


def _cost(call: Callable[[], object], device: Any, settings: Settings) -> float:
    """Median seconds of a call, over blocks of 1000."""
    import torch

    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def block() -> float:
        wait()
        began = time.perf_counter()
        for _ in range(1000):
            call()
        wait()
        return (time.perf_counter() - began) / 1000

    block()
    return median([block() for _ in range(settings.count(25, 5))])
