"""A model on tasks that training never shows: what it writes, judged, beside the generator. See docs/held_out.md.

    python bench/held_out.py --target cuda --model kernel-assistant.gguf --tasks 200 --out held-out

Tasks, answers and rows are files in the folder; what is there is not made again. `--page` only writes the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "training")]

from bench.held_out_answers import (  # noqa: E402 - after the path, like everything below
    TEACHER,
    Answers,
    Engine,
    engine,
    kept,
)
from bench.held_out_device import devices, measure_device  # noqa: E402
from bench.held_out_judge import Options, Row, Subject, judge_part, subject  # noqa: E402
from bench.held_out_page import page  # noqa: E402
from bench.held_out_tasks import Task, tasks  # noqa: E402
from bench.machine import describe  # noqa: E402
from kernel_assistant.config import resolve  # noqa: E402
from kernel_assistant.errors import KernelAssistantError, UsageError  # noqa: E402
from kernel_assistant.serving.registry import find  # noqa: E402
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines  # noqa: E402

#: Cores for each process that judges on a GPU, and most processes for a GPU: each holds up to 17 GB of its memory.
CORES, MOST = 2, 6


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        if not options.page:
            _run(options)
        text = page(_meta(options.out, options.target), rows(options.out, options.target))
    except KernelAssistantError as error:
        print(f"{error.cause}\n{error.next_step}\n{error.detail}", file=sys.stderr)
        return error.exit_code
    (options.out / f"held-out-{options.target}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _run(options: argparse.Namespace) -> None:
    until = time.monotonic() + options.seconds
    settings, device = resolve()[0], measure_device(options.target, options.out)
    chosen = tasks(
        options.out / f"tasks-{options.target}.jsonl", options.target, device.arch, options.tasks, options.seed
    )
    _write_meta(options, {"machine": describe(device), "model": _identity(options.model), "attempts": options.attempts})
    kind = options.engine or ("torch" if device.target == "cuda" else "llama.cpp")
    last = {task.key for task in chosen[len(chosen) - options.thorough :]} if options.thorough else set[str]()
    model = engine(options.model, kind, options.target, settings)
    file = options.out / f"answers-{options.target}.jsonl"
    known, done = kept(file), {row["key"] for row in rows(options.out, options.target)}
    waiting = [task for task in chosen if task.key not in done]
    print(f"{len(waiting)} of {len(chosen)} tasks to judge, {len(known)} answered before", flush=True)
    while waiting and time.monotonic() < until:
        some, waiting = waiting[: model.chunk], waiting[model.chunk :]
        _answer([task for task in some if task.key not in known], model, options, file, known)
        asked = [subject(task, known[task.key].answers, options.target, thorough=task.key in last) for task in some]
        _judge(asked, options, until)
        print(f"{len(rows(options.out, options.target))} of {len(chosen)} judged", flush=True)


def _answer(
    asked: list[Task], model: Engine, options: argparse.Namespace, file: Path, known: dict[str, Answers]
) -> None:
    if not asked:
        return
    began = time.monotonic()
    answers = model.answer(asked, options.attempts)
    lines = EpisodeFile(file)
    for one in answers:
        lines.add(one)
    lines.close()
    known |= {one.key: one for one in answers}
    figures = {"tokens_per_second": model.rate, "answers_seconds": time.monotonic() - began}
    _write_meta(options, figures)
    print(f"{len(answers)} tasks answered in {figures['answers_seconds']:.1f} s, {model.rate:.0f} tokens/s", flush=True)


def _judge(subjects: list[Subject], options: argparse.Namespace, until: float) -> None:
    """Judges in `--processes` processes, each with its part of the subjects. On GPUs they take turns; on the CPU each
    measures on cores of its own."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    usual = min(MOST * len(devices("cuda")), max(1, len(cores) // CORES)) if options.target == "cuda" else 1
    parts = min(options.processes or usual, len(subjects))
    one = Options(
        target=options.target,
        out=options.out,
        until=until,
        parts=parts,
        builders=max(1, len(cores) // parts),
        compiled=options.compile,
        generator=options.generator,
        sandbox=options.sandbox,
    )
    if parts == 1:
        judge_part(one, subjects)
        return
    shares = [replace(one, part=part) for part in range(parts)]
    if options.target == "cpu":
        shares = [_on_its_own(share, cores, options.cores, parts) for share in shares]
    context = get_context("spawn")
    processes = [context.Process(target=judge_part, args=(share, subjects[share.part :: parts])) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    if failed:
        print(f"{len(failed)} of {parts} judging processes failed: run it again, it goes on", file=sys.stderr)


def _on_its_own(share: Options, cores: tuple[int, ...], each: int, parts: int) -> Options:
    """The options of a process with `each` cores of its own to measure on; all build on the other cores. Raises
    UsageError if there are too few cores."""
    rest = cores[parts * each :]
    if not rest:
        cause = f"{parts} processes of {each} cores and a builder need more than {len(cores)} cores"
        raise UsageError(cause, "use fewer --processes or --cores")
    mine = cores[share.part * each : (share.part + 1) * each]
    return replace(share, cores=mine, builder_cores=rest, builders=max(1, len(rest) // parts))


def rows(out: Path, target: str) -> list[dict[str, Any]]:
    """The rows of all judged tasks."""
    paths = sorted(out.glob(f"rows-{target}-*.jsonl"))
    return [row.found for row in {row.key: row for path in paths for row in read_lines(path, Row)}.values()]


def _identity(word: str) -> str:
    """Identifies the model that answers; a run with another model needs another folder."""
    if word == TEACHER:
        return "the teacher in a model's place"
    entry = find(word, resolve()[0])
    path = Path(entry.where)
    digest = f", sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}" if path.is_file() else ""
    return f"{path.name if path.exists() else entry.where}{digest}"


def _meta(out: Path, target: str) -> dict[str, Any]:
    path = out / f"meta-{target}.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return document


def _write_meta(options: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Writes changes to the folder's metadata. Raises UsageError if the folder belongs to another model."""
    before = _meta(options.out, options.target)
    if before.get("model", changes.get("model")) != changes.get("model", before.get("model")):
        raise UsageError(f"{options.out} has the answers of {before['model']}", "name another folder: --out")
    path = options.out / f"meta-{options.target}.json"
    path.write_text(json.dumps({**before, "target": options.target, **changes}, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--model", default="", help="GGUF file, folder, registered name or URL; the shipped one if left out"
    )
    parser.add_argument("--engine", default="", choices=["", "torch", "llama.cpp"], help="torch on a GPU if left out")
    parser.add_argument(
        "--tasks", type=int, default=200, help="of the held-out split; half as many withheld ones on top"
    )
    parser.add_argument("--attempts", type=int, default=8, help="answers to a task")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no task is begun after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too, for thorough tasks")
    parser.add_argument("--no-generator", dest="generator", action="store_false", help="the model alone")
    parser.add_argument(
        "--thorough",
        type=int,
        default=0,
        help="tasks, the last ones, of which all answers are judged, and the generator",
    )
    parser.add_argument("--cores", type=int, default=2, help="of each process, where several measure on the CPU")
    parser.add_argument("--processes", type=int, default=0, help="that judge; by the number of cores if left out")
    parser.add_argument("--sandbox", default="auto", help="as for kernel-assistant")
    parser.add_argument("--out", type=Path, default=Path("held-out"), help="folder of everything that is written")
    parser.add_argument("--page", action="store_true", help="only write the page")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
