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
#: Divisions in the width of their type; there are no vectors of quotients of 64-bit integers.
DIVISIONS = [
    *((ctype, f"ka_{name}(t, u)") for ctype in ("float", "double") for name in ("floor_divide", "fmod", "remainder")),
    *(
        (ctype, f"ka_{name}(t, u)")
        for ctype in ("int32_t", "int16_t", "int8_t", "uint8_t")
        for name in ("divide", "floor_divide", "remainder")
    ),
    ("uint8_t", "ka_mul(ka_neg(t), ka_max(t, u))"),
]
LOOP = """#include <stdint.h>
#include "ka_cpu.h"
typedef {ctype} T;
extern "C" void loop(const T* __restrict__ x, const T* __restrict__ z, T* __restrict__ y, int64_t n) {{
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {{ const T t = x[i], u = z[i]; (void)u; y[i] = {expression}; }}
}}
"""


@pytest.mark.parametrize("expression", EXPRESSIONS + (WITH_LIBRARY if "-DKA_LIBMVEC" in cpu.LINK_FLAGS else ()))
def test_the_loop_is_vectorised(expression: str, tmp_path: Path) -> None:
    check("float", expression, tmp_path)


@pytest.mark.skipif(not cpu.architecture().startswith("x86-64"), reason="names architectures")
@pytest.mark.parametrize("architecture", ["x86-64-v3", "skylake-avx512"])
@pytest.mark.parametrize(("ctype", "expression"), DIVISIONS)
def test_divisions_are_vectorised(ctype: str, expression: str, architecture: str, tmp_path: Path) -> None:
    """On Intel's processors with AVX-512 g++ keeps vectors at 256 bits, and has to find a variant of that width."""
    check(ctype, expression, tmp_path, architecture)


def check(ctype: str, expression: str, tmp_path: Path, architecture: str = "native") -> None:
    source = tmp_path / "loop.cpp"
    source.write_text(LOOP.format(ctype=ctype, expression=expression))
    flags = [flag.replace("=native", f"={architecture}") for flag in cpu.FLAGS]
    flags += [flag for flag in cpu.LINK_FLAGS if flag.startswith("-D")]
    files = ["-c", str(source), "-o", str(tmp_path / "loop.o")]
    argv = [cpu.compiler(), *flags, f"-I{HEADERS}", "-fopt-info-vec", *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "loop.cpp:6:" in done.stderr and "vectorized" in done.stderr
