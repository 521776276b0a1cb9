"""The terminal interface as a user experiences it: time from a key to its effect on the screen, idle, during a job and
after an hour of events; and its memory and processor use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.figures import Figure, Settings, p95
from bench.tui_log import write_long_job
from bench.tui_screen import Screen
from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client

_ROOT = Path(__file__).resolve().parent.parent
_EXAMPLE = _ROOT / "examples" / "gated_rms_norm.py"
_WIDTH, _HEIGHT = 120, 40
_EVENTS = 10_000
_BLOCKS = 30
#: Starts with three digits, so that no line number is the prefix of another.
_FIRST_LINE = 101
_BLOCK = """class Block{number:02}(nn.Module):
    def forward(self, x):
        return x.relu() + {number}


"""
_BLOCK_LINES = 5
_DOWN, _UP, _HOME, _END, _PAGE_DOWN, _ENTER = b"\x1b[B", b"\x1b[A", b"\x1b[H", b"\x1b[F", b"\x1b[6~", b"\r"
#: Seconds between two keys of a fast typist.
_BETWEEN_S = 0.12
_AIM_MS = 50.0


def measure(settings: Settings) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="ka-tui-") as name:
        home, project = Path(name, "home"), Path(name, "project")
        environment = _environment(home, settings)
        _write_project(project)
        here = resolve(project, environ=environment)[0]
        write_long_job(here, project / "a.py", settings.count(_EVENTS, _EVENTS // 10))
        command = [sys.executable, "-m", "kernel_assistant"]
        screen = Screen([*command, "tui", str(project)], environment, project, _WIDTH, _HEIGHT)
        try:
            figures = _start(screen)
            figures += _at_rest(screen, settings)
            figures += _while_a_job_runs(screen, Client(here), settings)
            figures += _after_an_hour(screen, settings)
            loaded = screen.mapped("torch", "numpy")
            figures.append(Figure("libraries of torch or numpy in it", len(loaded), "", "at the end", ("≤", 0)))
            return figures
        finally:
            screen.close()
            subprocess.run([*command, "host", "stop"], env=environment, capture_output=True, check=False, timeout=60)


def _environment(home: Path, settings: Settings) -> dict[str, str]:
    paths = os.pathsep.join(str(_ROOT / name) for name in (".", "lsp", "tui", "training"))
    asked = {"TARGET": settings.target, "PYTHON": sys.executable, "POLICY": "auto", "FREE_WINS": "false"}
    asked |= {"HOME": str(home), "BUDGET": f"{settings.count(40, 8)}s"}
    kept = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "LC_ALL")}
    ours = {f"KERNEL_ASSISTANT_{name}": text for name, text in asked.items()}
    return {**kept, **ours, "PYTHONPATH": paths, "LANG": "C.UTF-8"}


def _write_project(project: Path) -> None:
    """Writes a project with one class that can be optimized, first in the list, and thirty for moving about."""
    project.mkdir()
    shutil.copy(_EXAMPLE, project / "a.py")
    head = "from torch import nn\n" + "\n" * (_FIRST_LINE - 2)
    (project / "b.py").write_text(head + "".join(_BLOCK.format(number=number) for number in range(_BLOCKS)))


def _start(screen: Screen) -> list[Figure]:
    taken = screen.until(b"Block05") - screen.began
    screen.quiet()
    return [
        Figure("start to the list of classes", taken, "s", "one process, its pages in memory"),
        Figure("resident memory at the start", screen.memory(), "MB"),
    ]


def _at_rest(screen: Screen, settings: Settings) -> list[Figure]:
    idle = screen.processor(settings.count(30, 5))
    before = screen.process.cpu_times()
    keys = [_move(screen, 1 + number % _BLOCKS) for number in range(settings.count(100, 20))]
    after = screen.process.cpu_times()
    cost = (after.user + after.system - before.user - before.system) / len(keys)
    return [
        Figure("processor at rest", idle, "%", "of one core, over 30 s; the devices are read each second", ("≤", 2)),
        Figure("processor time of a key", cost * 1e3, "ms", "moving down the list, everything it causes"),
        Figure("key to paint at rest, p95", p95(keys), "ms", f"{len(keys)} keys", ("≤", _AIM_MS)),
    ]


def _while_a_job_runs(screen: Screen, client: Client, settings: Settings) -> list[Figure]:
    screen.type(b"1" + _HOME)
    screen.quiet()
    screen.press(b"s", b"started on")
    screen.type(b"1")
    host = psutil.Process((client.status() or {})["pid"])
    # Seconds from a key to its paint, by what the host's processes were doing when it was pressed.
    keys: dict[str, list[float]] = {"": [], "compiling": [], "evaluating": [], "writing": []}
    at = 0
    while any(row.state.active for row in client.jobs()):
        at = at + 1 if at < _BLOCKS else 1
        # The list begins with the class that runs; from the last class one key goes back to it.
        busy = _busy(host)
        taken = _move(screen, at)
        for name in ("", *busy):
            keys[name].append(taken)
        time.sleep(_BETWEEN_S)
    screen.quiet()
    figures = [_figure("key to paint while a job runs, p95", keys[""])]
    for name, what in (("compiling", "a compiler"), ("evaluating", "a candidate"), ("writing", "the model")):
        if times := keys[name]:
            figures.append(_figure(f"the same while {what} runs, p95", times))
    return figures


def _after_an_hour(screen: Screen, settings: Settings) -> list[Figure]:
    screen.type(b"h")
    screen.until(b"of 2")
    screen.quiet()
    for key in (_ENTER, _END):
        screen.type(key)
        screen.quiet()
    count = settings.count(_EVENTS, _EVENTS // 10)
    # Waits for the job's last candidate, because the other job's result is painted as well.
    opening = screen.press(_ENTER, f"turn {count - 5}".encode(), 120)
    screen.quiet()
    screen.type(b"2")
    screen.quiet()
    screen.press(_HOME, b"queued for")
    times = []
    for _ in range(settings.count(100, 20)):
        times.append(screen.press(_PAGE_DOWN, b"turn "))
        time.sleep(_BETWEEN_S / 2)
    idle = screen.processor(settings.count(10, 2))
    return [
        Figure("opening a job of an hour", opening, "s", f"{count} events, from the key in history to its last line"),
        Figure("a page of its transcript, p95", p95(times), "ms", f"{len(times)} pages", ("≤", _AIM_MS)),
        Figure("processor at rest beside it", idle, "%", "of one core, over 10 s", ("≤", 2)),
        Figure("resident memory with it", screen.memory(), "MB", f"{count} events and a job that ran", ("≤", 150)),
    ]


def _figure(name: str, times: list[float]) -> Figure:
    how = f"{len(times)} keys, at most {max(times) * 1e3:.0f} ms"
    return Figure(name, p95(times), "ms", how, ("≤", _AIM_MS))


def _move(screen: Screen, position: int) -> float:
    """Seconds from the key, pressed at the class before, until the line below the list shows where the class at
    `position` is."""
    if position > 1:
        return screen.press(_DOWN, _line(position))
    screen.type(_END)
    time.sleep(_BETWEEN_S)
    screen.press(_HOME, b"a.py:")
    return screen.press(_DOWN, _line(1))


def _line(position: int) -> bytes:
    return f"b.py:{_FIRST_LINE + (position - 1) * _BLOCK_LINES}".encode()


def _busy(host: psutil.Process) -> set[str]:
    """What the host's processes do for the job: compilers, judged candidates, the model's process if it is busy."""
    kinds = set()
    for child in host.children(recursive=True):
        try:
            name, command = child.name(), " ".join(child.cmdline())
            if name in ("cc1plus", "cicc", "ptxas", "ld", "as"):
                kinds.add("compiling")
            elif "runner" in command:
                kinds.add("evaluating")
            elif "llama" in command and child.cpu_percent(0.02) > 20:
                kinds.add("writing")
        except psutil.NoSuchProcess:
            continue
    return kinds
