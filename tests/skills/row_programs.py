"""Kernels for pointwise work and for rows: pointwise, rows, softmax, welford, reduce."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.skills.program import Program, kernel, plan_of, single


def gate(dtype: str) -> Program:
    name, lanes = f"gate_{dtype}", 4 if dtype == "f32" else 8
    body = f"""  ka::pointwise<{lanes}, 1>(a.n, [](float x, float g, float b) {{ return x * ka_sigmoid(g) + b; }},
      a.out0, a.x0, a.x1, ka::last(a.p0, a.c));"""
    return Program(
        header="pointwise",
        source=kernel(name, body),
        plan=plan_of(
            name, {"x0": "B C", "x1": "B C", "p0": "C"}, "B C", "n=B*C c=C", f"cdiv(B*C, {256 * lanes})", dtype
        ),
        exact=lambda x, g, b: x * torch.sigmoid(g) + b,
        sizes=({"B": 37, "C": 131}, {"B": 1, "C": 3}, {"B": 5, "C": 512}),
        large={"B": 32768, "C": 4096},
    )


def channels() -> Program:
    body = """  ka::pointwise<4, 1>(a.n, [](float x, float s, float t) { return ka_relu(x * s) + t; },
      a.out0, a.x0, ka::middle(a.p0, a.p, a.c), ka::single(a.p1));"""
    return Program(
        header="pointwise",
        source=kernel("channels", body),
        plan=plan_of(
            "channels", {"x0": "B C P", "p0": "C", "p1": "1"}, "B C P", "n=B*C*P c=C p=P", "cdiv(B*C*P, 1024)"
        ),
        exact=lambda x, s, t: F.relu(x * s[:, None]) + t,
        sizes=({"B": 3, "C": 7, "P": 35}, {"B": 2, "C": 5, "P": 1}, {"B": 4, "C": 6, "P": 64}),
        large={"B": 64, "C": 256, "P": 8192},
    )


def layer_norm(dtype: str) -> Program:
    name, kind = f"layer_norm_{dtype}", "256, 4, 4" if dtype == "f32" else "256, 8, 2"
    body = f"""  ka::row<{kind}> x;
  x.load(a.x0 + blockIdx.x * a.c, a.c);
  const auto m = x.moments();
  const float scale = rsqrtf(ka::variance(m) + 1e-5f);
  x.store(a.out0 + blockIdx.x * a.c, [=](float v, float w, float b) {{ return (v - m.mean) * scale * w + b; }},
          a.p0, a.p1);"""
    return Program(
        *single("rows", name, body, {"x0": "B C", "p0": "C", "p1": "C"}, "B C", "c=C", "B", dtype),
        exact=lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        sizes=({"B": 5, "C": 4096}, {"B": 7, "C": 1003}, {"B": 1, "C": 31}),
        large={"B": 65536, "C": 4096},
    )


def warp_softmax(dtype: str) -> Program:
    name, kind = f"warp_softmax_{dtype}", "32, 4, 8" if dtype == "f32" else "32, 8, 4"
    body = f"""  const int64_t r = blockIdx.x * 8ll + threadIdx.x / 32;
  if (r >= a.b) return;
  ka::row<{kind}> x;
  x.load(a.x0 + r * a.c, a.c, -INFINITY);
  const float top = x.max();
  x.map([=](float v) {{ return ka_exp(v - top); }});
  const float share = 1.0f / x.sum();
  x.store(a.out0 + r * a.c, [=](float v) {{ return v * share; }});"""
    return Program(
        *single("rows", name, body, {"x0": "B C"}, "B C", "b=B c=C", "cdiv(B, 8)", dtype),
        exact=lambda x: torch.softmax(x, -1),
        sizes=({"B": 19, "C": 1024}, {"B": 3, "C": 77}, {"B": 9, "C": 1}),
        large={"B": 262144, "C": 1024},
    )


def long_softmax(dtype: str, log: bool = False) -> Program:
    name, lanes = f"{'log_' if log else ''}softmax_{dtype}", 4 if dtype == "f32" else 8
    call = f"ka::{'log_' if log else ''}softmax_row<512, {lanes}>"
    body = f"""  const int64_t r = blockIdx.x * a.c;
  {call}(a.c, [](float x) {{ return 2.0f * x; }}, a.out0 + r, a.x0 + r);"""
    return Program(
        *single("softmax", name, body, {"x0": "B C"}, "B C", "c=C", "B", dtype, block=512),
        exact=lambda x: (torch.log_softmax if log else torch.softmax)(2 * x, -1),
        sizes=({"B": 3, "C": 20001}, {"B": 2, "C": 4096}, {"B": 4, "C": 5}),
        large={"B": 8192, "C": 16384},
    )


def spread() -> Program:
    """The variance of rows whose mean is a thousand times their standard deviation."""
    body = """  const auto m = ka::row_moments<256, 4>(a.c, a.x0 + blockIdx.x * a.c);
  if (threadIdx.x == 0) a.out0[blockIdx.x] = ka::variance(m, 1);"""
    return Program(
        *single("welford", "spread", body, {"x0": "B C"}, "B", "c=C", "B"),
        exact=lambda x: x.var(-1),
        sizes=({"B": 5, "C": 10007}, {"B": 3, "C": 64}),
        large={"B": 16384, "C": 16384},
        own_bound=2e-5,
        shift=1000.0,
    )


def reduced() -> Program:
    """Two sums that share their barriers, then a maximum: Σx² / Σ|x| + max."""
    body = """  float two[2] = {0.0f, 0.0f};
  float top = -INFINITY;
  const float* x = a.x0 + blockIdx.x * a.c;
  ka::sweep<128, 4>((int)a.c, [&](int e, int count) {
    float v[4];
    ka::load_piece<4>(v, x + e, count);
    for (int k = 0; k < count; ++k) two[0] += v[k] * v[k], two[1] += ka_abs(v[k]), top = ka_max(top, v[k]);
  });
  ka::block_reduce<128, ka::sum>(two);
  top = ka::block_reduce<128, ka::max>(top);
  if (threadIdx.x == 0) a.out0[blockIdx.x] = two[0] / two[1] + top;"""
    return Program(
        *single("reduce", "reduced", body, {"x0": "B C"}, "B", "c=C", "B", block=128),
        exact=lambda x: x.square().sum(-1) / x.abs().sum(-1) + x.amax(-1),
        sizes=({"B": 5, "C": 10007}, {"B": 3, "C": 2}),
        large={"B": 32768, "C": 8192},
    )


def column_sums() -> Program:
    body = """  float* out = a.out0 + blockIdx.y * a.i;
  ka::reduce_columns<32, 8, 4, ka::sum>(a.x0 + blockIdx.y * a.r * a.i, (int)a.r, a.i, blockIdx.x * 128ll,
      [](float x) { return x; },
      [=](int64_t c, int count, const float (&y)[4]) { ka::store_piece<4>(out + c, y, count); });"""
    return Program(
        *single("reduce", "column_sums", body, {"x0": "B R I"}, "B I", "r=R i=I", "cdiv(I, 128)", rows="B"),
        exact=lambda x: x.sum(1),
        sizes=({"B": 3, "R": 77, "I": 261}, {"B": 2, "R": 1, "I": 5}, {"B": 1, "R": 300, "I": 128}),
        large={"B": 128, "R": 2048, "I": 1024},
    )
