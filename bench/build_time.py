"""Time to build a trivial kernel the default way, compared with `load_inline` of the same kernel in the same run."""

from __future__ import annotations

import os
import tempfile
import time
from statistics import median
from typing import Any

from bench.figures import Figure, Settings
from bench.subjects import KERNELS, built, compiler, trivial
from kernel_assistant.environment.builds.compile import Compiler


def measure(settings: Settings) -> list[Figure]:
    count = settings.count(9, 3)
    with compiler(settings.target) as (using, _):
        _build(using, settings.target, -1)
        cold = median([_build(using, settings.target, mark) for mark in range(count)])
        cached = median([_build(using, settings.target, mark) for mark in range(count)])
    inline = _load_inline(settings.target)
    return [
        Figure("cold build", cold, "s", f"median of {count}, in the sandbox, cache empty"),
        Figure("build from the cache", cached * 1e3, "ms", f"median of {count}"),
        Figure("load_inline", inline, "s", "one build in a fresh folder, the same kernel"),
        Figure("load_inline over cold build", inline / cold, "times", "", ("≥", 10)),
    ]


def _build(using: Compiler, target: str, mark: int) -> float:
    began = time.perf_counter()
    built(using, trivial(target, mark))
    return time.perf_counter() - began


def _load_inline(target: str) -> float:
    import torch
    from torch.utils import cpp_extension

    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        if target == "cuda":
            device = torch.cuda.get_device_capability()
            os.environ["TORCH_CUDA_ARCH_LIST"] = f"{device[0]}.{device[1]}"
            text = (KERNELS / "load_inline.cu").read_text()
            sources: dict[str, Any] = {"cpp_sources": "torch::Tensor twice(torch::Tensor x);", "cuda_sources": text}
        else:
            text = (KERNELS / "load_inline.cpp").read_text()
            sources = {"cpp_sources": text, "extra_cflags": ["-O3", "-march=native", "-fopenmp"]}
        began = time.perf_counter()
        module = cpp_extension.load_inline(  # type: ignore[no-untyped-call]
            "ka_bench_twice", functions=["twice"], build_directory=folder, **sources
        )
        elapsed = time.perf_counter() - began
        x = torch.ones(1000, device="cuda" if target == "cuda" else "cpu")
        if not bool((module.twice(x) == 3).all()):
            raise RuntimeError("load_inline built something else")
    return elapsed
