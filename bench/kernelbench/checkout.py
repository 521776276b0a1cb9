"""Calls KernelBench's own code, in the checkout at `root`. Everything here runs in a process for one problem."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: KernelBench's seed, and the numbers of trials that its scripts use.
SEED, CORRECT_TRIALS, TIMED_TRIALS = 42, 5, 100

#: What `kernelbench.utils` imports to ask language models and its evaluation does not use. It takes seconds to import
#: or is not installed.
_FOR_MODELS = ("dotenv", "litellm", "openai")
#: What its evaluation imports beside torch.
_NEEDED = ("numpy", "pydantic", "requests", "tqdm")

#: Appended to a problem: `get_inputs` makes the same distributions on the device, in other values. On the host the
#: largest inputs take many seconds, for each of nine times that KernelBench makes them.
_ON_DEVICE = """

_inputs_on_host = get_inputs


def get_inputs():
    with torch.device("{device}"):
        return _inputs_on_host()
"""


@dataclass(frozen=True)
class Asked:
    """One evaluation. `candidate` is the text with `ModelNew`, "" if there is none; `builds` is a folder for its
    extension; `inputs` is "host" or "device"."""

    root: Path
    problem: Path
    candidate: str
    builds: Path
    target: str
    inputs: str

    @property
    def reference(self) -> str:
        text = self.problem.read_text(encoding="utf-8")
        return text + _ON_DEVICE.format(device=self.target) if self.inputs == "device" else text


@dataclass(frozen=True)
class Pair:
    """Reference and candidate as KernelBench makes them, and the function that makes inputs."""

    model: Any
    new: Any
    get_inputs: Callable[[], list[Any]]


def lacking(root: Path) -> str:
    """Why KernelBench's code cannot be called, in one line; "" if it can."""
    if not (root / "src" / "kernelbench" / "eval.py").is_file():
        return f"{root} has no src/kernelbench/eval.py: give --root a checkout of KernelBench"
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"KernelBench's code needs {', '.join(missing)}: pip install {' '.join(missing)}" if missing else ""


def prepare(root: Path, environment: dict[str, str]) -> None:
    """Imports torch, its compiler and KernelBench, so that the evaluation does not wait for them."""
    os.environ.update(environment)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        package(root)
        importlib.import_module("torch._inductor.compile_fx")


def package(root: Path) -> Any:
    """KernelBench's module of evaluation; nothing is written into the checkout. Raises ModuleNotFoundError if something
    that it needs is not installed."""
    for name in _FOR_MODELS:
        sys.modules.setdefault(name, _Empty(name))
    source = str(root / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module("kernelbench.eval")
    finally:
        sys.dont_write_bytecode = kept


def build(asked: Asked) -> None:
    """Builds the extension of a text with inline kernels, as KernelBench's scripts do ahead of an evaluation."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        package(asked.root).build_compile_cache(asked.candidate, build_dir=str(asked.builds))


def official(asked: Asked) -> Row:
    """KernelBench's verdict and times in milliseconds. On the CPU only its correctness check runs, without times."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        row: Row = {"compiled": None, "correct": None, "runtime_ms": None}
        if asked.candidate:
            row = _verdict(asked)
        if asked.target == "cuda":
            row |= reference_times(asked)
    return finished(row, asked, printed.getvalue())


def _verdict(asked: Asked) -> Row:
    its = package(asked.root)
    if asked.target == "cuda":
        found = its.eval_kernel_against_ref(
            asked.reference,
            asked.candidate,
            seed_num=SEED,
            num_correct_trials=CORRECT_TRIALS,
            num_perf_trials=TIMED_TRIALS,
            measure_performance=True,
            build_dir=str(asked.builds),
            device=device(asked),
            backend="cuda",
            precision=its.get_torch_dtype_from_string("fp32"),
        )
    else:
        found = _correctness(asked)
    if found is None:
        return {"compiled": False, "correct": False, "runtime_ms": None, "message": "KernelBench: a lock of the build"}
    # Tracebacks have the paths of this machine.
    kept = {name: value for name, value in found.metadata.items() if not name.endswith("_traceback")}
    metadata = {name: str(value)[:500] for name, value in kept.items()}
    return {
        "compiled": found.compiled,
        "correct": found.correctness,
        "runtime_ms": found.runtime if found.runtime > 0 else None,
        "runtime_stats": found.runtime_stats,
        "reference_ms_with_gradients": found.ref_runtime if found.ref_runtime > 0 else None,
        "excessive_speedup": "excessive_speedup" in metadata,
        "message": "" if found.correctness else _message(metadata),
        "metadata": metadata,
    }


def _message(metadata: dict[str, str]) -> str:
    told = ("compilation_error", "runtime_error", "correctness_issue", "max_difference", "error_during_performance")
    return "; ".join(f"{name}: {metadata[name]}" for name in told if name in metadata)


def _correctness(asked: Asked) -> Any:
    """KernelBench's correctness check alone, which also works on the CPU if nothing there waits for a GPU."""
    import torch

    its = package(asked.root)
    torch.cuda.synchronize = lambda *_args, **_named: None
    try:
        pair = loaded(asked)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is KernelBench's failed compilation
        return its.KernelExecResult(compiled=False, metadata={"compilation_error": f"{type(error).__name__}: {error}"})
    return its.run_and_check_correctness(
        pair.model,
        pair.new,
        pair.get_inputs,
        metadata={},
        num_correct_trials=CORRECT_TRIALS,
        seed=SEED,
        device=device(asked),
        precision=torch.float32,
    )


def loaded(asked: Asked) -> Pair:
    """Reference and candidate, made with one seed by KernelBench's functions."""
    import torch

    its, where = package(asked.root), device(asked)
    context: dict[str, Any] = {}
    reference, get_init_inputs, get_inputs = its.load_original_model_and_inputs(asked.reference, context)
    its.set_seed(SEED)
    given = get_init_inputs()
    candidate = its.load_custom_model(asked.candidate, context, str(asked.builds))

    def made(one: Any) -> Any:
        its.set_seed(SEED)
        return one(*given).to(device=where, dtype=torch.float32)

    with torch.no_grad():
        return Pair(made(reference), made(candidate), get_inputs)


def reference_times(asked: Asked) -> Row:
    """The reference in eager mode and under torch.compile, by KernelBench's timing."""
    timing = importlib.import_module("kernelbench.timing")
    row: Row = {}
    for name, compiled in (("eager_ms", False), ("compile_ms", True)):
        found = timing.measure_ref_program_time(
            asked.problem.stem,
            asked.reference,
            num_trials=TIMED_TRIALS,
            use_torch_compile=compiled,
            device=device(asked),
            precision="fp32",
        )
        row[name] = found["mean"] if found else None
    return row


def finished(row: Row, asked: Asked, printed: str) -> Row:
    """The row with the speed-ups of a candidate that is correct and was timed. The end of what KernelBench printed is
    kept if a time of the reference is missing, since only that text says why."""
    ours = row["runtime_ms"] if row["correct"] else None
    times = {"speedup_vs_eager": row.get("eager_ms"), "speedup_vs_compile": row.get("compile_ms")}
    told = {"printed": printed[-1000:]} if asked.target == "cuda" and not all(times.values()) else {}
    return row | {name: time / ours if ours and time else None for name, time in times.items()} | told


def device(asked: Asked) -> Any:
    import torch

    return torch.device("cuda", 0) if asked.target == "cuda" else torch.device("cpu")


class _Empty(types.ModuleType):
    """A module that has every name, as a function that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_named: None
