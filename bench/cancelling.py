"""How long a cancel takes: while a candidate compiles, while its kernel runs endlessly, while a model writes."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec
import psutil

from bench.figures import Figure, Settings
from bench.subjects import norm, norm_environment
from kernel_assistant.config import resolve
from kernel_assistant.errors import Cancelled
from kernel_assistant.records import Candidate, Tier
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.endpoint import close, local_engine
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.registry import SHIPPED, SHIPPED_NAME, find

Value = TypeVar("Value")
AIM: tuple[Any, float] = ("≤", 1.0)
ENTRY = {"cpu": "  #pragma omp parallel for\n", "cuda": "  __shared__ float part[8];\n"}
#: Reads memory on CUDA, because a volatile variable would be kept in a register and the loop removed.
ENDLESS = {
    "cpu": "  for (volatile int go = 1; go;) {}\n",
    "cuda": "  while (*(const volatile float*)a.x != 12345.678f) {}\n",
}
#: Ten million statements, which take any compiler many seconds.
LONG = "".join(f"#define M{i} {' '.join([f'M{i - 1}' if i else 'n++;'] * 10)}\n" for i in range(7))
COMPILERS = ("cc1plus", "cicc", "ptxas")
#: The script of the Python process that compiles with NVRTC.
NVRTC = "nvrtc_build.py"


def measure(settings: Settings) -> list[Figure]:
    target = settings.target
    compiling = _changed(target, "  volatile int n = 0; M6\n", LONG)
    endless = _changed(target, ENDLESS[target])
    repeats = settings.count(5, 1)
    figures = []
    for name, candidate, busy in (("compile", compiling, _compiles), ("kernel that never ends", endless, _spins)):
        seconds = [_evaluation(target, candidate, busy) for _ in range(repeats)]
        how = f"median of {repeats}, worst {max(seconds):.2f} s"
        figures.append(Figure(f"cancel of a {name}", median(seconds), "s", how, AIM))
    if SHIPPED.is_file():
        seconds = [_reply(number) for number in range(repeats)]
        close()
        how = f"shipped model, worst {max(seconds):.2f} s"
        figures.append(Figure("cancel of a reply", median(seconds), "s", how, AIM))
    return figures


def _changed(target: str, entry: str, head: str = "") -> Candidate:
    """The norm's candidate with `entry` at the beginning of its kernel and `head` before the source."""
    candidate = norm(target)
    ((name, source),) = candidate.sources.items()
    changed = head + source.replace(ENTRY[target], entry + ENTRY[target], 1)
    return msgspec.structs.replace(candidate, sources={name: changed})


def _evaluation(target: str, candidate: Candidate, busy: Callable[[], bool]) -> float:
    """Seconds from the cancel until the caller has its answer and all started processes have ended."""
    with norm_environment(target) as environment, ThreadPoolExecutor(1) as pool:
        environment.baseline(compiled=False)
        before = set(_children())
        coming = pool.submit(environment.evaluate, [candidate], Tier.quick)
        while not busy():
            if coming.done():
                raise RuntimeError(f"it ended by itself: {coming.result()[0].message}")
            time.sleep(0.05)
        started = [child for child in _children() if child not in before]
        began = time.perf_counter()
        environment.cancel.set()
        if not isinstance(coming.exception(), Cancelled):
            raise RuntimeError("the evaluation was not cancelled")
        while not all(map(_has_ended, started)):
            time.sleep(0.005)
        return time.perf_counter() - began


def _reply(seed: int) -> float:
    """Seconds from the cancel until the caller has its answer."""
    with tempfile.TemporaryDirectory(prefix="ka-bench-") as folder:
        settings = resolve(Path(folder))[0]
        model = EmbeddedModel(local_engine(find(SHIPPED_NAME, settings), settings))
        cancel = threading.Event()
        at: list[float] = []

        def stop() -> None:
            at.append(time.perf_counter())
            cancel.set()

        asked = [Message(role="user", content="n0 = relu(x0)")]
        model.complete(asked, Sampling(max_tokens=1))
        threading.Timer(0.05, stop).start()
        try:
            while True:
                # A reply may end before the cancel; then another one starts.
                model.complete(asked, Sampling(max_tokens=2000, seed=seed), cancelled=cancel.is_set)
        except Cancelled:
            return time.perf_counter() - at[0]


def _has_ended(child: psutil.Process) -> bool:
    """Whether the process has ended; a zombie has."""
    return not child.is_running() or _of(child, psutil.Process.status, psutil.STATUS_ZOMBIE) == psutil.STATUS_ZOMBIE


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _compiles() -> bool:
    return any(_of(child, psutil.Process.name, "") in COMPILERS or NVRTC in _command(child) for child in _children())


def _spins() -> bool:
    runners = [child for child in _children() if "runner" in _command(child)]
    return any(_of(one, lambda it: float(sum(it.cpu_times()[:2])), 0.0) > 0.5 for one in runners)


def _command(child: psutil.Process) -> str:
    return " ".join(_of(child, psutil.Process.cmdline, []))


def _of(child: psutil.Process, what: Callable[[psutil.Process], Value], ended: Value) -> Value:
    """What a process says of itself, or `ended` where it has ended."""
    try:
        return what(child)
    except psutil.NoSuchProcess:
        return ended
