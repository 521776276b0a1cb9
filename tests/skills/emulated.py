"""CUDA programs that run on a CPU: the unchanged headers, except for their assembly, with `emulator/emulator.h`."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kernel_assistant.environment.builds.headers import shipped
from kernel_assistant.targets import cpu
from kernel_assistant.worker.runner import plan as plans
from tests.common.builds import build
from tests.skills.harness import unit_text
from tests.skills.program import Program

HERE = Path(__file__).with_name("emulator")
_ASSEMBLY = re.compile(r"\basm(?: volatile)?\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\);")
#: Functions whose assembly is what they compute. All other assembly is left out: what needs it gives wrong values here.
_INSTEAD = {
    "KA_FN float ka_max(float a, float b) {": "return a != a ? a : b != b ? b : a > b ? a : b;",
    "KA_FN float ka_min(float a, float b) {": "return a != a ? a : b != b ? b : a < b ? a : b;",
    "KA_FN float ka_reciprocal(float x) {": "return 1.0f / x;",
    "KA_FN float ka_round_f16(float x) {": "return (float)(_Float16)x;",
    "KA_FN uint4 ka_stream(const void* p) {": "return *(const uint4*)p;",
    "uint32_t a3, uint32_t b0, uint32_t b1) {": "emulator::multiply<type>(sum, a0, a1, a2, a3, b0, b1);",
}


def without_assembly(base: str) -> str:
    """`ka_cuda.cuh` without its assembly, for the emulator."""
    base = _ASSEMBLY.sub("", base)
    for head, body in _INSTEAD.items():
        assert base.count(head) == 1, head
        base = base.replace(head, f"{head} {body}")
    return base


def compile_emulated(programs: Iterable[Program], folder: Path) -> ctypes.CDLL:
    """Compiles all programs into one shared object."""
    (folder / "ka").mkdir()
    for name, text in shipped().items():
        without = without_assembly(text) if name == "ka_cuda.cuh" else _ASSEMBLY.sub("", text)
        (folder / name).write_text(without, encoding="utf-8")
    products = (folder / "ka" / "mma.cuh").read_text(encoding="utf-8")
    place = "extern __shared__ __align__(16) unsigned char ka_stages[];"
    assert products.count(place) == 1
    (folder / "ka" / "mma.cuh").write_text(products.replace(place, "unsigned char* ka_stages = emulator::dynamic;"))
    (folder / "ka" / "ptx.cuh").write_text((HERE / "ptx.cuh").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("cuda_bf16.h", "cuda_fp16.h"):
        (folder / name).write_text("")
    text = re.sub(r"const __grid_constant__ (\w+) a\b", r"const \1& a", unit_text(programs))
    (folder / "unit.cpp").write_text(f'#include "emulator.h"\n{text}', encoding="utf-8")
    flags = ("-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=fast", f"-I{folder}", f"-I{HERE}")
    argv = [cpu.compiler(), *flags, "unit.cpp", "-o", "unit.so"]
    build(argv, folder, "unit.so")
    return ctypes.CDLL(str(folder / "unit.so"))


class Emulated:
    """Replaces the executor's bound plan: it has `names`, and `freeze(pointers)`, which returns a call."""

    def __init__(self, plan: dict[str, Any], dims: dict[str, int], library: ctypes.CDLL) -> None:
        self.names = [spec["name"] for spec in plans.buffers(plan)]
        self._launches = [one for one in plans.bind_launches(plan, dims) if isinstance(one, plans.BoundLaunch)]
        self._library = library

    def freeze(self, pointers: Sequence[int]) -> Callable[[int], None]:
        def run(stream: int) -> None:
            for launch in self._launches:
                words = (ctypes.c_uint64 * len(launch.words))(*launch.words)
                for position, index in launch.slots:
                    words[position] = pointers[index]
                kernel = ctypes.cast(getattr(self._library, launch.symbol), ctypes.c_void_p)
                self._library.emulate(kernel, words, *launch.grid, launch.block[0], launch.shared)

        return run
