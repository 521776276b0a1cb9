"""torch.compile as a baseline: a broken cache heals, a module that it cannot compile is compared with eager alone."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.events import Warned
from kernel_assistant.records import Gain
from kernel_assistant.worker.device_lock import DeviceLock
from kernel_assistant.worker.measuring.compiled import (
    SUFFIX,
    VARIABLE,
    NotCompiledError,
    compiled_call,
    released_while_compiling,
)
from tests.judge.kernels import environment, numbered


def started(folder: Path, **env: str) -> WorkerClient:
    worker = WorkerClient(sys.executable, log=folder / "log", env={VARIABLE: str(folder / "inductor"), **env})
    worker.start(threading.Event())
    return worker


def test_a_module_that_torch_compile_cannot_compile_is_measured_against_eager(tmp_path):
    worker = started(tmp_path, CXX="/bin/false")
    events = []
    with environment(worker, tmp_path, events=events, nominal=False) as opened:
        pid = worker.process.pid
        assert opened.baseline(compiled=True).compile_ms is None
        evaluation = opened.confirm(numbered(1)[0], looks=1)
        assert worker.process.pid == pid, "no failure of the worker"
    timing = evaluation.timing
    assert evaluation.correct and timing is not None
    assert (timing.compile_ms, timing.vs_compile) == (None, Gain.unknown)
    assert timing.speedup_vs_eager_ci is not None
    told = [one.message for one in events if isinstance(one, Warned) and "torch.compile cannot compile" in one.message]
    assert len(told) == 1 and "compared with eager alone" in told[0]


@pytest.mark.builds
def test_a_half_written_file_in_the_cache_heals_and_the_users_cache_is_not_touched(tmp_path):
    worker = started(tmp_path)
    with environment(worker, tmp_path, nominal=False) as opened:
        assert opened.baseline(compiled=True).compile_ms is not None
    worker.close()
    own = tmp_path / f"inductor{SUFFIX}"
    built = list(own.rglob("*.so"))
    assert built and not list((tmp_path / "inductor").rglob("*.so"))
    for path in built:
        path.write_bytes(path.read_bytes()[:100])  # as a process leaves it that is killed while it links
    for path in own.rglob("*.lock"):
        path.unlink()
    worker = started(tmp_path)
    events = []
    with environment(worker, tmp_path, events=events, nominal=False) as opened:
        assert opened.baseline(compiled=True).compile_ms is not None
    worker.close()
    assert not [one for one in events if isinstance(one, Warned)]
    assert all(path.stat().st_size > 1000 for path in own.rglob("*.so"))
    assert not list(tmp_path.glob("*.damaged-*"))


def _compilers(cause: Exception) -> Exception:
    """An exception as inductor raises it, with its cause inside."""
    from torch._inductor.exc import InductorError

    return InductorError(cause, None)


def test_only_failures_of_the_compiler_are_called_that_and_only_a_cache_of_ours_is_emptied(tmp_path, monkeypatch):
    failure = _compilers(ImportError("kernels.so: file too short"))
    for raised, wanted, name, tried in (
        (ValueError("the module's own"), ValueError, f"cache{SUFFIX}", 1),
        (_compilers(RuntimeError("CUDA error: device-side assert triggered")), Exception, f"cache{SUFFIX}", 1),
        (failure, NotCompiledError, f"cache{SUFFIX}", 2),
        (failure, NotCompiledError, "of_the_user", 1),
        (failure, NotCompiledError, f"empty{SUFFIX}", 1),
    ):
        monkeypatch.setenv(VARIABLE, str(tmp_path / name))
        kept = tmp_path / name / "kept"
        kept.parent.mkdir(exist_ok=True)
        if "empty" not in name:
            kept.touch()
        tries = []

        def fails(raised=raised, tries=tries):
            tries.append(raised)
            raise raised

        with pytest.raises(wanted) as found:
            compiled_call(fails)
        assert isinstance(found.value, NotCompiledError) == (wanted is NotCompiledError)
        assert len(tries) == tried and kept.exists() == (tried == 1 and "empty" not in name)
        assert not list(tmp_path.glob("*.damaged-*"))


def test_what_was_compiled_ahead_is_not_compiled_again(tmp_path):
    """The judge's own compilation finds everything in the cache, and adds nothing."""
    worker = started(tmp_path)

    def cached():
        return sorted(path for path in (tmp_path / f"inductor{SUFFIX}" / "fxgraph").rglob("*") if path.is_file())

    with environment(worker, tmp_path, nominal=False) as opened:
        opened.compile_ahead()
        while not opened.wait_for_compile(60.0):
            pass
        ahead = cached()
        assert ahead and opened.baseline(compiled=True).compile_ms is not None
        assert cached() == ahead
    worker.close()


def test_while_it_compiles_ahead_the_comparison_is_with_eager_alone(norm, monkeypatch):
    candidate = numbered(1)[0]
    with monkeypatch.context() as patched:
        patched.setattr(norm, "wait_for_compile", lambda seconds: False)
        alone = norm.confirm(candidate, looks=1).timing
    beside = norm.confirm(candidate, looks=1).timing
    assert alone is not None and beside is not None and alone.speedup_vs_eager_ci is not None
    assert (alone.compile_ms, alone.vs_compile) == (None, Gain.unknown)
    assert beside.compile_ms is not None and beside.speedup_vs_compile_ci is not None


def test_a_large_module_is_not_compiled_ahead(norm, monkeypatch):
    monkeypatch.setattr(norm, "_nominal", False)
    monkeypatch.setitem(norm.facts, "parameter_bytes", norm.device.memory_bytes // 4)
    norm.compile_ahead()
    assert norm.wait_for_compile(0.0) and norm.pausing == []


class InUse(Exception):
    """Raised where one would have to wait for the device."""


def test_others_measure_while_a_module_is_compiled(tmp_path):
    seen = list[str]()

    def look() -> None:
        def busy() -> None:
            raise InUse

        try:
            with DeviceLock(tmp_path).exclusive(busy):
                seen.append("free")
        except InUse:
            seen.append("in use")

    def from_another_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    def backend(module, inputs):
        from_another_thread()
        return module.forward

    lock, compiled = DeviceLock(tmp_path), torch.compile(lambda x: x.cos() + 1, backend=backend)
    with lock.shared():
        with released_while_compiling(lock):
            compiled(torch.ones(3))
            from_another_thread()
        torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
    assert seen == ["free", "in use", "in use"]
