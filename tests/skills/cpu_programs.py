"""A small kernel for each function of a CPU header, for three types, and the expected result in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner.executor import provide_openmp
from tests.common.builds import build

TORCH = {"float": torch.float32, "ka_bf16": torch.bfloat16, "_Float16": torch.float16}

#: What kernels do with `n` rows of `c` columns: x and y are the inputs, o the output.
BODIES = {
    "gate": "ka::pointwise(n * c, [](float a, float b) { return a * ka_sigmoid(b); }, o, x, y);",
    "line": """ka::window<ka::list<3>, ka::list<2>, ka::list<1>>::run<ka::sum>({n, c}, {n, (c - 1) / 2 + 1},
      [](float a) { return a; }, [](float a, int k, float b) { return a / k * b; }, o, x, ka::channel(y, n));""",
    "window": """ka::window<ka::list<3, 3>, ka::list<1, 1>, ka::list<2, 2>, ka::list<2, 2>>::run<ka::max>(
      {n, c}, {n, c}, [](float a) { return -a; }, [](float m, int, float b) { return m + b; }, o, x, y);""",
    "turn": "ka::transpose(1, n, c, [](float a, float b) { return 2 * a + b; }, o, x, y);",
    "place": """ka::fill(o, [=](int64_t i, int64_t j, int64_t k) {
      const float a = ka_get(x[(n - 1 - i) * c + ka::around(j - 1, c)]);
      return a * ka_get(y[ka::at(-1 - i, n) * c + ka::mirror(-j, c)]) + k;
    }, n, c, 2);""",
    "down": """const auto f = [](float a, float b) { return a * b; };
    ka::fold_columns<ka::sum>(1, n, c, f, [=](float s) { return s / n; }, o, x, y);""",
    "below": """ka::scan_columns<ka::sum, true, true>(1, n, c, [](float a) { return a; }, [](float s) { return s + 1; },
      o, x);""",
}
#: What they do with row r.
ROW_BODIES = {
    "norm": """const ka::moments m = ka::row_moments(c, x + r * c);
      const float mean = (float)m.mean, scale = ka_rsqrt(ka::variance(m) + 1e-5f);
      ka::map_row(c, [=](float a, float b) { return (a - mean) * scale * b; }, o + r * c, x + r * c, y);""",
    "soft": "ka::softmax_row(c, [](float a, float b) { return 2 * a + b; }, o + r * c, x + r * c, y + r * c);",
    "fold": """const double dot = ka::fold_row<ka::sum>(c, [](float a, float b) { return a * b; }, x + r * c,
                                                   y + r * c);
      const double top = ka::fold_row<ka::max>(c, [](float a) { return a; }, x + r * c);
      const double low = ka::fold_row<ka::min>(c, [](float a) { return a; }, x + r * c);
      ka_put(o[r], (float)(dot / c + top - low));""",
    "sum": "ka::scan_row<ka::sum>(c, [](float a) { return a + 0.5f; }, o + r * c, x + r * c);",
    "before": """const auto step = [](float a) { return a > 0 ? 1.0009765625f : 0.9990234375f; };
      ka::scan_row<ka::prod, true>(c, step, o + r * c, x + r * c);""",
    "top": """ka::scan_row<ka::max>(c, [](float a) { return a; }, [](float s, float b) { return s + b; },
      o + r * c, x + r * c, y + r * c);""",
    "back": """ka::scan_row<ka::sum, false, true>(c, [](float a) { return a + 0.5f; },
      [](float s, float b) { return 0.5f * s + b; }, o + r * c, x + r * c, y + r * c);""",
}


def source() -> str:
    """All kernels NAME_TYPE."""
    bodies = {**BODIES, **{name: f"ka::rows(n, c, [=](int64_t r) {{ {body} }});" for name, body in ROW_BODIES.items()}}
    headers = ("columns", "index", "pointwise", "rows", "scan", "transpose", "window")
    return "".join(f'#include "ka/{header}.h"\n' for header in headers) + "".join(
        f'extern "C" void {name}_{t}(int64_t n, int64_t c, const {t}* x, const {t}* y, {t}* o) {{\n{body}\n}}\n'
        for t in TORCH
        for name, body in bodies.items()
    )


def _before(x: torch.Tensor) -> torch.Tensor:
    steps = torch.where(x > 0, 1.0009765625, 0.9990234375).double()
    return torch.cat([torch.ones_like(steps[:, :1]), torch.cumprod(steps, -1)[:, :-1]], -1)


def _largest(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.pad(x[None], (2, 2, 2, 2), value=-1e9), 3, 1, 0, 2)[0]


def _placed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product = x.flip(0).roll(1, 1) * y.flip(0)
    return torch.stack([product, product + 1], -1)


@dataclass(frozen=True)
class Case:
    """`weights` says that y is a single row, `reads_y` that both inputs are read."""

    exact: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    weights: bool = False
    reads_y: bool = True
    header: str = "rows"


CASES = {
    "gate": Case(lambda x, y: x * torch.sigmoid(y), header="pointwise"),
    "norm": Case(lambda x, y: F.layer_norm(x, x.shape[-1:]) * y, weights=True),
    "soft": Case(lambda x, y: torch.softmax(2 * x + y, -1)),
    "fold": Case(lambda x, y: (x * y).mean(-1) + x.amax(-1) - x.amin(-1)),
    "sum": Case(lambda x, y: torch.cumsum(x + 0.5, -1), reads_y=False, header="scan"),
    "before": Case(lambda x, y: _before(x), reads_y=False, header="scan"),
    "top": Case(lambda x, y: torch.cummax(x, -1)[0] + y, header="scan"),
    "back": Case(lambda x, y: torch.cumsum(x.flip(-1) + 0.5, -1).flip(-1) / 2 + y, header="scan"),
    "line": Case(
        lambda x, y: F.avg_pool1d(x[:, None], 3, 2, 1, count_include_pad=False)[:, 0] * y.view(-1)[: len(x), None],
        header="window",
    ),
    "window": Case(lambda x, y: _largest(-x) + y, header="window"),
    "turn": Case(lambda x, y: 2 * x.T + y.reshape(x.T.shape), header="transpose"),
    "place": Case(_placed, header="index"),
    "down": Case(lambda x, y: (x * y).mean(0), header="columns"),
    "below": Case(lambda x, y: torch.cumsum(x.flip(0), 0).flip(0) - x + 1, reads_y=False, header="columns"),
}


def compile_cpu(folder: Path) -> ctypes.CDLL:
    """The functions `NAME_TYPE(rows, columns, x, y, out)`, compiled with the flags of candidates and without a
    warning.
    """
    (folder / "unit.cpp").write_text(source(), encoding="utf-8")
    argv = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS, "-Werror", f"-I{INCLUDE}", "unit.cpp", "-o", "unit.so"]
    build(argv, folder, "unit.so")
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
        shape = self.case.exact(self.x.float(), self.y.float()).shape
        self.out = torch.full(shape, float("nan"), dtype=dtype)
        self._function = getattr(library, f"{name}_{ctype}")
        self._sizes = [ctypes.c_int64(rows), ctypes.c_int64(columns)]
        self._pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (self.x, self.y, self.out)]

    def run(self) -> None:
        self._function(*self._sizes, *self._pointers)

    def error(self) -> float:
        """The largest error against float64, divided by the largest value."""
        want = self.case.exact(self.x.double(), self.y.double())
        return float((self.out.double() - want).abs().max() / want.abs().max())
