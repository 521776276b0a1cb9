"""Compares every vetted header with its roofline: `python -m bench.skills --out FOLDER [--target cpu]`.

A header's bandwidth is compared with copying and reading in the same process, a matrix product with the library's at
the same sizes; on the CPU on all threads. The programs are those of the tests; their data exceed the cache, so that
calls in a row find it cold.
"""

from __future__ import annotations

import argparse
import tempfile
import timeit
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.harness import Row, RowFile, markdown, measure_cases, shown
from kernel_assistant.targets import cpu
from kernel_assistant.worker.applied.binaries import driver
from kernel_assistant.worker.measuring.calibrate import calibrate
from kernel_assistant.worker.measuring.roofline import Roofline, floor_seconds
from kernel_assistant.worker.runner import executor
from tests.skills.cpu_programs import CASES, TORCH, CpuCall, compile_cpu
from tests.skills.harness import Bound, compile_cuda, unit_text
from tests.skills.program import Program
from tests.skills.programs import programs

REPEATS = 15
#: Sizes of the programs of the CPU.
ROWS, WIDTH = 4096, 4096
COLUMNS = ("header", "program", "sizes", "ms", "rate", "share", "of", "error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for skills-TARGET.jsonl and skills-TARGET.md")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--target", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    file = RowFile(given.out / f"skills-{given.target}.jsonl")
    (_measure_cuda if given.target == "cuda" else _measure_cpu)(file, given.only)
    text = page(file.read(), file.about())
    file.path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


def _measure_cuda(file: RowFile, only: str) -> None:
    chosen = [one for one in programs().values() if only in one.name]
    module, ceilings = _module(chosen), _ceilings()
    file.describe(_about(torch.cuda.get_device_name(), ceilings))
    cases = [({"program": one.name}, one) for one in chosen]
    measure_cases(cases, partial(_of_program, module, ceilings), file, [nullcontext()])


def _measure_cpu(file: RowFile, only: str) -> None:
    facts = cpu.facts()
    bandwidths = calibrate("cpu", 0, facts.cache_bytes)
    ceilings = Roofline(copy=bandwidths["copy_bandwidth"], read=bandwidths["read_bandwidth"])
    file.describe(_about(f"{facts.name}, {facts.threads} threads", ceilings))
    named = [({"program": f"{name} {ctype}"}, (name, ctype)) for name in CASES for ctype in TORCH if only in name]
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        library = compile_cpu(Path(folder))

        def row(case: tuple[str, str], _: object) -> Row:
            call = CpuCall(library, *case, ROWS, WIDTH)
            seconds = median(timeit.repeat(call.run, number=1, repeat=REPEATS))
            read = sum(one.numel() * one.element_size() for one in (call.x, *([call.y] if call.case.reads_y else [])))
            written = call.out.numel() * call.out.element_size()
            about = {"header": call.case.header, "sizes": f"{ROWS} rows of {WIDTH}", "ms": seconds * 1e3}
            return about | _bandwidth(read, written, seconds, ceilings)

        measure_cases(named, row, file, [nullcontext()])


def _about(device: str, ceilings: Roofline) -> Row:
    bandwidths = {"copy_bandwidth": ceilings.copy, "read_bandwidth": ceilings.read}
    return {"device": device, "torch": str(torch.__version__), **bandwidths}


def _bandwidth(read: int, written: int, seconds: float, ceilings: Roofline) -> Row:
    share = floor_seconds(read, written, ceilings) / seconds
    return {"rate": (read + written) / seconds / 1e9, "unit": "GB/s", "share": share, "of": "bandwidth"}


def _module(chosen: list[Program]) -> Any:
    torch.zeros(1, device="cuda")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        cubin = compile_cuda(unit_text(chosen), Path(folder), [arch])[arch].read_bytes()
    return executor.CudaModule(driver(torch.cuda.current_device()), cubin)


def _ceilings() -> Roofline:
    source = torch.randn(1 << 29, device="cuda")
    sink = torch.empty_like(source)
    size = source.numel() * 4
    copy = 2 * size / min(_seconds(lambda: sink.copy_(source)), _seconds(lambda: torch.mul(source, 1.5, out=sink)))
    read = size / min(_seconds(source.sum), _seconds(source.amax))
    return Roofline(copy=copy, read=max(read, copy))


def _seconds(call: Callable[[], object]) -> float:
    """Median seconds of a call, measured with the device's events."""
    call()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return median(times)


def _of_program(module: Any, ceilings: Roofline, program: Program, _: object) -> Row:
    bound = Bound(program, program.large, module, "cuda")
    stream = torch.cuda.current_stream().cuda_stream
    seconds = _seconds(lambda: bound.run(stream))
    sizes = " ".join(f"{name}={size}" for name, size in program.large.items())
    row: Row = {"header": program.header, "sizes": sizes, "ms": seconds * 1e3}
    if program.flops(program.large):
        return row | _product(program, bound, seconds)
    written = bound.output.numel() * bound.output.element_size()
    return row | _bandwidth(bound.bytes - written, written, seconds, ceilings)


def _product(program: Program, bound: Bound, seconds: float) -> Row:
    """A matrix product compared with the library's of the same dtype; where float32 accuracy is kept, with three TF32
    products."""
    flops = program.flops(program.large)
    exact = "accurate" in program.name
    torch.backends.cuda.matmul.allow_tf32 = True
    left, right = bound.tensors["x0"], bound.tensors["x1"]
    left = left if left.shape[0] == program.large["M"] else left.T
    right = right if right.shape[0] == program.large["K"] else right.T
    fast = _seconds(lambda: left @ right)
    torch.backends.cuda.matmul.allow_tf32 = False
    full = _seconds(lambda: left @ right)
    floor = fast * (3 if exact else 1)
    return {
        "rate": flops / seconds / 1e12,
        "unit": "TFLOP/s",
        "share": floor / seconds,
        "of": "three TF32 products of the library" if exact else "the library's product",
        "library_ms": fast * 1e3,
        "library_ieee_ms": full * 1e3,
        "error": bound.error(),
    }


def page(rows: list[Row], about: Row) -> str:
    """The table as Markdown."""
    copy, read = about["copy_bandwidth"] / 1e9, about["read_bandwidth"] / 1e9
    lines = [f"# Vetted headers on {about['device']}", ""]
    lines.append(
        f"`python -m bench.skills`, torch {about['torch']}; copying moves {copy:.0f} GB/s, reading {read:.0f}."
    )
    lines += ["`error` is against float64, as a part of the largest value.", ""]
    return "\n".join([*lines, *markdown(COLUMNS, map(_cells, rows))]) + "\n"


def _cells(row: Row) -> list[str]:
    if "reason" in row:
        return ["", row["program"], "", "", "", "", row["reason"], ""]
    rate, share = f"{row['rate']:.0f} {row['unit']}", f"{row['share']:.0%}"
    named = [row["header"], row["program"], row["sizes"]]
    return [*named, f"{row['ms']:.3f}", rate, share, row["of"], shown(row.get("error"), ".1e")]


if __name__ == "__main__":
    main()
