"""The kernels used in measurements: a trivial one, and a realistic gated RMS norm, for both targets."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import BufferSpec, Candidate, InputSource, KernelTask, Launch, Plan, Workload
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect

KERNELS = Path(__file__).parent / "kernels"
ROWS = {"cpu": 512, "cuda": 8192}
WIDTH = {"cpu": 1024, "cuda": 4096}

MODULE = """
import torch
from torch import nn

class GatedNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return y * nn.functional.silu(gate)

def get_inputs():
    return [torch.randn({rows}, {width}), torch.randn({rows}, {width})]

def get_init_inputs():
    return [{width}]
"""


def trivial(target: str, mark: int = 0, count: int = 1 << 20) -> Candidate:
    """y = 2 x + 1 over a vector; each `mark` gives a different source text."""
    size, args = str(count), (("x", "x0"), ("o", "out0"), ("count", str(count)))
    launch = Launch(symbol="twice", args=args, grid=(f"cdiv({count}, 256)", "1", "1"), block=("256", "1", "1"))
    x0, out = (_f32("x0", (size,)),), (_f32("out0", (size,)),)
    plan = Plan(target=target, dims=(), inputs=x0, outputs=out, launches=(launch,))
    return Candidate(plan=plan, sources=_sources("twice", target, f"// {mark}"), origin="bench")


def norm(target: str, mark: int = 0, extra: int = 0) -> Candidate:
    """A handwritten gated RMS norm. The first `extra` rows are computed twice: more work of the same kind."""
    width = str(WIDTH[target])
    args = (("x", "x0"), ("g", "x1"), ("w", "p0"), ("o", "out0"), ("rows", "B"), ("extra", str(extra)))
    launch = Launch(symbol="gated_norm", args=args, grid=(f"B + {extra}", "1", "1"), block=("256", "1", "1"))
    x0, x1, out = (_f32(name, ("B", width)) for name in ("x0", "x1", "out0"))
    inputs = (x0, x1, _f32("p0", (width,)))
    plan = Plan(target=target, dims=("B",), inputs=inputs, outputs=(out,), launches=(launch,), schedule="by hand")
    sources = _sources("gated_norm", target, f"// {mark}\n#define WIDTH {width}")
    return Candidate(plan=plan, sources=sources, origin="bench")


@contextmanager
def compiler(target: str) -> Iterator[tuple[Compiler, Path]]:
    """A compiler with an empty cache, and the folder of that; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        yield Compiler(detect(target), choose("auto"), Path(folder), threading.Event()), Path(folder)


def built(using: Compiler, candidate: Candidate) -> Binary:
    """Raises RuntimeError if the candidate cannot be built."""
    found = using.build(candidate)
    if not isinstance(found, Binary):
        raise RuntimeError(found.diagnostics[0].message)
    return found


def norm_task(target: str) -> KernelTask:
    return KernelTask(
        path="/bench/gated_norm.py",
        content=MODULE.format(rows=ROWS[target], width=WIDTH[target]),
        class_name="GatedNorm",
        source=InputSource.get_inputs,
        workloads=(Workload(),),
        module_name="gated_norm",
        target=target,
    )


@contextmanager
def norm_environment(target: str, cache: Path | None = None) -> Iterator[Environment]:
    """An environment with the norm open; it and its worker end with the block."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        worker = WorkerClient(sys.executable, log=Path(folder, "worker.log"))
        try:
            with open_environment(
                norm_task(target),
                device=detect(target),
                worker=worker,
                sandbox_mode="auto",
                cache_dir=cache or Path(folder, "cache"),
                cancel=threading.Event(),
                emit=lambda event: None,
            ) as environment:
                yield environment
        finally:
            worker.close()


def _f32(name: str, shape: tuple[str, ...]) -> BufferSpec:
    return BufferSpec(name=name, dtype="f32", shape=shape)


def _sources(name: str, target: str, head: str) -> dict[str, str]:
    file = KERNELS / f"{name}.{'cu' if target == 'cuda' else 'cpp'}"
    return {file.name: f"{head}\n{file.read_text()}"}
