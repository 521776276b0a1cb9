"""Compares every vetted header with its roofline: `python bench/skills.py --out FOLDER [--target cpu]`.

A header's bandwidth is compared with copying and reading in the same process, a matrix product with the library's at
the same sizes. The programs are those of the tests; their data exceed the cache, so that calls in a row find it cold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path, like everything below

from bench.skills_cpu import cpu_document  # noqa: E402
from kernel_assistant.worker.applied.binaries import driver  # noqa: E402
from kernel_assistant.worker.measuring.roofline import Roofline, floor_seconds  # noqa: E402
from kernel_assistant.worker.runner import executor  # noqa: E402
from tests.skills.harness import Bound, compile_cuda, unit_text  # noqa: E402
from tests.skills.program import Program  # noqa: E402
from tests.skills.programs import programs  # noqa: E402

REPEATS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for skills-TARGET.json and skills-TARGET.md")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--target", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    document = cpu_document(arguments.only) if arguments.target == "cpu" else _cuda_document(arguments.only)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"skills-{arguments.target}.json").write_text(json.dumps(document, indent=1) + "\n")
    (arguments.out / f"skills-{arguments.target}.md").write_text(_page(document))


def _cuda_document(only: str) -> dict[str, Any]:
    chosen = [one for one in programs().values() if only in one.name]
    module = _module(chosen)
    ceilings = _ceilings()
    rows = []
    for program in chosen:
        rows.append(_row(program, module, ceilings))
        print(json.dumps(rows[-1]), flush=True)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_bandwidth": ceilings.copy,
        "read_bandwidth": ceilings.read,
        "programs": rows,
    }


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


def _row(program: Program, module: Any, ceilings: Roofline) -> dict[str, Any]:
    bound = Bound(program, program.large, module, "cuda")
    stream = torch.cuda.current_stream().cuda_stream
    seconds = _seconds(lambda: bound.run(stream))
    sizes = " ".join(f"{name}={size}" for name, size in program.large.items())
    row: dict[str, Any] = {"header": program.header, "program": program.name, "sizes": sizes, "ms": seconds * 1e3}
    if program.flops(program.large):
        return {**row, **_product(program, bound, seconds)}
    written = bound.output.numel() * bound.output.element_size()
    floor = floor_seconds(bound.bytes - written, written, ceilings)
    return {**row, "rate": bound.bytes / seconds / 1e9, "unit": "GB/s", "share": floor / seconds, "of": "bandwidth"}


def _product(program: Program, bound: Bound, seconds: float) -> dict[str, Any]:
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


def _page(document: dict[str, Any]) -> str:
    copy, read = document["copy_bandwidth"] / 1e9, document["read_bandwidth"] / 1e9
    lines = [f"# Vetted headers on {document['device']}", ""]
    lines.append(
        f"`python bench/skills.py`, torch {document['torch']}; copying moves {copy:.0f} GB/s, reading {read:.0f}."
    )
    lines += ["`error` is against float64, as a part of the largest value.", ""]
    lines += ["| header | program | sizes | ms | rate | share | of | error |", "|---|---|---|---|---|---|---|---|"]
    for row in document["programs"]:
        error = f"{row['error']:.1e}" if "error" in row else ""
        rate = f"{row['rate']:.0f} {row['unit']}"
        share = f"{100 * row['share']:.0f}%"
        cells = (row["header"], row["program"], row["sizes"], f"{row['ms']:.3f}", rate, share, row["of"], error)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
