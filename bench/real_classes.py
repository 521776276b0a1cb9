"""Classes of transformers and torchvision as they are: scanned, optimized, applied, checked, scanned again.

    python bench/real_classes.py --target cuda --out real [--classes LlamaRMSNorm,T5LayerNorm#2] [--seconds 230]

`CLASS#2` is the configuration of a class that took most time but one: instances of another size.
Writes `real.jsonl`, a line for each class as soon as it is done and then one for each whole model, and the table
`real.md`. A class that fails is a line that says why; the others go on. Everything is kept below one temporary folder:
installed packages are not touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelbench import summary
from real_table import page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PROGRAM = ROOT / "tests" / "data" / "programs" / "real_models.py"

#: The ten classes, and the models that contain them. On the CPU only classes without matrix products.
CLASSES = {
    "cuda": "LlamaRMSNorm,LlamaMLP,T5LayerNorm,T5DenseGatedActDense,BertEmbeddings,BertSelfOutput,NewGELUActivation,"
    "LayerNorm2d,CNBlock,FrozenBatchNorm2d",
    "cpu": "LlamaRMSNorm,LlamaRotaryEmbedding,Gemma2RMSNorm,T5LayerNorm,BertEmbeddings,NewGELUActivation,"
    "CohereLayerNorm,ConvNextV2GRN,ConvNextV2LayerNorm,TimeSeriesStdScaler",
}
MODELS = {
    "cuda": "llama,t5,bert,gpt2,convnext,detection",
    "cpu": "llama,gemma2,t5,bert,gpt2,cohere,convnextv2,scaler",
}
SECONDS_OF_ONE_CHECK = 8.0
#: Seconds of a class's share that opening, baselines, confirmation and applying need beside the search.
BESIDE_THE_SEARCH = 8.0
LEAST_SHARE, LEAST_SEARCH = 5.0, 1.0
#: The least speed-up over eager for applying a candidate.
LEAST_GAIN = 1.02
HOME = "KERNEL_ASSISTANT_HOME"
CACHE = "KERNEL_ASSISTANT_CACHE_DIR"
#: Session hosts that check in parallel, each with two warm processes.
HOSTS = 2


@dataclass
class Bench:
    """The state of a run: folders, remaining time, rows by class and by model, applied candidates by hash."""

    arguments: argparse.Namespace
    folder: Path
    deadline: float
    out: Path
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=list)
    applied: dict[str, str] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def stage(self, name: str, what: Callable[[], None]) -> None:
        """Runs a stage. An error is recorded with its traceback, and the next stage runs."""
        began = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            what()
        except Exception:  # noqa: BLE001 - what the other stages give is worth having
            self.whole.setdefault("problems", []).append(f"{name}: {traceback.format_exc(limit=3)}")
            traceback.print_exc()
        self.whole.setdefault("seconds", {})[name] = round(time.monotonic() - began, 1)
        self.write()

    def write(self) -> None:
        rows = [{"class": name, **row} for name, row in self.classes.items()]
        rows += [*self.models, {"whole": self.whole}]
        self.out.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        text = page(self.classes, self.models, self.whole)
        self.out.with_suffix(".md").write_text(text, encoding="utf-8")


def main() -> int:
    arguments = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="ka-real-"))
    out = Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments, folder, time.monotonic() + arguments.seconds, out)
    bench.project.mkdir()
    shutil.copyfile(PROGRAM, bench.project / PROGRAM.name)
    os.environ |= {
        HOME: str(folder / "home"),
        CACHE: str(folder / "cache"),
        "KERNEL_ASSISTANT_TARGET": arguments.target,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    os.chdir(bench.project)
    bench.classes = {name: {} for name in arguments.classes.split(",")}
    try:
        bench.stage("scan", lambda: scan(bench, "before"))
        bench.stage("optimize", lambda: optimize(bench))
        bench.stage("whole models", lambda: passes(bench))
        bench.stage("scan again", lambda: scan(bench, "after"))
        bench.stage("check", lambda: check(bench))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(out.with_suffix(".md").read_text(encoding="utf-8"))
    return 0


def scan(bench: Bench, when: str) -> None:
    """Runs the program under the recorder; stores its figures in `whole`, and those of the classes in their rows."""
    chosen = bench.arguments
    program = [
        sys.executable,
        PROGRAM.name,
        "--models",
        chosen.models,
        "--device",
        _device(chosen),
        "--size",
        chosen.size,
    ]
    program += ["--dtype", chosen.dtype, "--passes", str(chosen.passes)]
    command = [sys.executable, "-m", "kernel_assistant", "scan", "--json", "--top", "200", "--keep", "200", "--"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr[-2000:])
    report = json.loads(done.stdout.splitlines()[-1])
    rows = {row["name"]: row for row in report["classes"]}
    keys = ("id", "device", "torch", "wall_seconds", "calls_seconds", "modules_seconds", "exit_code", "notes")
    bench.whole[when] = {key: report[key] for key in keys}
    for name, row in bench.classes.items():
        seen = rows.get(name.partition("#")[0])
        if seen is None:
            row.setdefault("problem", "the program does not call it")
            continue
        figures = ("calls", "share_seconds", "inclusive_seconds", "first_seconds", "unserved_seconds")
        row[when] = {key: seen[key] for key in figures}
        row["module"] = seen["module"]


def optimize(bench: Bench) -> None:
    """Optimizes each class with one warm worker and applies the result beside the program. Each class gets an equal
    share of the remaining time."""
    from kernel_assistant.environment.worker_client import WorkerClient

    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    worker = WorkerClient(sys.executable, log=bench.folder / "worker.log", env=env)
    try:
        for index, (name, row) in enumerate(bench.classes.items()):
            share = (bench.left - bench.arguments.rest) / (len(bench.classes) - index)
            if share < LEAST_SHARE or "before" not in row:
                row.setdefault("problem", "no time was left")
                continue
            began = time.monotonic()
            try:
                row |= one_class(name, bench, worker, share)
            except Exception as error:  # noqa: BLE001 - one class that fails is a line of the table
                row["problem"] = f"{type(error).__name__}: {error}".splitlines()[0]
                row["detail"] = traceback.format_exc()
            if not worker.alive:
                worker.restart()
            row["seconds"] = round(time.monotonic() - began, 1)
            print(name, {key: row.get(key) for key in ("outcome", "problem", "seconds", "spent")}, flush=True)
            bench.write()
    finally:
        worker.close()


def one_class(name: str, bench: Bench, worker: Any, share: float) -> dict[str, Any]:
    """What the loop reaches in about `share` seconds, the free wins, and whether the result could be applied."""
    from kernel_assistant.agent.budget import Budget
    from kernel_assistant.agent.loop import run_episode
    from kernel_assistant.apply import apply_outside
    from kernel_assistant.config import resolve
    from kernel_assistant.environment.session import open_environment
    from kernel_assistant.events import CandidateEvaluated, Progress
    from kernel_assistant.policy.generator import GeneratorPolicy
    from kernel_assistant.session.artifacts import write_result
    from kernel_assistant.session.kinds.free_wins import FreeWinStep
    from kernel_assistant.session.kinds.outcome import best_candidate
    from kernel_assistant.session.prepare import prepare_scanned
    from kernel_assistant.targets.detect import detect

    chosen, cancel, policy = bench.arguments, threading.Event(), GeneratorPolicy()
    judged: list[CandidateEvaluated] = []
    clock = Clock()

    def note(event: Any) -> None:
        if isinstance(event, CandidateEvaluated):
            judged.append(event)
        elif isinstance(event, Progress):
            clock.enter(event.phase)

    settings = resolve()[0]
    task, _ = prepare_scanned(f"{bench.whole['before']['id']}:{name}", settings)
    with open_environment(
        task,
        device=detect(chosen.target),
        worker=worker,
        sandbox_mode=chosen.sandbox,
        cache_dir=settings.cache_dir,
        cancel=cancel,
        emit=note,
    ) as environment:
        row: dict[str, Any] = {"graph": environment.graph.text(), "spent": clock.spent}
        clock.enter("search")
        reason = policy.supports(environment.graph, chosen.target)
        if reason is not None:
            return row | {"outcome": "unsupported", "problem": reason}
        budget = Budget(seconds=min(chosen.budget, max(LEAST_SEARCH, share - BESIDE_THE_SEARCH)))
        trajectory = run_episode(environment, policy, budget, emit=note, cancel=cancel)
        clock.enter("apply")
        row |= summary(trajectory, environment.baseline(compiled=True), judged)
        candidate, evaluation = best_candidate(trajectory)
        final = trajectory.final or evaluation
        if candidate is None or final is None or not final.correct:
            return row | {"problem": "; ".join(row["messages"]) or "no candidate was verified"}
        if final.timing is not None and final.timing.speedup_vs_eager < LEAST_GAIN:
            return row | {"problem": "not applied: it is not faster than eager, which the program runs"}
        # Only for this device: compiling binaries for other architectures takes seconds.
        built = environment.build(candidate)
        result = bench.folder / "results" / name.replace("#", "_")
        write_result(
            result,
            task=task,
            graph=environment.graph,
            device=environment.device,
            facts=environment.facts,
            trajectory=trajectory,
            candidate=candidate,
            evaluation=final,
            binaries={built.name: built.content},
        )
        applied = apply_outside(result, Path(task.path), bench.project, into=bench.project / PROGRAM.name)
        row["applied"] = applied.package.name
        bench.applied[candidate.hash()] = name
        if chosen.free_seconds:
            free = FreeWinStep(environment, chosen.free_seconds, lambda event: None)
            free.run()
            row["free_wins"] = [
                {"name": win.name, "ms": win.ms, "speedup": win.speedup_vs_compile, "note": win.note}
                for win in free.wins
            ]
    return row


class Clock:
    """Seconds by phase, as the loop reports phases."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._phase, self._since = "start", time.monotonic()

    def enter(self, phase: str) -> None:
        now = time.monotonic()
        self.spent[self._phase] = round(self.spent.get(self._phase, 0.0) + now - self._since, 2)
        self._phase, self._since = phase, now


def passes(bench: Bench) -> None:
    """Measures whole forward passes with and without the kernels."""
    chosen = bench.arguments
    command = [sys.executable, str(ROOT / "bench" / "real_passes.py"), "--program", PROGRAM.name]
    command += ["--models", chosen.models, "--device", _device(chosen), "--size", chosen.size, "--dtype", chosen.dtype]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    bench.models += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def check(bench: Bench) -> None:
    """`check --no-timing` of each applied class while time is left; in parallel, because nothing is timed."""
    from kernel_assistant.apply import find_applied
    from kernel_assistant.config import resolve
    from kernel_assistant.session.client import Client

    settings = resolve()[0]
    homes = [settings] + [
        resolve(environ={**os.environ, HOME: str(bench.folder / f"home{n}")})[0] for n in range(1, HOSTS)
    ]
    applied = find_applied([bench.project])
    with ThreadPoolExecutor(HOSTS) as pool:
        for start, home in enumerate(homes):
            pool.submit(_check_some, bench, Client(home), home, applied[start::HOSTS])


def _check_some(bench: Bench, client: Any, settings: Any, applied: list[Any]) -> None:
    from kernel_assistant.cli.edits.applied import check_one
    from kernel_assistant.session.check import CheckOptions

    try:
        for one in applied:
            began, verdict = time.monotonic(), "no time was left"
            if bench.left > SECONDS_OF_ONE_CHECK:
                result = check_one(client, settings, one, CheckOptions(timing=False), silent=True)
                verdict = f"{result.status.value}: {result.message}"
            row = bench.classes[bench.applied[one.candidate.hash()]]
            row["check"], row["check_seconds"] = verdict, round(time.monotonic() - began, 1)
            print(one.name, verdict, row["check_seconds"], flush=True)
        client.shutdown()
    except Exception:  # noqa: BLE001 - the other hosts go on
        traceback.print_exc()


def _device(arguments: argparse.Namespace) -> str:
    return "cuda" if arguments.target == "cuda" else "cpu"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Classes of installed libraries, from scan to the faster program.")
    parser.add_argument("--target", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--out", default="real", help="name of the .jsonl and .md that are written")
    parser.add_argument("--classes", help="names, most wanted first (default: ten)")
    parser.add_argument("--models", help="those of the program that the classes are in")
    parser.add_argument("--size", choices=["small", "real"], help="default: real on CUDA")
    parser.add_argument("--dtype", help="default: bfloat16 on CUDA, float32 on the CPU")
    parser.add_argument("--passes", type=int, default=5, help="forward passes of each model under the recorder")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of search for each class")
    parser.add_argument("--free-seconds", type=float, default=0.0, help="for what is had without a kernel, each class")
    parser.add_argument("--seconds", type=float, default=230.0, help="for everything")
    parser.add_argument("--rest", type=float, default=75.0, help="seconds kept back for what follows optimizing")
    parser.add_argument("--sandbox", default="auto", help="as for kernel-assistant")
    arguments = parser.parse_args()
    on_gpu = arguments.target == "cuda"
    arguments.classes = arguments.classes or CLASSES[arguments.target]
    arguments.models = arguments.models or MODELS[arguments.target]
    arguments.size = arguments.size or ("real" if on_gpu else "small")
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
