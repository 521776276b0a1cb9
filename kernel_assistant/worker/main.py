"""The worker's main loop: frames in, frames out. Runs the user's module; never runs generated code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, NoReturn

from .frames import PROTOCOL_VERSION, read_frame, write_frame
from .process import forks, idle, stages
from .process.leaving import leave

Params = dict[str, Any]
LEAST_TORCH = (2, 9)


class Worker:
    """State of one worker: at most one open task and its judge. Each public method with `params` and `blobs` answers
    one request of the protocol (docs/architecture.md): it gets the request's parameters and binary attachments, and
    returns the result."""

    def __init__(self) -> None:
        self._task: Any = None
        self._judge: Any = None
        self._free: Any = None
        self._applied: Any = None
        self._module: Any = None
        self._imported = False
        self._runner: Any = None
        self._keeps_runner = False
        self.tell_stage: Callable[[str], None] = lambda stage: None

    def hello(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Imports torch and returns the versions of the protocol, Python, torch and CUDA, and facts about this process.
        Raises TaskError torch_missing or torch_too_old."""
        from .measuring.compiled import use_own_cache
        from .process import pinning
        from .process.worker_errors import TaskError
        from .runner.libraries import library_folders

        try:
            pinning.import_torch()
            import torch
        except ImportError as error:
            raise TaskError(
                "torch_missing",
                f"{sys.executable} has no torch ({error})",
                "install torch there, or name another interpreter with --python",
            ) from error
        use_own_cache()
        # Exclude torch's own objects from garbage collection.
        gc.freeze()
        version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        if version < LEAST_TORCH:
            raise TaskError(
                "torch_too_old",
                f"torch {torch.__version__} is older than 2.9",
                "upgrade torch, or name another interpreter with --python",
            )
        return {
            "protocol": PROTOCOL_VERSION,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "threads": torch.get_num_threads(),
            "binding": pinning.environment(),
            "library_folders": library_folders(),
            "pid": os.getpid(),
        }

    def open_task(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Loads the module and its inputs, exports the graph, and creates a judge. Closes the previous task. Raises
        TaskError for whatever is wrong with the task.

        `params` has `task` (a KernelTask as builtins), `runner` (the runner's `argv`, `env` and `device`) and
        `ceilings` (fields of a Roofline). Optional are `avoid` (names of inputs that broke the device), `lock` (the
        device lock's file) and the flags `freeform`, `quick_only`, `throughput` and `nominal`; `blobs` is not used.
        Returns the OpGraph as builtins (`graph`), and counts, sizes and other properties of the module (`facts`)."""
        from .device_lock import DeviceLock
        from .freeform.judge import FreeformJudge
        from .judge import Judge
        from .measuring.roofline import Roofline
        from .opening.open_task import open_task
        from .process.worker_errors import TaskError
        from .running.runner_client import RunnerClient, RunnerCommand

        self.close_task({}, ())
        task, runner = params["task"], params["runner"]
        device = _device(task["target"], runner["device"])
        command = RunnerCommand(tuple(runner["argv"]), runner["env"], task["target"], runner["device"])
        # A runner starts while the task is opened, unless one is left from the previous task.
        spare, self._runner = self._runner, None
        if spare is not None and (spare.command != command or spare.process.poll() is not None):
            spare.close()
            spare = None
        spare = spare or RunnerClient(command)
        try:
            with stages.told_to(self.tell_stage):
                self._task = open_task(task, device, avoid=params.get("avoid", ()))
            if self._task.held and params.get("freeform"):
                raise TaskError(
                    "mutates_inputs",
                    f"{task['class_name']}.forward changes its own {next(iter(self._task.held.values))}, which a "
                    "candidate file has no place to say",
                    "evaluate it in a mode that changes nothing (eval)",
                )
        except BaseException:
            spare.close()
            raise
        kind = FreeformJudge if params.get("freeform") else Judge
        ceilings, quick_only = Roofline(**params["ceilings"]), bool(params.get("quick_only"))
        throughput = bool(params.get("throughput"))
        lock = DeviceLock(params.get("lock"), self._task.settle)
        how = {"quick_only": quick_only, "throughput": throughput, "nominal": bool(params.get("nominal"))}
        self._judge = kind(self._task, task["numerics"], command, ceilings, lock=lock, spare=spare, **how)
        self._keeps_runner = throughput and task["target"] == "cuda"
        return {"graph": self._task.graph, "facts": self._task.facts}

    def prepare(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Fills the memory that timing needs, and compiles the module if `which` is "compile", so that a later
        `baseline` or `profile` only measures."""
        self._opened().prepare(params["which"])
        return {}

    def baseline(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Times the reference in the mode `which` ("eager" or "compile"). Returns `ms`, or `failure`."""
        return dict(self._opened().baseline(params["which"]))

    def verify(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Compares a candidate's outputs with the reference's. `params` has `plan`, `key` (identifies the candidate)
        and `tier`; the first blob is the binary."""
        return dict(self._opened().verify(params["plan"], blobs[0], params["key"], params["tier"]))

    def profile(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Times a verified candidate. `params` has `plan`, `key` (identifies the candidate) and `tier`; the first blob
        is the binary. The result also has `waited`, the judge's total seconds of waiting for the device."""
        from .measuring.tiers.full_tier import FullComparison

        judge = self._opened()
        measurement = tuple(params.get("look", (1, 1)))
        full = FullComparison(**params.get("full", {}))
        return {
            **judge.profile(params["plan"], blobs[0], params["key"], params["tier"], measurement, full),
            "waited": judge.waited,
        }

    def time_applied(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Times the user's class with and without its applied kernels."""
        from .applied_checks.applied_timing import time_applied

        return time_applied(params, self._module)

    def compile_ahead(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Runs the module under torch.compile once, only to fill inductor's cache folder. Closes the previous task."""
        from .opening.compile_ahead import compile_ahead

        self.close_task({}, ())
        compile_ahead(params["task"], _device(params["task"]["target"], params["device"]))
        return {}

    def import_file(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Imports the file of a task, and only that: the request `time_applied` that follows then need not import
        it."""
        from .user_module.loading import load_module

        self._module = load_module(params["task"])
        return {}

    def pick_binary(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Returns the file name of the binary that the loader of an applied package picks on this machine, or the
        problem if none fits."""
        from .applied_checks.applied_check import pick_binary

        return pick_binary(params)

    def open_applied(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Opens a class with applied kernels, without the kernels. Closes the previous task or class; loads no
        generated code."""
        from .applied_checks.applied_check import AppliedModule

        self.close_task({}, ())
        self._applied = AppliedModule(params)
        return {}

    def check_applied(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Calls the class of `open_applied` with its kernels. Returns whether they ran, whether the values equal the
        original's, and times if `timing` is set."""
        return dict(self._applied.check(params["timing"]))

    def free_wins(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Returns, in `offered`, the changes without a kernel (such as TF32) that may make the open task faster: name,
        line of code, and whether it takes long to try."""
        from .free_wins.free_wins import FreeWins

        opened = self._opened()
        self._free = self._free or FreeWins(opened.task, opened.profiler, opened.numerics)
        return {"offered": self._free.offered()}

    def free_win(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Applies the changes in `names` together; returns their errors and times. `free_wins` has to come first."""
        return dict(self._free.measure(params["names"], params["seconds"]))

    def calibrate(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Measures the limits of a device: memory bandwidths, on a CPU also the rate of float32 products and the usable
        cache."""
        from .measuring.calibrate import calibrate
        from .process.gpu_share import lift_share

        target, number = params["target"], params["device"]
        # Its buffers have a fixed size and are freed at once: a worker that shares the GPU keeps nothing.
        lift_share(_device(target, number))
        rates = calibrate(target, number, params["cache_bytes"])
        if target == "cuda":
            sys.modules["torch"].cuda.empty_cache()
        return rates

    def profile_lines(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Measures the time of each line of the class's own methods; returns `lines`, `ms` and more. Closes the
        previous task."""
        from .lines.line_profile import profile_lines
        from .measuring.roofline import Roofline

        self.close_task({}, ())
        task = params["task"]
        device = _device(task["target"], params["device"])
        with stages.told_to(self.tell_stage):
            return profile_lines(task, device, params["seconds"], Roofline(**params["ceilings"]))

    def try_inputs(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Calls a class on the CPU, once with each of several drafts of its inputs, until a call succeeds. A draft is a
        guessed declaration of the inputs; `params["tasks"]` are the task with one draft each. Closes the previous task.

        Returns `{"runs", "problem"}`: the index of the first task that runs and ""; if none runs, -1 and the error of
        the first task."""
        from .opening.try_inputs import try_inputs

        self.close_task({}, ())
        return try_inputs(params["tasks"], "cpu")

    def close_task(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Ends runners and frees the memory of the open task. The process keeps its imports for the next task."""
        opened = self._task is not None
        self._close()
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            # Compiled graphs keep the task's tensors alive, and count towards the recompile limit of the next task.
            dynamo.reset()
        torch = sys.modules.get("torch")
        if torch is not None:
            gc.collect()
            if opened and not self._imported:
                # The first task has imported the tracer: scanning its objects after each task would take longer than
                # the rest.
                gc.freeze()
                self._imported = True
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        return {}

    def _close(self) -> None:
        if self._free is not None:
            self._free.close()
        if self._judge is not None and self._keeps_runner:
            self._runner = self._judge.release()
        elif self._judge is not None:
            self._judge.close()
        self._task = self._judge = self._free = self._applied = self._module = None

    def give_back(self, params: Params, blobs: tuple[bytes, ...]) -> Params:
        """Frees memory that is not needed until the next task, as an idle worker does by itself."""
        idle.give_back()
        return {}

    def end(self) -> None:
        """Closes the task and ends the runners after the last request. Memory is not freed: the process ends."""
        self._close()
        if self._runner is not None:
            self._runner.close()

    @property
    def is_open(self) -> bool:
        """Whether a task or a class is open. Then an idle worker must not free its caches, because compiled code would
        be lost."""
        return any(one is not None for one in (self._task, self._applied, self._module))

    def _opened(self) -> Any:
        if self._judge is None:
            raise RuntimeError("no task is open")
        return self._judge


def answer(worker: Worker, message: Params, blobs: tuple[bytes, ...]) -> Params:
    """Carries out one request and returns its answer without the id: `{"result": …}`, or `{"error": …}` with kind,
    message, next_step and detail. Raises nothing but what is no Exception."""
    from .process.worker_errors import TaskError, broken_device

    methods: dict[str, Callable[[Params, tuple[bytes, ...]], Params]] = {
        name: getattr(worker, name)
        for name in (
            "hello",
            "open_task",
            "prepare",
            "baseline",
            "verify",
            "profile",
            "time_applied",
            "compile_ahead",
            "import_file",
            "pick_binary",
            "open_applied",
            "check_applied",
            "free_wins",
            "free_win",
            "calibrate",
            "profile_lines",
            "try_inputs",
            "close_task",
            "give_back",
        )
    }
    method = methods.get(message.get("method", ""))
    if method is None:
        return _error("unknown_method", f"unknown method {message.get('method')!r}")
    try:
        return {"result": method(message.get("params", {}), blobs)}
    except TaskError as error:
        return _error(error.kind, error.message, error.next_step, error.detail)
    except Exception as error:  # noqa: BLE001 - the boundary of the process: named, with its traceback, never swallowed
        lost = broken_device(error)
        if lost is not None:
            answered = _error("device_lost", lost.message, "", traceback.format_exc())
            answered["error"]["inputs"] = lost.inputs
            return answered
        return _error(_kind(error), f"{type(error).__name__}: {_first_line(error)}", "", traceback.format_exc())


def _device(target: str, number: int) -> str:
    """Returns the device's name in PyTorch, such as "cuda:0". On a GPU that workers share, this also limits the process
    to its share of the memory from now on."""
    from .process.gpu_share import keep_to_share

    device = f"cuda:{number}" if target == "cuda" else "cpu"
    keep_to_share(device)
    return device


def _kind(error: Exception) -> str:
    name = type(error).__name__
    if name == "OutOfMemoryError" or isinstance(error, MemoryError):
        return "out_of_memory"
    if name == "RunnerStartError":
        return "runner_failed"
    if name in ("AcceleratorError", "CudaError") or "CUDA error" in str(error):
        return "device_lost"
    return "internal"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else "no message"


def _error(kind: str, message: str, next_step: str = "", detail: str = "") -> Params:
    return {"error": {"kind": kind, "message": message, "next_step": next_step, "detail": detail}}


def _tell_stage(sink: BinaryIO, request: Any, stage: str) -> None:
    write_frame(sink, {"id": request, "event": {"stage": stage}})


def serve(source: BinaryIO, sink: BinaryIO) -> int:
    """Answers requests from `source` on `sink` until the stream ends or a request `shutdown` comes. Returns the exit
    status, 0."""
    worker = Worker()
    while True:
        if not worker.is_open:
            idle.wait(source)
        frame = read_frame(source)
        if frame is None or frame[0].get("method") == "shutdown":
            worker.end()
            return 0
        message, blobs = frame
        worker.tell_stage = partial(_tell_stage, sink, message.get("id"))
        write_frame(sink, {"id": message.get("id"), **answer(worker, message, blobs)})


def main() -> NoReturn:
    """Redirects the user's prints from stdout, which carries the protocol, to stderr; serves; and ends the process."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    forks.watch(source.fileno(), sink.fileno())
    leave(serve(source, sink))
