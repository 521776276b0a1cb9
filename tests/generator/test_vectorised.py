"""Tests that every mathematical function of the CPU headers vectorises inside a loop, with the flags of candidates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_assistant.targets import cpu

pytestmark = pytest.mark.sampled(3)

HEADERS = Path(__file__).resolve().parents[2] / "kernel_assistant" / "skills" / "include"
EXPRESSIONS = (
    *("ka_exp(t)", "ka_log(t)", "ka_log1p(t)", "ka_expm1(t)", "ka_tanh(t)", "ka_erf(t)", "ka_sigmoid(t)"),
    *("ka_gelu(t)", "ka_gelu_tanh(t)", "ka_softplus(t, 1.0f, 20.0f)", "ka_mish(t)", "ka_log_sigmoid(t)", "ka_selu(t)"),
)
#: Where glibc has variants over vectors.
WITH_LIBRARY = ("ka_sin(t)", "ka_cos(t)", "ka_sin(t) + ka_cos(t)", "ka_pow(t, 1.7f)")
LOOP = """#include <stdint.h>
#include "ka_cpu.h"
extern "C" void loop(const float* __restrict__ x, float* __restrict__ y, int64_t n) {{
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {{ const float t = x[i]; y[i] = {expression}; }}
}}
"""


@pytest.mark.parametrize("expression", EXPRESSIONS + (WITH_LIBRARY if "-DKA_LIBMVEC" in cpu.LINK_FLAGS else ()))
def test_the_loop_is_vectorised(expression, tmp_path):
    source = tmp_path / "loop.cpp"
    source.write_text(LOOP.format(expression=expression))
    done = subprocess.run(
        [
            cpu.compiler(),
            *cpu.FLAGS,
            *(flag for flag in cpu.LINK_FLAGS if flag.startswith("-D")),
            f"-I{HEADERS}",
            "-fopt-info-vec",
            "-c",
            str(source),
            "-o",
            str(tmp_path / "loop.o"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "loop.cpp:5:" in done.stderr and "vectorized" in done.stderr
