"""The filter of candidates (sources of proposed tasks). It runs them in a probe, a sandboxed process that is restarted
when it dies or does not answer."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

from kernel_assistant.errors import DeviceError
from kernel_assistant.sandbox.contract import GIB, Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.run import kill_tree
from kernel_assistant_training.tasks.exchange import Exchange
from kernel_assistant_training.tasks.records import FilterResult, Reason, Rules, TaskText

#: Accepted times of eager PyTorch on a GPU, in milliseconds, by recipe.
WINDOWS = {"base": (1.0, 100.0), "small": (0.05, 2.0), "smoke": (0.05, 2.0)}
CPU_SCALE = 10.0
START_SECONDS = 180.0
#: Candidates that a probe judges before it is replaced: compilers keep memory.
LIFE = 1000
#: Environment variables that the probe gets: which GPUs there are, and where CUDA is.
PASSED = ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "LD_LIBRARY_PATH")
#: Texts in error messages after which a process can no longer use its GPU.
LOST = ("AcceleratorError", "CUDA error")
#: CPU seconds of a probe. Practically unlimited, because the limit applies to a candidate's time.
CPU_SECONDS = 1 << 24


def window(recipe: str, target: str) -> tuple[float, float]:
    low, high = WINDOWS[recipe]
    return (low, high) if target == "cuda" else (CPU_SCALE * low, CPU_SCALE * high)


class Filter:
    """Judges candidates with one probe, a sandboxed process. A context manager, for one thread. `taken` returns whether
    a task with the given key was kept already. `timing` is a lock that is held during a measurement; all probes of a
    device share it.
    """

    def __init__(
        self,
        rules: Rules,
        sandbox: Sandbox,
        taken: Callable[[str], bool],
        log: Path,
        timing: AbstractContextManager[object] | None = None,
    ) -> None:
        self._rules, self._sandbox, self._taken, self._log = rules, sandbox, taken, log
        self._timing = timing or nullcontext()
        self._judged = 0
        self._folder = Path(tempfile.mkdtemp(prefix="kernel-assistant-probe-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, task: TaskText) -> FilterResult:
        """Returns the result for a candidate, whatever the candidate does. Raises DeviceError if no probe can be
        started."""
        if self._process is None:
            self._start()
        began = time.monotonic()
        try:
            fields = Exchange(task, self._rules, self, self._timing, self._taken).run()
            verdict = _verdict(task, fields, time.monotonic() - began)
        except TimeoutError:
            message = f"longer than {self._rules.seconds:g} s"
            verdict = self._lost(task, Reason.late, message, time.monotonic() - began)
        except (BrokenPipeError, EOFError):
            verdict = self._lost(task, Reason.crashed, self._death(), time.monotonic() - began)
        except (ValueError, KeyError, TypeError):
            # The probe did not send this message, so the candidate controls the process.
            message = "the candidate speaks for the probe"
            verdict = self._lost(task, Reason.crashed, message, time.monotonic() - began)
        self._judged += 1
        if self._judged >= LIFE or verdict.reason is Reason.memory or _lost_device(verdict.message):
            self._end()
        return verdict

    def _lost(self, task: TaskText, reason: Reason, message: str, seconds: float) -> FilterResult:
        self._end()
        return _verdict(task, {"reason": reason, "message": message}, seconds)

    def _start(self) -> None:
        rules = self._rules
        paths = tuple(dict.fromkeys(one for one in (*sys.path, sys.prefix, sys.base_prefix) if Path(one).exists()))
        env = {
            "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "inductor"),
            "USER": "nobody",  # torch 2.11 asks for the user's name, and a sandbox has no list of users
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": str(rules.threads),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            **{name: os.environ[name] for name in PASSED if name in os.environ},
        }
        module = "kernel_assistant_training.tasks.probe"
        bounds = (str(rules.threads), str(rules.memory), str(rules.share))
        command = self._sandbox.command(
            SandboxSpec(
                argv=(sys.executable, "-m", module, rules.device, *bounds),
                workspace=str(self._folder),
                read_only=tuple(one for one in paths if one.startswith("/") and one != "/"),
                gpu=rules.device != "cpu",
                env=env,
                allow_fork=True,
                limits=SandboxLimits(memory_bytes=rules.memory, cpu_seconds=CPU_SECONDS, tmp_bytes=4 * GIB),
            )
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command.argv,
                env=command.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._rest = b""
        self._judged = 0
        try:
            self.hear(time.monotonic() + START_SECONDS)
        except (TimeoutError, EOFError) as error:
            why = self._death()
            self._end()
            raise DeviceError(f"the probe did not start: {why}", f"see {self._log}") from error

    def say(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, until: float) -> dict[str, Any]:
        """Returns the next message. Raises TimeoutError if none arrives before `until` (of `time.monotonic`), EOFError
        if the probe has ended, and ValueError for a line that is not JSON."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            data = os.read(stream, 1 << 20)
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _death(self) -> str:
        assert self._process is not None
        try:
            return f"exit code {self._process.wait(5)}"
        except subprocess.TimeoutExpired:
            return "it closed its pipe"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_tree(process)


def _lost_device(message: str) -> bool:
    """Whether an error message says that the process has lost its GPU. After a failed assertion in a kernel, every
    later call in the same process fails."""
    return any(mark in message for mark in LOST)


def _verdict(task: TaskText, fields: dict[str, Any], seconds: float) -> FilterResult:
    graph = fields["graph"] if fields["reason"] is Reason.passed else None
    about = {"text": task.text, **fields, "graph": graph, "seconds": round(seconds, 3)}
    return FilterResult(
        number=task.number, source=task.source, operators=task.operators, attribution=task.attribution, **about
    )
