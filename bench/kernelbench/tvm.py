"""Apache TVM on a module of PyTorch: torch.export, Relax, MetaSchedule for some seconds, and what it compiles.

TVM is no dependency of this project: `PACKAGES` are installed into a folder on PYTHONPATH. Everything but `lacking`
runs in a process of its own.

MetaSchedule has no limit in seconds: it runs in a thread until its process is ended, and its database keeps what was
measured. In so few seconds its defaults measure nothing, so each round is shorter than by default (`STRATEGY`), and
candidates are built in this process, since TVM's own builder starts processes for each round.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness import Row

#: With 0.1.15 of apache-tvm-ffi, MetaSchedule of apache-tvm 0.27.0.post1 ends with a segmentation fault.
PACKAGES = "apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0 ml_dtypes xgboost scipy cloudpickle psutil"
#: The population of the evolutionary search (512), those of it that were not measured (50), and its iterations (4).
STRATEGY = {"population_size": 64, "init_min_unmeasured": 16, "genetic_num_iters": 2}
#: Candidates that are measured in one round (64).
ROUND = 4
#: How a candidate is timed (3, 1 and 100 ms), and the seconds after which it is ended (30).
EVALUATOR, MOST_RUN_SECONDS = {"number": 1, "repeat": 1, "min_repeat_ms": 20}, 3
_DATABASE = ("database_workload.json", "database_tuning_record.json")


def lacking() -> str:
    """Why TVM cannot be used, in one line; "" if it can."""
    if importlib.util.find_spec("tvm") is not None:
        return ""
    return f"TVM is missing: pip install --no-deps --target FOLDER {PACKAGES}, then PYTHONPATH=FOLDER"


def load() -> Any:
    """TVM, with everything imported that tuning needs. Raises ImportError."""
    importlib.import_module("torch")
    tvm = importlib.import_module("tvm")
    # Its intrinsics ask for the module of each frame of each call, which takes a minute where torch is imported.
    kept, inspect.getmodule = inspect.getmodule, lambda *_: None
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.getmodule = kept
    for name in ("relax.frontend.torch", "s_tir.meta_schedule"):
        importlib.import_module(f"tvm.{name}")
    return tvm


def target_of(tvm: Any, name: str) -> Any:
    """TVM's target for this machine's processor ("cpu") or its first GPU ("cuda")."""
    if name == "cuda":
        return tvm.target.Target.from_device(tvm.cuda())
    processor = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": os.cpu_count() or 1})


def imported(tvm: Any, exported: Any) -> Any:
    """The module in Relax, its parameters as constants. Raises whatever TVM raises for an operator it does not know."""
    return tvm.relax.frontend.torch.from_exported_program(exported)


def tune(tvm: Any, module: Any, target: Any, folder: Path, seconds: float) -> Row:
    """Tunes for `seconds`; the database is in `folder`. Its thread goes on: the caller ends this process. The row has
    the numbers of tasks and of candidates measured, and whether layouts of weights were tuned (`prepacked`): where
    that fails, the rest of the time goes to tuning without."""
    until = time.monotonic() + seconds
    for prepacked in (True, False):
        prepared = _fused(tvm, module, target, prepacked)
        tasks = len(tvm.s_tir.meta_schedule.relax_integration.extract_tasks(prepared, target, {}))
        work = _search(tvm, prepared, target, folder) if tasks else None
        if prepacked:
            until = time.monotonic() + seconds  # behind what has to be imported and started
        error = _failed(work, until - time.monotonic()) if work else None
        if error is None:
            break
        if not prepacked or target.kind.name == "cuda":
            raise error
        shutil.rmtree(folder, ignore_errors=True)
    measured = folder / _DATABASE[-1]
    candidates = measured.read_bytes().count(b"\n") if measured.exists() else 0
    return {"tasks": tasks, "candidates": candidates, "prepacked": prepacked}


def _search(tvm: Any, prepared: Any, target: Any, folder: Path) -> Callable[[], object]:
    """The search without a limit, with everything started that it needs."""
    schedule = tvm.s_tir.meta_schedule
    builder = _builder(tvm)
    evaluator = schedule.runner.EvaluatorConfig(**EVALUATOR)
    runner = schedule.runner.LocalRunner(timeout_sec=MOST_RUN_SECONDS, evaluator_config=evaluator)
    return lambda: schedule.relax_integration.tune_relax(
        *(prepared, {}, target, str(folder), 10**6),
        num_trials_per_iter=ROUND,
        builder=builder,
        runner=runner,
        strategy=schedule.search_strategy.EvolutionarySearch(**STRATEGY),
    )


def _failed(work: Callable[[], object], seconds: float) -> Exception | None:
    """What the work raises within the seconds, in a thread."""
    failures = list[Exception]()

    def caught() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the caller decides
            failures.append(error)

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    thread.join(max(seconds, 0.0))
    return failures[0] if failures else None


def compiled(tvm: Any, module: Any, target: Any, folder: Path, prepacked: bool) -> Callable[..., Any]:
    """The function that TVM compiles from the module with the best candidates in `folder`, whose tuning has ended. It
    takes and gives tensors of PyTorch. What has no candidate stays as TVM makes it without tuning. `prepacked`
    is that of `tune`."""
    folder.mkdir(parents=True, exist_ok=True)
    _trim(folder)
    if target.kind.name == "cuda":
        schedule = tvm.s_tir.meta_schedule
        database = schedule.database.JSONDatabase(work_dir=str(folder))
        built = schedule.relax_integration.compile_relax(database, module, target, {})
    else:
        applied = tvm.relax.get_pipeline(
            "static_shape_tuning",
            total_trials=0,
            target=target,
            work_dir=str(folder),
            cpu_weight_prepack=prepacked,
        )(module)
        built = tvm.compile(applied, target=target)
    device = tvm.cuda() if target.kind.name == "cuda" else tvm.cpu()
    return tvm.relax.VirtualMachine(built, device)["main"]  # type: ignore[no-any-return]


def _fused(tvm: Any, module: Any, target: Any, prepacked: bool) -> Any:
    """The module as the pipelines of `compiled` have it where they look into the database."""
    relax = tvm.relax
    if target.kind.name == "cuda":
        passes = [*relax.pipeline.library_dispatch_passes(target), relax.transform.LegalizeOps()]
        passes += [relax.transform.AnnotateTIROpPattern(), relax.transform.FoldConstant()]
        passes += [relax.transform.FuseOps(), relax.transform.FuseTIR()]
    else:
        passes = [relax.transform.DecomposeOpsForInference(), relax.transform.CanonicalizeBindings()]
        passes += [relax.pipeline.zero_pipeline()]
        passes += [relax.transform.AttachAttrLayoutFreeBuffers()] if prepacked else []
    with target:
        return tvm.transform.Sequential(passes)(module)


def _builder(tvm: Any) -> Any:
    """Builds candidates in this process."""
    schedule = tvm.s_tir.meta_schedule
    local = importlib.import_module("tvm.s_tir.meta_schedule.builder.local_builder")

    class Builder(schedule.builder.PyBuilder):  # type: ignore[misc]
        def build(self, candidates: list[Any]) -> list[Any]:
            return [self._built(one) for one in candidates]

        def _built(self, one: Any) -> Any:
            try:
                artifact = local.default_export(local.default_build(one.mod, one.target, None))
            except Exception as error:  # noqa: BLE001 - a candidate that does not compile is a result of the search
                return schedule.builder.BuilderResult(None, str(error))
            return schedule.builder.BuilderResult(artifact, None)

    return importlib.import_module("tvm.ir.utils").derived_object(Builder)()


def _trim(folder: Path) -> None:
    """Drops lines that were not finished when the tuning process ended."""
    for path in (folder / name for name in _DATABASE):
        data = path.read_bytes() if path.exists() else b""
        if data and not data.endswith(b"\n"):
            path.write_bytes(data[: data.rfind(b"\n") + 1])
