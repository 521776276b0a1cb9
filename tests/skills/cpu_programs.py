"""A small kernel for each thing that a CPU header offers, for three types, and what it should give in float64."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from kernel_assistant.environment.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner.executor import provide_openmp

TORCH = {"float": torch.float32, "ka_bf16": torch.bfloat16, "_Float16": torch.float16}

SOURCE = """#include "ka/pointwise.h"
#include "ka/rows.h"
#include "ka/scan.h"
#define KERNELS(T) \\
  extern "C" void gate_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::pointwise(n * c, [](float a, float b) { return a * ka_sigmoid(b); }, o, x, y); \\
  } \\
  extern "C" void norm_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::rows(n, c, [=](int64_t r) { \\
      const ka::moments m = ka::row_moments(c, x + r * c); \\
      const float mean = (float)m.mean, scale = ka_rsqrt(ka::variance(m) + 1e-5f); \\
      ka::map_row(c, [=](float a, float b) { return (a - mean) * scale * b; }, o + r * c, x + r * c, y); \\
    }); \\
  } \\
  extern "C" void soft_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::rows(n, c, [=](int64_t r) { \\
      ka::softmax_row(c, [](float a, float b) { return 2 * a + b; }, o + r * c, x + r * c, y + r * c); \\
    }); \\
  } \\
  extern "C" void fold_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::rows(n, c, [=](int64_t r) { \\
      const double dot = ka::fold_row<ka::add>(c, [](float a, float b) { return a * b; }, x + r * c, y + r * c); \\
      const double top = ka::fold_row<ka::most>(c, [](float a) { return a; }, x + r * c); \\
      const double low = ka::fold_row<ka::least>(c, [](float a) { return a; }, x + r * c); \\
      ka_put(o[r], (float)(dot / c + top - low)); \\
    }); \\
  } \\
  extern "C" void sum_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::rows(n, c, [=](int64_t r) { \\
      ka::scan_row<ka::add>(c, [](float a) { return a + 0.5f; }, o + r * c, x + r * c); \\
    }); \\
  } \\
  extern "C" void before_##T(int64_t n, int64_t c, const T* x, const T* y, T* o) { \\
    ka::rows(n, c, [=](int64_t r) { \\
      const auto step = [](float a) { return a > 0 ? 1.0009765625f : 0.9990234375f; }; \\
      ka::scan_row<ka::times, true>(c, step, o + r * c, x + r * c); \\
    }); \\
  }
KERNELS(float) KERNELS(ka_bf16) KERNELS(_Float16)
"""


def _before(x: torch.Tensor) -> torch.Tensor:
    steps = torch.where(x > 0, 1.0009765625, 0.9990234375).double()
    return torch.cat([torch.ones_like(steps[:, :1]), torch.cumprod(steps, -1)[:, :-1]], -1)


@dataclass(frozen=True)
class Case:
    """`weights`: y is one row. `reads_y`: both inputs are read."""

    exact: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    rows_only: bool = False
    weights: bool = False
    reads_y: bool = True
    header: str = "rows"


CASES = {
    "gate": Case(lambda x, y: x * torch.sigmoid(y), header="pointwise"),
    "norm": Case(lambda x, y: F.layer_norm(x, x.shape[-1:]) * y, weights=True),
    "soft": Case(lambda x, y: torch.softmax(2 * x + y, -1)),
    "fold": Case(lambda x, y: (x * y).mean(-1) + x.amax(-1) - x.amin(-1), rows_only=True),
    "sum": Case(lambda x, y: torch.cumsum(x + 0.5, -1), reads_y=False, header="scan"),
    "before": Case(lambda x, y: _before(x), reads_y=False, header="scan"),
}


def compile_cpu(folder: Path) -> ctypes.CDLL:
    """The functions `NAME_TYPE(rows, columns, x, y, out)`, built with the flags of candidates and without a warning."""
    (folder / "unit.cpp").write_text(SOURCE, encoding="utf-8")
    argv = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS, "-Werror", f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    provide_openmp()
    return ctypes.CDLL(str(folder / "unit.so"))


class CpuCall:
    """A kernel with inputs of normal numbers and an output full of NaN; `run()` calls it."""

    def __init__(self, library: ctypes.CDLL, name: str, ctype: str, rows: int, columns: int, seed: int = 0) -> None:
        self.case, dtype = CASES[name], TORCH[ctype]
        random = torch.Generator().manual_seed(seed)
        self.x, self.y = (torch.randn(rows, columns, generator=random).to(dtype) for _ in range(2))
        if self.case.weights:
            self.y = self.y[0].contiguous()
        shape = (rows,) if self.case.rows_only else (rows, columns)
        self.out = torch.full(shape, float("nan"), dtype=dtype)
        self._function = getattr(library, f"{name}_{ctype}")
        self._sizes = [ctypes.c_int64(rows), ctypes.c_int64(columns)]
        self._pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (self.x, self.y, self.out)]

    def run(self) -> None:
        self._function(*self._sizes, *self._pointers)

    def error(self) -> float:
        """Largest error against float64 as a part of the largest value."""
        want = self.case.exact(self.x.double(), self.y.double())
        return float((self.out.double() - want).abs().max() / want.abs().max())
