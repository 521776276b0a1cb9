"""Tests hardware counters: how the output of Nsight Compute is read, and the message if there is none."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernel_assistant.environment.counters import count, profiler, read_counters
from kernel_assistant.errors import Cancelled, MissingError
from kernel_assistant.records import BufferSpec, Plan
from kernel_assistant.targets.cuda import gpus
from tests.judge import kernels
from tests.runner.test_library import MATMUL

#: A gated RMS norm over 8192 × 4096 f32 values on an H200.
PRINTED = (Path(__file__).parent / "data" / "ncu_gated_norm.csv").read_text()


def test_what_is_printed_is_read():
    (found,) = read_counters(PRINTED)
    assert (found.symbol, found.microseconds) == ("gated_norm", 99.392)
    assert found.memory == pytest.approx(0.8115)
    # It reads two tensors of 128 MiB and writes one, most of which is still in the cache at the end.
    assert found.read_bytes == pytest.approx(2 * 8192 * 4096 * 4, rel=0.01)
    assert found.loads == found.stores == 1.0
    assert [reason for reason, _ in found.stalls[:2]] == ["global memory", "fixed latency"]
    assert found.text() == (
        "counters of gated_norm: 99.4 µs; memory 81% and arithmetic 31% of their peaks; 268 MB read, 120 MB written; "
        "L2 hits 34%; sectors used by loads 100%, by stores 100%; achieved occupancy 55%; "
        "warps wait for global memory 20, fixed latency 2.4"
    )


@pytest.mark.parametrize(
    "printed", ["", "==ERROR== no kernels were profiled\n", PRINTED[: PRINTED.rindex('"0","3387')]]
)
def test_nothing_where_nothing_is_printed(printed):
    assert read_counters(printed) == ()


def _counted(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, cancel: threading.Event) -> None:
    """Counts with a profiler that runs this script."""
    path = folder / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    count(kernels.candidate().plan, b"", {"B": 4}, 0, cancel)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1", "ERROR== ERR_NVGPUCTRPERM - no permission"),
        ("echo 'Failed to initialize the profiler: LibraryNotLoaded' >&2; exit 9", "LibraryNotLoaded"),
        ("exit 1", "it said nothing"),
    ],
)
def test_a_machine_that_refuses_is_told_of(tmp_path, monkeypatch, script, why):
    with pytest.raises(MissingError, match=why):
        _counted(tmp_path, monkeypatch, script, threading.Event())


def test_cancelled(tmp_path, monkeypatch):
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(Cancelled):
        _counted(tmp_path, monkeypatch, "sleep 100", cancel)


def test_a_plan_with_a_library_in_it_is_not_counted():
    shapes = {"x0": ("B", "32"), "p0": ("48", "32"), "p1": ("48",), "out0": ("B", "48")}
    *inputs, output = (BufferSpec(name=name, dtype="f32", shape=shape) for name, shape in shapes.items())
    plan = Plan(target="cuda", dims=("B",), inputs=tuple(inputs), outputs=(output,), launches=(MATMUL,))
    with pytest.raises(MissingError, match="nothing but their own kernels"):
        count(plan, b"", {"B": 4}, 0, threading.Event())


@pytest.mark.gpu
def test_read_on_a_gpu():
    from bench.subjects import norm, norm_environment

    profiler()
    with norm_environment("cuda") as environment:
        (found,) = environment.counters(norm("cuda"))
    assert found.symbol == "gated_norm" and found.microseconds > 0 and gpus()
    assert 0.0 < found.memory <= 1.0 and 0.0 < found.occupancy <= 1.0
    assert found.read_bytes > 100e6
