"""A model on tasks that training never shows: what it writes, judged, beside the generator. See docs/held_out.md.

    python bench/held_out.py --target cuda --model kernel-assistant.gguf --tasks 200 --out held-out

Tasks, answers and rows are files in the folder; what is there is not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.held_out_answers import GENERATOR, AnswerEngine, Answers, engine
from bench.held_out_judge import JudgeOptions, Row, judge_part
from bench.held_out_page import page
from bench.held_out_tasks import HeldOutTask, composed, tasks
from bench.machine import describe
from kernel_assistant.config import resolve
from kernel_assistant.environment.ceilings import keep_ceilings, known_ceilings
from kernel_assistant.errors import InternalError, KernelAssistantError, UsageError
from kernel_assistant.records import Tier
from kernel_assistant.serving.registry import find
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.processes import side_by_side
from kernel_assistant_training.evaluation.workers import EvaluationWorkers, devices_of

#: Cores for each process that judges on a GPU, and most processes for a GPU: each holds up to 17 GB of its memory.
CORES, MOST = 2, 6
ENGINES = {"cpu": "llama.cpp", "cuda": "torch"}


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        _run(options)
        text = page(_meta(options), list(_rows(options).values()))
    except KernelAssistantError as error:
        print(f"{error.cause}\n{error.next_step}\n{error.detail}", file=sys.stderr)
        return error.exit_code
    (options.out / f"held-out-{options.target}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _run(options: argparse.Namespace) -> None:
    until, target, out = time.monotonic() + options.seconds, options.target, options.out
    workers = WorkerOptions(target, sys.executable, out, out, throughput=False)
    device = measured_device(workers)
    _meta(options, composed=options.composed)
    file, drawn = out / f"tasks-{target}.jsonl", (target, device.arch, options.tasks, options.seed)
    chosen = composed(file, *drawn) if options.composed else tasks(file, *drawn)
    _meta(options, machine=describe(device), model=_identity(options.model), attempts=options.attempts)
    model = engine(options.model, options.engine or ENGINES[target], target, resolve()[0])
    done, thorough = _rows(options), {task.key for task in chosen[max(0, len(chosen) - options.thorough) :]}
    waiting = [task for task in chosen if task.key not in done]
    while waiting and time.monotonic() < until:
        some, waiting = waiting[: model.chunk], waiting[model.chunk :]
        answered = _answered(some, model, options)
        for deep in (False, True):
            compiled = deep and options.compile
            each = replace(workers, most=Tier.full if compiled else Tier.quick)
            judging = JudgeOptions(each, until, deep, generator=deep and options.generator, compiled=compiled)
            _judge(judging, [one for one in answered if (one[0].key in thorough) == deep], options)
        print(f"{len(_rows(options))} of {len(chosen)} judged", flush=True)


def measured_device(workers: WorkerOptions) -> DeviceFacts:
    """The device with its bandwidths, measured before several processes use it. On a machine that is never quiet it has
    none, and so no roofline: with one that is too low, honest kernels would seem impossibly fast."""
    device, folder = devices_of(workers.target)[0], workers.cache
    if known_ceilings(device, folder) is None:
        # Bandwidths that were measured beside other work stay in the logs.
        own = replace(workers, logs=folder / "bandwidth")
        own.logs.mkdir(exist_ok=True)
        with EvaluationWorkers(own) as measuring:
            measuring.start()
        keep_ceilings(known_ceilings(device, folder) or device, folder)
    return known_ceilings(device, folder) or device


def _answered(
    asked: list[HeldOutTask], model: AnswerEngine, options: argparse.Namespace
) -> list[tuple[HeldOutTask, Answers]]:
    """The tasks with their answers, those of earlier runs included."""
    file = options.out / f"answers-{options.target}.jsonl"
    known = {one.key: one for one in read_lines(file, Answers)} if file.is_file() else {}
    if missing := [task for task in asked if task.key not in known]:
        began = time.monotonic()
        made, rate = model.generate(missing, options.attempts)
        with closing(EpisodeFile(file)) as lines:
            for task, answers in zip(missing, made, strict=True):
                known[task.key] = Answers(key=task.key, answers=tuple(answers))
                lines.add(known[task.key])
        seconds = time.monotonic() - began
        _meta(options, tokens_per_second=rate, answers_seconds=seconds)
        print(f"{len(missing)} tasks answered in {seconds:.1f} s, {rate:.0f} tokens/s", flush=True)
    return [(task, known[task.key]) for task in asked]


def _judge(judging: JudgeOptions, asked: list[tuple[HeldOutTask, Answers]], options: argparse.Namespace) -> None:
    """Judges in `--processes` processes, each with its part of the tasks."""
    if not asked:
        return
    cores = tuple(sorted(os.sched_getaffinity(0)))
    usual = min(MOST * len(devices_of("cuda")), max(1, len(cores) // CORES)) if options.target == "cuda" else 1
    parts = judging.parts(min(options.processes or usual, len(asked)), options.cores, cores)
    failed = side_by_side(judge_part, [(part, asked[number :: len(parts)]) for number, part in enumerate(parts)])
    if len(failed) == len(parts):
        raise InternalError("judging failed", "see the message above; run it again, it goes on")
    if failed:
        print(f"{len(failed)} of {len(parts)} judging processes failed: run it again, it goes on", file=sys.stderr)


def _rows(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The rows of all judged tasks."""
    paths = sorted(options.out.glob(f"rows-{options.target}-*.jsonl"))
    return {row.key: row.found for path in paths for row in read_lines(path, Row)}


def _identity(word: str) -> str:
    """Identifies the model that answers; a run with another model needs another folder."""
    if word == GENERATOR:
        return "the generator in a model's place"
    entry = find(word, resolve()[0])
    path = Path(entry.where)
    digest = f", sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}" if path.is_file() else ""
    return f"{path.name if path.exists() else entry.where}{digest}"


def _meta(options: argparse.Namespace, **changes: Any) -> dict[str, Any]:
    """The folder's metadata; changes are written. Raises UsageError if the folder belongs to another model."""
    path = options.out / f"meta-{options.target}.json"
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    after = {**before, "target": options.target, **changes}
    if before.get("model", after.get("model")) != after.get("model"):
        raise UsageError(f"{options.out} has the answers of {before['model']}", "name another folder: --out")
    if before and before.get("composed", False) != after.get("composed", False):
        raise UsageError(f"{options.out} has other tasks", "name another folder: --out")
    if changes:
        path.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    return after


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--target", default="cpu", choices=["cpu", "cuda"])
    add("--model", default="", help="GGUF file, folder, registered name or URL; the shipped one if left out")
    add("--engine", default="", choices=["", "torch", "llama.cpp"], help="torch on a GPU if left out")
    add("--tasks", type=int, default=200, help="of the held-out split; half as many withheld ones on top")
    add("--composed", action="store_true", help="ask the held-out traced operators of PyTorch instead, all that fit")
    add("--attempts", type=int, default=8, help="answers to a task")
    add("--seconds", type=float, default=float("inf"), help="no task is begun after that")
    add("--seed", type=int, default=0)
    add("--compile", action="store_true", help="measure torch.compile too, for thorough tasks")
    add("--no-generator", dest="generator", action="store_false", help="the model alone")
    add("--thorough", type=int, default=0, help="tasks, the last ones, with all answers judged, and the generator")
    add("--cores", type=int, default=2, help="of each process, where several measure on the CPU")
    add("--processes", type=int, default=0, help="that judge; by the number of cores if left out")
    add("--out", type=Path, default=Path("held-out"), help="folder of everything that is written")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
