"""The CPU headers against float64, at odd sizes, in every type; and that the loops are of vectors."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.environment.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner.executor import provide_openmp

TORCH = {"float": torch.float32, "ka_bf16": torch.bfloat16, "_Float16": torch.float16, "double": torch.float64}
BOUND = {"float": 2e-6, "ka_bf16": 4e-3, "_Float16": 6e-4}
SIZES = ((37, 131), (1, 5), (3, 70001), (64, 1024))

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
    exact: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    rows_only: bool = False
    weights: bool = False


CASES = {
    "gate": Case(lambda x, y: x * torch.sigmoid(y)),
    "norm": Case(lambda x, y: F.layer_norm(x, x.shape[-1:]) * y, weights=True),
    "soft": Case(lambda x, y: torch.softmax(2 * x + y, -1)),
    "fold": Case(lambda x, y: (x * y).mean(-1) + x.amax(-1) - x.amin(-1), rows_only=True),
    "sum": Case(lambda x, y: torch.cumsum(x + 0.5, -1)),
    "before": Case(lambda x, y: _before(x)),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("cpu")
    (folder / "unit.cpp").write_text(SOURCE)
    argv = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS, "-Werror", f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    provide_openmp()
    return ctypes.CDLL(str(folder / "unit.so"))


@pytest.mark.parametrize("ctype", BOUND)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_float64(name: str, ctype: str, library: ctypes.CDLL) -> None:
    case = CASES[name]
    for seed, (rows, columns) in enumerate(SIZES):
        random = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(rows, columns, generator=random).to(TORCH[ctype]) for _ in range(2))
        y = y[0].contiguous() if case.weights else y
        out = torch.full((rows,) if case.rows_only else (rows, columns), float("nan")).to(TORCH[ctype])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, out)]
        getattr(library, f"{name}_{ctype}")(ctypes.c_int64(rows), ctypes.c_int64(columns), *pointers)
        want = case.exact(x.double(), y.double())
        error = float((out.double() - want).abs().max() / want.abs().max())
        assert error <= BOUND[ctype], (rows, columns)


LOOPS = {
    "map": "ka::map_row(n, [](float a) { return ka_gelu(a); }, o, x);",
    "fold": "o[0] = (float)ka::fold_row<ka::add>(n, [](float a) { return ka_exp(a); }, x);",
    "largest": "o[0] = (float)ka::fold_row<ka::most>(n, [](float a) { return ka_abs(a); }, x);",
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_is_of_vectors(name: str, tmp_path: Path) -> None:
    text = f'#include "ka/rows.h"\nextern "C" void loop(const float* x, float* o, int64_t n) {{ {LOOPS[name]} }}\n'
    (tmp_path / "loop.cpp").write_text(text)
    argv = [cpu.compiler(), *cpu.FLAGS, f"-I{INCLUDE}", "-fopt-info-vec", "-c", "loop.cpp", "-o", "loop.o"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    header = "pointwise.h" if name == "map" else "rows.h"
    assert any(f"ka/{header}:" in line and "vectorized" in line for line in done.stderr.splitlines()), done.stderr
