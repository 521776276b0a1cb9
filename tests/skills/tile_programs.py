"""Kernels for scans, tiles and windows: scan, transpose, window, mma."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.skills.program import CTYPE, Program, kernel, launch, plan, plan_of, single

#: Shared memory of a product of 128 by 128 results: four stages of two operands.
STAGE = {"rows_of_k": 10240, "columns_of_k": 8704}


def running(dtype: str) -> Program:
    name, kind = f"running_sum_{dtype}", "256, 4, 4, ka::sum" if dtype == "f32" else "128, 8, 2, ka::sum"
    block = 256 if dtype == "f32" else 128
    body = f"""  const int64_t r = blockIdx.x * a.c;
  ka::scan_row<{kind}>(a.c, [](float x) {{ return 2.0f * x; }}, a.out0 + r, a.x0 + r);"""
    return Program(
        *single("scan", name, body, {"x0": "B C"}, "B C", "c=C", "B", dtype, block=block),
        exact=lambda x: torch.cumsum(2 * x, -1),
        # The sums of a half type must stay below 65,504.
        sizes=({"B": 3, "C": 30001 if dtype == "f16" else 65537}, {"B": 4, "C": 4096}, {"B": 2, "C": 7}),
        large={"B": 32768, "C": 8192},
        shift=0.5,
    )


def products_before() -> Program:
    body = """  const int64_t r = blockIdx.x * a.c;
  ka::scan_row<128, 4, 2, ka::prod, true>(a.c, [](float x) { return 1.0f + 0.001f * x; }, a.out0 + r, a.x0 + r);"""
    return Program(
        *single("scan", "products_before", body, {"x0": "B C"}, "B C", "c=C", "B", block=128),
        exact=lambda x: torch.cat([torch.ones_like(x[:, :1]), torch.cumprod(1 + 0.001 * x, -1)[:, :-1]], -1),
        sizes=({"B": 3, "C": 9001}, {"B": 2, "C": 3}),
        large={"B": 32768, "C": 8192},
        own_bound=1e-5,
    )


def chunked() -> Program:
    source = kernel(
        "chunk_totals",
        """  const int64_t r = blockIdx.y;
  ka::chunk_total<256, 4, ka::sum>(a.c, blockIdx.x, a.parts, [](float x) { return x; }, a.totals + r * a.parts,
                                   a.x0 + r * a.c);""",
    ) + kernel(
        "chunk_scan",
        """  const int64_t r = blockIdx.y;
  ka::scan_chunk<256, 4, 4, ka::sum>(a.c, blockIdx.x, a.parts, a.totals + r * a.parts, [](float x) { return x; },
                                     a.out0 + r * a.c, a.x0 + r * a.c);""",
    )
    parts = "min(1056,cdiv(C,4096))"
    return Program(
        header="scan",
        source=source,
        plan=plan(
            {"x0": "B C"},
            "B C",
            [
                launch("chunk_totals", f"x0 totals c=C parts={parts}", parts, rows="B"),
                launch("chunk_scan", f"x0 totals out0 c=C parts={parts}", parts, rows="B"),
            ],
            scratch={"totals": f"B {parts}"},
        ),
        exact=lambda x: torch.cumsum(x, -1),
        sizes=({"B": 2, "C": 100003}, {"B": 1, "C": 5}, {"B": 3, "C": 16384}),
        large={"B": 1, "C": 1 << 27},
        shift=0.5,
    )


def running_back() -> Program:
    body = """  const int64_t r = blockIdx.x * a.c;
  ka::scan_row<128, 4, 2, ka::sum, false, true>(a.c, [](float x) { return 2.0f * x; },
                                                [](float s, float y) { return 0.5f * s + y; }, a.out0 + r, a.x0 + r,
                                                a.x1 + r);"""
    return Program(
        *single("scan", "running_back", body, {"x0": "B C", "x1": "B C"}, "B C", "c=C", "B", block=128),
        exact=lambda x, y: torch.cumsum(x.flip(-1), -1).flip(-1) + y,
        sizes=({"B": 3, "C": 9001}, {"B": 2, "C": 3}, {"B": 2, "C": 1024}),
        large={"B": 32768, "C": 8192},
    )


def down() -> Program:
    """With few columns, so that they are computed in pieces first."""
    source = kernel(
        "down_chunks",
        """  ka::fold_chunks<32, 8, 4, ka::sum>(a.n, a.c, a.parts, [](float x, float y) { return x * y; },
                                     a.w0, a.x0, a.x1);""",
    ) + kernel(
        "down_columns",
        """  ka::fold_columns<32, 8, 4, ka::sum>(a.parts, a.c, [](float s) { return s; },
                                      [=](float s) { return s / a.n; }, a.out0, a.w0);""",
    )
    return Program(
        header="columns",
        source=source,
        plan=plan(
            {"x0": "B N C", "x1": "B N C"},
            "B C",
            [
                launch("down_chunks", "x0 x1 w0 n=N c=C parts=5", "B * 5 * cdiv(C, 128)"),
                launch("down_columns", "w0 out0 n=N c=C parts=5", "B * cdiv(C, 128)"),
            ],
            scratch={"w0": "B 5 C"},
        ),
        exact=lambda x, y: (x * y).mean(1),
        sizes=({"B": 3, "N": 77, "C": 131}, {"B": 1, "N": 1, "C": 5}, {"B": 2, "N": 64, "C": 128}),
        large={"B": 16, "N": 65536, "C": 256},
    )


def below(dtype: str) -> Program:
    name = f"below_{dtype}"
    body = """  ka::scan_columns<2, ka::sum, true, true>(a.b, a.n, a.c, [](float x) { return x; },
                                            [](float s) { return s + 1.0f; }, a.out0, a.x0);"""
    return Program(
        *single("columns", name, body, {"x0": "B N C"}, "B N C", "b=B n=N c=C", "cdiv(B * cdiv(C, 2), 256)", dtype),
        exact=lambda x: torch.cumsum(x.flip(1), 1).flip(1) - x + 1,
        sizes=({"B": 3, "N": 77, "C": 131}, {"B": 1, "N": 1, "C": 5}, {"B": 2, "N": 64, "C": 128}),
        large={"B": 64, "N": 1024, "C": 2048},
    )


def tall() -> Program:
    body = """  ka::scan_tall<16, 8, 2, ka::sum, true, true>(a.n, a.c, [](float x, float y) { return x * y; },
                                               [](float s) { return s + 1.0f; }, a.out0, a.x0, a.x1);"""
    return Program(
        header="columns",
        source=kernel("tall", body, 128),
        plan=plan_of("tall", {"x0": "B N C", "x1": "B N C"}, "B N C", "n=N c=C", "B * cdiv(C, 32)", block=128),
        exact=lambda x, y: torch.cumsum((x * y).flip(1), 1).flip(1) - x * y + 1,
        sizes=({"B": 3, "N": 77, "C": 131}, {"B": 1, "N": 1, "C": 5}, {"B": 2, "N": 64, "C": 128}),
        large={"B": 8, "N": 4096, "C": 1024},
    )


def placed(dtype: str) -> Program:
    """A roll, a padding and a gathered row in one kernel."""
    name, vector = f"placed_{dtype}", 1 if dtype == "f32" else 2
    body = f"""  ka::fill<4, {vector}>(a.out0, [=](int64_t b, int64_t i, int64_t j) {{
    const float x = ka_get(a.x0[(b * a.r + ka::at(-1 - i, a.r)) * a.c + ka::around(j - 1, a.c)]);
    return x + (ka::inside(j - 2, a.c - 2) ? ka_get(a.x0[(b * a.r + i) * a.c + ka::mirror(2 - j, a.c)]) : 1.0f);
  }}, a.b, a.r, a.c);"""
    return Program(
        header="index",
        source=kernel(name, body),
        plan=plan_of(name, {"x0": "B R C"}, "B R C", "b=B r=R c=C", f"cdiv(B * R * C, {1024 * vector})", dtype),
        exact=lambda x: (
            x.flip(1).roll(1, 2) + F.pad(x[..., : max(x.shape[-1] - 2, 0)], (2, 0), value=1.0)[..., : x.shape[-1]]
        ),
        sizes=({"B": 3, "R": 17, "C": 131}, {"B": 1, "R": 1, "C": 5}, {"B": 2, "R": 64, "C": 128}),
        large={"B": 64, "R": 1024, "C": 2048},
    )


def turned_onto() -> Program:
    body = "  ka::transpose<256>(a.r, a.c, [](float x, float y) { return 2.0f * x + y; }, a.out0, a.x0, a.x1);"
    return Program(
        header="transpose",
        source=kernel("turned_onto", body),
        plan=plan_of(
            "turned_onto", {"x0": "B R C", "x1": "B C R"}, "B C R", "r=R c=C", "B * cdiv(R, 64) * cdiv(C, 64)"
        ),
        exact=lambda x, y: 2 * x.transpose(1, 2) + y,
        sizes=({"B": 3, "R": 67, "C": 131}, {"B": 2, "R": 64, "C": 128}),
        large={"B": 16, "R": 4096, "C": 4096},
    )


def pool_beside() -> Program:
    """With a number for each channel, and a tensor of the result's shape."""
    body = """  ka::window<ka::list<3, 2>, ka::list<2, 2>, ka::list<1, 0>>::run<2, ka::sum>({a.n, a.c, a.h, a.w},
      {a.n, a.c, a.oh, a.ow}, [](float x) { return ka_relu(x); },
      [](float m, int k, float y, float z) { return m / k * y + z; }, a.out0, a.x0, ka::channel(a.p0, a.c), a.x1);"""
    rows, columns = "(H-1)//2+1", "(W-2)//2+1"
    return Program(
        header="window",
        source=kernel("pool_beside", body),
        plan=plan_of(
            "pool_beside",
            {"x0": "N C H W", "x1": f"N C {rows} {columns}", "p0": "C"},
            f"N C {rows} {columns}",
            f"n=N c=C h=H w=W oh={rows} ow={columns}",
            f"cdiv(N * C * cdiv({rows}, 2) * ({columns}), 256)",
        ),
        exact=lambda x, y, p: (
            F.avg_pool2d(F.relu(x), (3, 2), 2, (1, 0), count_include_pad=False) * p[:, None, None] + y
        ),
        sizes=({"N": 2, "C": 3, "H": 35, "W": 37}, {"N": 1, "C": 2, "H": 4, "W": 2}),
        large={"N": 64, "C": 64, "H": 256, "W": 256},
    )


def turned(dtype: str) -> Program:
    name, tile = f"turned_{dtype}", 64
    body = "  ka::transpose<256>(a.r, a.c, [](float x) { return 2.0f * x; }, a.out0, a.x0);"
    return Program(
        header="transpose",
        source=kernel(name, body),
        plan=plan_of(name, {"x0": "B R C"}, "B C R", "r=R c=C", f"B * cdiv(R, {tile}) * cdiv(C, {tile})", dtype),
        exact=lambda x: 2 * x.transpose(1, 2),
        sizes=({"B": 3, "R": 67, "C": 131}, {"B": 1, "R": 1, "C": 5}, {"B": 2, "R": 70, "C": 130}),
        large={"B": 16, "R": 4096, "C": 4096},
    )


def pool_2d() -> Program:
    body = """  ka::window<ka::list<3, 3>, ka::list<2, 2>, ka::list<1, 1>>::run<2, ka::max>({a.p, a.h, a.w},
      {a.p, a.oh, a.ow}, [](float x) { return 0.5f * x; }, [](float m, int) { return m; }, a.out0, a.x0);"""
    return Program(
        header="window",
        source=kernel("pool_2d", body),
        plan=plan_of(
            "pool_2d",
            {"x0": "P H W"},
            "P (H-1)//2+1 (W-1)//2+1",
            "p=P h=H w=W oh=(H-1)//2+1 ow=(W-1)//2+1",
            "cdiv(P * cdiv((H-1)//2+1, 2) * ((W-1)//2+1), 256)",
        ),
        exact=lambda x: F.max_pool2d(0.5 * x, 3, 2, 1),
        sizes=({"P": 5, "H": 35, "W": 37}, {"P": 2, "H": 1, "W": 1}, {"P": 3, "H": 64, "W": 16}),
        large={"P": 4096, "H": 256, "W": 256},
    )


def pool_1d() -> Program:
    body = """  ka::window<ka::list<3>, ka::list<1>, ka::list<2>, ka::list<2>>::run<1, ka::max>({a.p, a.w}, {a.p, a.ow},
      [](float x) { return x; }, [](float m, int) { return m; }, a.out0, a.x0);"""
    return Program(
        *single("window", "pool_1d", body, {"x0": "P W"}, "P W", "p=P w=W ow=W", "cdiv(P * W, 256)"),
        exact=lambda x: F.max_pool1d(F.pad(x, (2, 2), value=-1e9), 3, 1, 0, 2),
        sizes=({"P": 5, "W": 301}, {"P": 2, "W": 2}),
        large={"P": 16384, "W": 16384},
    )


def pool_3d() -> Program:
    body = """  ka::window<ka::list<3, 3, 3>, ka::list<2, 2, 2>, ka::list<1, 1, 1>>::run<2, ka::sum>(
      {a.p, a.d, a.h, a.w}, {a.p, a.od, a.oh, a.ow}, [](float x) { return x; }, [](float m, int n) { return m / n; },
      a.out0, a.x0);"""
    half = {axis: f"({axis.upper()}-1)//2+1" for axis in "dhw"}
    return Program(
        header="window",
        source=kernel("pool_3d", body),
        plan=plan_of(
            "pool_3d",
            {"x0": "P D H W"},
            f"P {half['d']} {half['h']} {half['w']}",
            f"p=P d=D h=H w=W od={half['d']} oh={half['h']} ow={half['w']}",
            f"cdiv(P * ({half['d']}) * cdiv({half['h']}, 2) * ({half['w']}), 256)",
        ),
        exact=lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
        sizes=({"P": 3, "D": 5, "H": 9, "W": 11}, {"P": 1, "D": 3, "H": 4, "W": 6}),
        large={"P": 512, "D": 64, "H": 64, "W": 64},
    )


def product(dtype: str, precision: str, left: str, right: str) -> Program:
    short = {"rows_of_k": "r", "columns_of_k": "c"}
    name = f"product_{dtype}_{precision}_{short[left]}{short[right]}"
    kind = f"ka::product<{CTYPE[dtype]}, ka::{precision}, ka::{left}, ka::{right}>"
    body = f"""  {kind}::run(a.x0, a.x1, a.m, a.n, a.k, a.out0,
      [&](float v, int, int n) {{ return ka_relu(v + ka_get(a.p0[n])); }});"""

    def exact(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu((x if left == "rows_of_k" else x.T) @ (y.T if right == "rows_of_k" else y) + b)

    bounds = {"f32 accurate": 2e-6, "f32 fast": 2e-3}
    return Program(
        header="mma",
        source=kernel(name, body),
        plan=plan_of(
            name,
            {"x0": "M K" if left == "rows_of_k" else "K M", "x1": "N K" if right == "rows_of_k" else "K N", "p0": "N"},
            "M N",
            "m=M n=N k=K",
            "cdiv(M, 128) * cdiv(N, 128)",
            dtype,
            dims="M N K",
            shared=str(4 * (STAGE[left] + STAGE[right])),
        ),
        exact=exact,
        sizes=({"M": 200, "N": 264, "K": 136}, {"M": 133, "N": 77, "K": 301}, {"M": 1, "N": 3, "K": 5}),
        large={"M": 8192, "N": 8192, "K": 4096},
        own_bound=bounds.get(f"{dtype} {precision}", 0.0),
        flops=lambda dims: 2.0 * dims["M"] * dims["N"] * dims["K"],
        rate="tf32" if dtype == "f32" else "half",
    )
