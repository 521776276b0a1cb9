"""Runs torch.compile as a baseline: with a cache folder of its own, which is emptied if a file in it is broken, and
with an exception for modules that cannot be compiled.

inductor writes a shared object in place. A process that is killed meanwhile leaves a truncated file, and every later
program with that cache folder fails when it loads the file ("file too short"). A worker is killed when a budget is used
up or a job is cancelled; so its cache folder is not the user's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..device_lock import DeviceLock

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
SUFFIX = "_kernel_assistant"
#: Modules whose exceptions say that a module cannot be compiled; others are the module's own, or the device's.
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")


class NotCompiledError(Exception):
    """torch.compile cannot compile the module. The message is one line."""


def use_own_cache() -> None:
    """Makes inductor in this process and its children use a cache folder beside the user's. Call it before anything
    compiles."""
    folder = os.environ.get(VARIABLE) or os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}")
    if not folder.endswith(SUFFIX):
        os.environ[VARIABLE] = folder + SUFFIX


def compiled_call(compile_and_call: Callable[[], None]) -> None:
    """Calls `compile_and_call`. If the compiler fails and there was a cache, empties the cache and calls once more: a
    broken file in it shows in many ways, for example it cannot be loaded, or the processor seems to lack vector
    instructions. Raises NotCompiledError if the compiler fails then too; exceptions that do not come from the compiler
    pass unchanged."""
    folder = os.environ.get(VARIABLE, "")
    # Never the user's own.
    had_cache = folder.endswith(SUFFIX) and any(Path(folder).glob("*"))
    while True:
        try:
            compile_and_call()
            return
        except Exception as error:
            if not _is_compilers(error):
                raise
            if not had_cache:
                raise NotCompiledError(_line(error)) from error
        _empty_cache()
        had_cache = False


@contextmanager
def released_while_compiling(lock: DeviceLock) -> Iterator[None]:
    """Context manager: within the block, this thread releases the device lock whenever the compiler works on the host,
    which can take minutes. Otherwise a process that wants to measure would wait for the compiler, and all other
    processes for that one."""
    from torch._dynamo.callback import callback_handler

    problems: list[BaseException] = []
    with ExitStack() as compiling:

        def begin(_: Any) -> None:
            compiling.enter_context(lock.released())

        def end(_: Any) -> None:
            try:
                compiling.pop_all().close()
            except BaseException as problem:  # noqa: BLE001 - dynamo would count this compilation as going on for ever
                problems.append(problem)

        callback_handler.register_start_callback(begin)
        callback_handler.register_end_callback(end)
        try:
            with _benchmarks_hold(lock):
                yield
        finally:
            with suppress(ValueError):  # a reset of dynamo has removed them
                callback_handler.remove_start_callback(begin)
                callback_handler.remove_end_callback(end)
    if problems:
        raise problems[0]


@contextmanager
def _benchmarks_hold(lock: DeviceLock) -> Iterator[None]:
    """Context manager: within the block, inductor's own benchmarks on a GPU hold the lock shared, so that they do not
    run while another process measures."""
    from torch._inductor.runtime.benchmarking import benchmarker

    usual = benchmarker.benchmark_gpu

    def benchmark_gpu(*args: Any, **kwargs: Any) -> Any:
        with lock.shared():
            return usual(*args, **kwargs)

    benchmarker.benchmark_gpu = benchmark_gpu  # type: ignore[method-assign]
    try:
        yield
    finally:
        del benchmarker.benchmark_gpu


def _empty_cache() -> None:
    """Empties the cache folder. Other processes keep the files that they have loaded, and make missing ones again."""
    import torch
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    folder = Path(os.environ[VARIABLE])
    aside = folder.with_name(f"{folder.name}.damaged-{os.getpid()}")
    try:
        folder.rename(aside)
    except OSError:
        aside = folder
    shutil.rmtree(aside, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    clear_caches()
    _forget_instructions()


def _forget_instructions() -> None:
    """Makes inductor detect the processor's vector instructions again: it does so by loading files of the cache."""
    from torch._inductor import cpu_vec_isa

    classes = [one for one in vars(cpu_vec_isa).values() if isinstance(one, type)]
    for owner in (cpu_vec_isa, *classes):
        for value in vars(owner).values():
            if callable(clear := getattr(value, "cache_clear", None)):
                clear()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the exception and all exceptions that led to it, as Python chains them and as torch wraps them."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]


def _is_compilers(error: Exception) -> bool:
    if "CUDA error" in str(error) or any(type(one).__name__ == "OutOfMemoryError" for one in _causes(error)):
        return False
    return type(error).__module__.startswith(_COMPILERS)


def _line(error: Exception) -> str:
    inner = getattr(error, "inner_exception", None) or error
    lines = str(inner).strip().splitlines()
    return f"{type(inner).__name__}: {lines[0][:300]}" if lines else type(inner).__name__
