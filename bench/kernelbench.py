"""The product's own loop on problems of KernelBench; the repository is fetched by whoever runs this.

    python bench/kernelbench.py --root KernelBench --problems 19-32,47-53 --out table [--level 2] [--precision bf16]

One line of JSON per problem is written as soon as it is done, and problems that are in the file already are left out:
a run that is killed loses one problem. The table is made of that file, also by `--table` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

COLUMNS = (
    "problem",
    "eager",
    "compile",
    "ours",
    "× eager",
    "× compile",
    "99.9% interval",
    "roofline",
    "in our kernels",
    "error ratio",
    "seconds",
    "why it ended",
)

# Copy bandwidth of one H200, measured (bytes per millisecond): the floor of a problem is its bytes at this rate.
COPY_BYTES_PER_MS = 4.3e9

# What `--precision` appends to a problem's file: the same module and inputs in another type.
IN_ANOTHER_TYPE = """

_first_get_inputs = get_inputs


def get_inputs():
    return [x.to(torch.{dtype}) if torch.is_tensor(x) and x.is_floating_point() else x for x in _first_get_inputs()]


class ModelInAnotherType(Model):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.to(torch.{dtype})
"""


def main() -> int:
    arguments = _arguments()
    out = Path(arguments.out).with_suffix(".jsonl")
    if not arguments.table:
        done = {row["problem"] for row in _rows(out)}
        files = [path for path in _files(arguments) if path.stem not in done]
        print(f"{len(files)} problems to do, {len(done)} done before", flush=True)
        run(files, arguments, out)
    page = table(_rows(out), _headroom(arguments))
    out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    return 0


def run(files: list[Path], arguments: argparse.Namespace, out: Path) -> None:
    """All problems with one warm worker; one that breaks is written down as such."""
    from kernel_assistant.environment.worker_client import Worker

    cache = Path(arguments.cache or tempfile.mkdtemp(prefix="ka-kernelbench-"))
    cache.mkdir(parents=True, exist_ok=True)
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    worker = Worker(sys.executable, log=cache / "worker.log", env=env)
    try:
        for path in files:
            began = time.monotonic()
            print(f"{path.stem} …", end=" ", flush=True)
            try:
                row = problem(path, arguments, worker, cache)
            except Exception as error:  # noqa: BLE001 - one bad problem is a line of the table, with its traceback
                row = {
                    "outcome": "failed",
                    "reason": f"{type(error).__name__}: {error}",
                    "detail": traceback.format_exc(),
                }
            if not worker.alive:
                worker.restart()
            row = {"problem": path.stem, **row, "seconds": round(time.monotonic() - began, 1)}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
            print(_line(row), flush=True)
    finally:
        worker.close()


def problem(path: Path, arguments: argparse.Namespace, worker: Any, cache: Path) -> dict[str, Any]:
    """What the loop finds for one file."""
    from kernel_assistant.agent.budget import Budget
    from kernel_assistant.agent.loop import run_episode
    from kernel_assistant.environment.session import open_environment
    from kernel_assistant.events import CandidateEvaluated
    from kernel_assistant.policy.generator import GeneratorPolicy
    from kernel_assistant.source.build import build_task
    from kernel_assistant.targets.detect import detect

    name = "Model"
    if arguments.precision != "fp32":
        name, path = "ModelInAnotherType", _converted(path, arguments.precision, cache)
    task = build_task(f"{path}:{name}", target=arguments.target, numerics=arguments.numerics)
    cancel = threading.Event()
    events: list[Any] = []
    policy = GeneratorPolicy()
    with open_environment(
        task,
        device=detect(arguments.target),
        worker=worker,
        sandbox_mode=arguments.sandbox,
        cache_dir=cache,
        cancel=cancel,
        emit=lambda event: None,
    ) as environment:
        reason = policy.supports(environment.graph, arguments.target)
        if reason is not None:
            return {"outcome": "unsupported", "reason": reason}
        budget = Budget(seconds=arguments.budget)
        trajectory = run_episode(environment, policy, budget, emit=events.append, cancel=cancel)
        baseline = environment.baseline(compiled=True)
    return summary(trajectory, baseline, [event for event in events if isinstance(event, CandidateEvaluated)])


def _converted(path: Path, precision: str, cache: Path) -> Path:
    """The problem in bf16 or fp16, as a file of its own."""
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[precision]
    target = cache / precision / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(path.read_text(encoding="utf-8") + IN_ANOTHER_TYPE.format(dtype=dtype), encoding="utf-8")
    return target


def summary(trajectory: Any, baseline: Any, judged: Iterable[Any] = ()) -> dict[str, Any]:
    """One row as plain data. `judged` are all evaluations, those of the full tier included."""
    from kernel_assistant.records.evaluation import measurably_faster, measurably_slower

    evaluations = [evaluation for step in trajectory.steps for evaluation in step.evaluations]
    outcomes: dict[str, int] = {}
    for evaluation in evaluations:
        outcomes[evaluation.outcome.value] = outcomes.get(evaluation.outcome.value, 0) + 1
    row: dict[str, Any] = {
        "outcome": "no_candidate",
        "stop_reason": trajectory.stop_reason.value,
        "evaluations": len(evaluations),
        "outcomes": outcomes,
        "eager_ms": baseline.eager_ms,
        "compile_ms": baseline.compile_ms,
        "floor_ms": baseline.floor_ms,
        "messages": sorted({event.evaluation.message for event in judged if not event.evaluation.correct})[:5],
    }
    final = trajectory.final
    if final is None or final.timing is None or final.accuracy is None:
        return row
    timing, interval = final.timing, final.timing.speedup_vs_compile_ci
    faster, slower = (call(timing.speedup_vs_compile, interval) for call in (measurably_faster, measurably_slower))
    schedules = {
        candidate.hash(): candidate.plan.schedule for step in trajectory.steps for candidate in step.candidates
    }
    return row | {
        "outcome": "faster" if faster else "slower" if slower else "same",
        "schedule": schedules.get(trajectory.best),
        "candidate_ms": timing.candidate_ms,
        "eager_ms": timing.eager_ms,
        "compile_ms": timing.compile_ms,
        "speedup_vs_eager": timing.speedup_vs_eager,
        "speedup_vs_compile": timing.speedup_vs_compile,
        "speedup_vs_compile_ci": interval,
        "roofline": timing.roofline,
        "share_in_our_kernels": final.share_in_our_kernels,
        "noise": timing.noise,
        "warning": timing.warning,
        "error": final.accuracy.error,
        "error_ratio": final.accuracy.error_ratio,
        "inputs_tried": final.accuracy.inputs_tried,
    }


def table(rows: list[dict[str, Any]], headroom: frozenset[str] = frozenset()) -> str:
    """Markdown, problems in their order, counts at the end.

    `headroom` names the problems that a measured baseline says are above their floor.
    """
    rows = sorted(rows, key=lambda row: _number(row["problem"]))
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows if row["outcome"] != "unsupported"]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    lines += ["", f"{len(rows)} problems: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))]
    lines += ["", *_totals(rows, headroom)]
    lines += ["", "Times in milliseconds; speed-ups and intervals from paired blocks; outcome against torch.compile."]
    left = [row for row in rows if row["outcome"] == "unsupported"]
    lines += ["", "Left out:", ""] + [f"- {row['problem']}: {row['reason']}" for row in left] if left else []
    return "\n".join(lines) + "\n"


def _totals(rows: list[dict[str, Any]], headroom: frozenset[str]) -> list[str]:
    """The counts that a reader compares, and geometric means over the verified results."""
    verified = [row for row in rows if row.get("speedup_vs_compile")]
    if not verified:
        return []
    means = [geometric_mean(row[key] for row in verified) for key in ("speedup_vs_eager", "speedup_vs_compile")]
    slower = sum(row["outcome"] == "slower" for row in verified)
    counts = (
        f"{len(verified)} of {len(rows)} verified, {len(verified) - slower} of them not measurably slower than "
        f"torch.compile; geometric mean {means[0]:.2f} times eager, {means[1]:.2f} times torch.compile; "
        f"longest {max(row['seconds'] for row in rows):.0f} s."
    )
    lines = [counts]
    room = [row for row in rows if row["problem"].rstrip("_") in headroom]
    if room:
        won = sum(
            (row.get("speedup_vs_compile_ci") or [0.0])[0] > 1.0 and row["speedup_vs_compile"] >= 1.05 for row in room
        )
        lines += ["", f"Of {len(room)} with more than 10% headroom in the measured baseline, {won} at least 5% faster."]
    return lines


def _headroom(arguments: argparse.Namespace) -> frozenset[str]:
    """Problems whose torch.compile time in `--baseline` is more than 1.1 times the copy of their bytes."""
    if not arguments.baseline:
        return frozenset()
    rows = _rows(Path(arguments.baseline))
    return frozenset(
        row["problem"].rstrip("_")
        for row in rows
        if row["level"] == arguments.level and row["compile_ms"] > 1.1 * row["min_bytes"] / COPY_BYTES_PER_MS
    )


def _cells(row: dict[str, Any]) -> list[str]:
    def shown(key: str, form: str = ".3f") -> str:
        return "" if row.get(key) is None else format(row[key], form)

    interval = row.get("speedup_vs_compile_ci")
    return [
        row["problem"],
        shown("eager_ms", ".4g"),
        shown("compile_ms", ".4g"),
        shown("candidate_ms", ".4g"),
        shown("speedup_vs_eager"),
        shown("speedup_vs_compile"),
        f"{interval[0]:.3f} – {interval[1]:.3f}" if interval else "",
        shown("roofline", ".0%"),
        shown("share_in_our_kernels", ".0%"),
        shown("error_ratio", ".2f"),
        shown("seconds", ".0f"),
        f"{row['outcome']}: {row.get('stop_reason') or row.get('reason', '')}".replace("|", "/").replace("\n", " ")[
            :120
        ],
    ]


def _line(row: dict[str, Any]) -> str:
    if "candidate_ms" not in row:
        why = row.get("reason") or row.get("messages") or row.get("stop_reason")
        return f"{row['outcome']}: {why} ({row['seconds']} s)"
    times = f"{row['candidate_ms']:.4g} ms, compile {row['compile_ms']:.4g}, eager {row['eager_ms']:.4g}"
    how = f"roofline {row['roofline']:.0%}, {row['evaluations']} evaluations, {row['stop_reason']}"
    return f"{row['outcome']}: {times}, {how} ({row['seconds']} s)"


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows written so far; a last line that was cut off does not count."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _files(arguments: argparse.Namespace) -> list[Path]:
    root, level = Path(arguments.root).resolve(), f"level{arguments.level}"
    folders = [root / "KernelBench" / level, root / level, root]
    folder = next((path for path in folders if any(path.glob("*.py"))), None)
    if folder is None:
        raise SystemExit(f"no problems in {root}: give --root a checkout of KernelBench")
    files = sorted(folder.glob("*.py"), key=lambda path: _number(path.stem))
    wanted = _numbers(arguments.problems)
    return [path for path in files if not wanted or _number(path.stem) in wanted]


def _number(stem: str) -> int:
    match = re.match(r"\d+", stem)
    return int(match[0]) if match else 0


def _numbers(text: str) -> set[int]:
    """`5,12,19-32` → the numbers."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The product's own loop on problems of KernelBench.")
    parser.add_argument("--root", default="KernelBench", help="checkout of the repository, or a folder of its files")
    parser.add_argument("--level", type=int, default=1, choices=[1, 2, 3])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--problems", default="", help="numbers such as 5,12,19-32; all if left out")
    parser.add_argument("--target", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of search for each problem")
    parser.add_argument("--numerics", default="kernelbench", choices=["kernelbench", "strict", "paper"])
    parser.add_argument("--sandbox", default="auto", help="as for kernel-assistant")
    parser.add_argument("--cache", help="folder of builds, kept between runs")
    parser.add_argument("--out", default="kernelbench", help="name of the .jsonl and .md that are written")
    parser.add_argument("--baseline", help="lines of JSON with min_bytes and compile_ms, to count those with headroom")
    parser.add_argument("--table", action="store_true", help="make the table of what is there and do nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
