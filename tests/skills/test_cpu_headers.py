"""The CPU headers compared with float64, at odd sizes and in every type; their loops must vectorise."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest

from kernel_assistant.environment.builds.headers import INCLUDE
from kernel_assistant.targets import cpu
from tests.common.builds import build
from tests.skills.cpu_programs import CASES, CpuCall, compile_cpu

pytestmark = pytest.mark.sampled(3)

BOUND = {"float": 2e-6, "ka_bf16": 4e-3, "_Float16": 6e-4}
SIZES = ((37, 131), (1, 5), (3, 70001), (64, 1024))
LOOPS = {
    "map": "ka::map_row(n, [](float a) { return ka_gelu(a); }, o, x);",
    "fold": "o[0] = (float)ka::fold_row<ka::sum>(n, [](float a) { return ka_exp(a); }, x);",
    "largest": "o[0] = (float)ka::fold_row<ka::max>(n, [](float a) { return ka_abs(a); }, x);",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_cpu(tmp_path_factory.mktemp("cpu"))


@pytest.mark.parametrize("ctype", BOUND)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_float64(name: str, ctype: str, library: ctypes.CDLL) -> None:
    for seed, (rows, columns) in enumerate(SIZES):
        call = CpuCall(library, name, ctype, rows, columns, seed)
        call.run()
        assert call.error() <= BOUND[ctype], (rows, columns)


@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_is_of_vectors(name: str, tmp_path: Path) -> None:
    text = f'#include "ka/rows.h"\nextern "C" void loop(const float* x, float* o, int64_t n) {{ {LOOPS[name]} }}\n'
    (tmp_path / "loop.cpp").write_text(text)
    argv = [cpu.compiler(), *cpu.FLAGS, f"-I{INCLUDE}", "-fopt-info-vec", "-c", "loop.cpp", "-o", "loop.o"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    header = "pointwise.h" if name == "map" else "rows.h"
    assert any(f"ka/{header}:" in line and "vectorized" in line for line in done.stderr.splitlines()), done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_no_processor_is_warned_about(level: str, tmp_path: Path) -> None:
    """A vector wider than the processor's registers would be returned in another way, about which the compiler
    warns.
    """
    (tmp_path / "scan.cpp").write_text(
        '#include "ka/scan.h"\nextern "C" void scan(const float* x, float* o, int64_t n) {'
        " ka::scan_row<ka::sum>(n, [](float a) { return a; }, o, x); }\n"
    )
    flags = [f"-march={level}" if flag.startswith("-march=") else flag for flag in cpu.FLAGS]
    build([cpu.compiler(), *flags, "-Werror", f"-I{INCLUDE}", "-c", "scan.cpp", "-o", "scan.o"], tmp_path, "scan.o")
