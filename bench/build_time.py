"""Time to build a trivial kernel the default way, compared with `load_inline` of the same kernel in the same run."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure, Settings
from bench.subjects import trivial
from kernel_assistant.environment.builds.compile import Binary, Compiler
from kernel_assistant.sandbox.choose import choose
from kernel_assistant.targets.detect import detect

CPU_SOURCE = """
torch::Tensor twice(torch::Tensor x) {
  auto o = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = o.data_ptr<float>();
  #pragma omp parallel for simd if (x.numel() > 32768)
  for (int64_t i = 0; i < x.numel(); i++) out[i] = 2.0f * in[i] + 1.0f;
  return o;
}
"""
CUDA_SOURCE = """
__global__ void kernel(const float* x, float* o, int64_t count) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < count) o[i] = 2.0f * x[i] + 1.0f;
}
torch::Tensor twice(torch::Tensor x) {
  auto o = torch::empty_like(x);
  kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.numel());
  return o;
}
"""


def measure(settings: Settings) -> list[Figure]:
    count = settings.count(9, 3)
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        compiler = Compiler(detect(settings.target), choose("auto"), Path(folder), threading.Event())
        _build(compiler, settings.target, -1)
        cold = median([_build(compiler, settings.target, mark) for mark in range(count)])
        cached = median([_build(compiler, settings.target, mark) for mark in range(count)])
    inline = _load_inline(settings.target)
    return [
        Figure("cold build", cold, "s", f"median of {count}, in the sandbox, cache empty"),
        Figure("build from the cache", cached * 1e3, "ms", f"median of {count}"),
        Figure("load_inline", inline, "s", "one build in a fresh folder, the same kernel"),
        Figure("load_inline over cold build", inline / cold, "times", "", ("≥", 10)),
    ]


def _build(compiler: Compiler, target: str, mark: int) -> float:
    began = time.perf_counter()
    built = compiler.build(trivial(target, mark))
    elapsed = time.perf_counter() - began
    if not isinstance(built, Binary):
        raise RuntimeError(built.diagnostics[0].message)
    return elapsed


def _load_inline(target: str) -> float:
    import torch
    from torch.utils import cpp_extension

    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        if target == "cuda":
            device = torch.cuda.get_device_capability()
            os.environ["TORCH_CUDA_ARCH_LIST"] = f"{device[0]}.{device[1]}"
            sources: dict[str, Any] = {
                "cpp_sources": "torch::Tensor twice(torch::Tensor x);",
                "cuda_sources": CUDA_SOURCE,
            }
        else:
            sources = {"cpp_sources": CPU_SOURCE, "extra_cflags": ["-O3", "-march=native", "-fopenmp"]}
        began = time.perf_counter()
        module = cpp_extension.load_inline(  # type: ignore[no-untyped-call]
            "ka_bench_twice", functions=["twice"], build_directory=folder, **sources
        )
        elapsed = time.perf_counter() - began
        x = torch.ones(1000, device="cuda" if target == "cuda" else "cpu")
        if not bool((module.twice(x) == 3).all()):
            raise RuntimeError("load_inline built something else")
    return elapsed
