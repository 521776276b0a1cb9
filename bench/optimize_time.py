"""From `optimize` to the first verified and the first faster candidate, with nothing warm and with everything warm: the
generator's, and over several examples that of the shipped model where there is one.

    python -m bench.optimize_time --target cuda --model FILE --budget 10 --examples 4

measures another model, a GGUF file, alone.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.cli_cost import MOST_MEGABYTES, host_megabytes, own_home, run_measured, stop
from bench.figures import Figure, Settings
from kernel_assistant.events import AnyEvent, CandidateEvaluated, decode_event
from kernel_assistant.serving.registry import SHIPPED

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
EXAMPLE = EXAMPLES / "gated_rms_norm.py"
#: Of a small model: one to some ten operators.
FOR_THE_MODEL = (
    "gated_rms_norm",
    "norm_gelu",
    "masked_cumsum",
    "geglu_residual",
    "switch_router",
    "unet_merge",
    "attention_scores",
)
#: Seconds to the first verified and to the first faster candidate, the median.
AIMS = {"cpu": (15.0, 45.0), "cuda": (5.0, 15.0)}


@dataclass(frozen=True)
class Run:
    """One command: `verified` and `faster` are seconds after the job was queued, infinite where there was none."""

    result: dict[str, Any]
    seconds: float
    megabytes: float
    verified: float
    faster: float


def measure(settings: Settings) -> list[Figure]:
    budget = settings.count(60, 15)
    with tempfile.TemporaryDirectory(prefix="ka-") as folder:
        environment = own_home(Path(folder))
        try:
            figures: list[Figure] = []
            for kind in ("cold", "warm"):
                run = _run(EXAMPLE, kind, "generator", settings.target, budget, Path(folder), environment)
                figures += _figures(kind, run, budget)
            if SHIPPED.is_file():
                figures += _of_the_model(settings, budget, Path(folder), environment)
            host = host_megabytes(Path(folder))
        finally:
            stop(environment)
    if host is not None:
        figures.append(Figure("peak memory of the host after the jobs", host, "MB", "resident", ("≤", MOST_MEGABYTES)))
    return figures


def _of_the_model(settings: Settings, budget: int, folder: Path, environment: dict[str, str]) -> list[Figure]:
    """Over several examples, warm. The generator plays behind the model; only what the model wrote counts here."""
    names = FOR_THE_MODEL[: settings.count(len(FOR_THE_MODEL), 2)]
    runs = [
        _run(EXAMPLES / f"{name}.py", f"model-{name}", "auto", settings.target, budget, folder, environment)
        for name in names
    ]
    return _to_first(runs, settings.target)


def _to_first(runs: list[Run], target: str) -> list[Figure]:
    figures = []
    for what, times, aim in (
        ("verified", [run.verified for run in runs], AIMS[target][0]),
        ("faster", [run.faster for run in runs], AIMS[target][1]),
    ):
        found = [seconds for seconds in times if math.isfinite(seconds)]
        figures.append(Figure(f"shipped model: examples with one {what}", len(found), "", f"of {len(runs)}"))
        if 2 * len(found) > len(runs):
            middle = Figure(
                f"shipped model: first {what}", median(times), "s", f"median of {len(runs)} examples, warm", ("≤", aim)
            )
            figures.append(middle)
    return figures


def _run(
    example: Path,
    name: str,
    policy: str,
    target: str,
    budget: int,
    folder: Path,
    environment: dict[str, str],
    model: str = "",
) -> Run:
    out = folder / f"{name}.json"
    arguments = ["optimize", str(example), "--json", "--target", target, "--budget", f"{budget}s", "--policy", policy]
    seconds, megabytes = run_measured([*arguments, *(["--model", model] if model else [])], environment, out)
    result = json.loads(out.read_text(encoding="utf-8"))
    events = _events(folder, result["artifacts"]["job"])
    began = events[0].time
    evaluated = [event for event in events if isinstance(event, CandidateEvaluated) and event.evaluation.correct]
    if policy == "auto":
        evaluated = [event for event in evaluated if event.origin == "model"]
    faster = [event.time - began for event in evaluated if _faster(event)]
    verified = [event.time - began for event in evaluated]
    return Run(result, seconds, megabytes, min(verified, default=math.inf), min(faster, default=math.inf))


def _figures(kind: str, run: Run, budget: int) -> list[Figure]:
    result = run.result
    figures = [
        Figure(f"{kind}: whole command", run.seconds, "s", f"budget {budget} s, outcome {result['outcome']}"),
        Figure(f"{kind}: evaluations", result["evaluations"], "", f"stopped: {result['stop_reason']}"),
    ]
    if math.isfinite(run.verified):
        figures.append(Figure(f"{kind}: first verified", run.verified, "s", "after the job was queued"))
    if math.isfinite(run.faster):
        text = "after the job was queued; faster than torch.compile, whose own compiling is part of it"
        figures.append(Figure(f"{kind}: first faster", run.faster, "s", text))
    if result["best"]:
        figures.append(Figure(f"{kind}: speed-up over torch.compile", result["best"]["speedup_vs_compile"], "times"))
    memory = Figure(f"{kind}: peak memory of the command", run.megabytes, "MB", "resident", ("≤", MOST_MEGABYTES))
    return [*figures, memory]


def _faster(event: CandidateEvaluated) -> bool:
    timing = event.evaluation.timing
    return timing is not None and timing.speedup_vs_compile is not None and timing.speedup_vs_compile > 1


def _events(folder: Path, job: str) -> list[AnyEvent]:
    (log,) = folder.rglob(f"jobs/{job}/events.jsonl")
    return [decode_event(line) for line in log.read_bytes().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description="From optimize to the first verified and the first faster candidate.")
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", required=True, help="GGUF file of a small model")
    parser.add_argument("--budget", type=int, default=15, help="seconds of each search")
    parser.add_argument("--examples", type=int, default=len(FOR_THE_MODEL))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ka-") as name:
        folder = Path(name)
        environment = own_home(folder)
        try:
            run_measured(["models", "add", "measured", str(Path(options.model).resolve()), "--compact"], environment)
            # So that workers are warm.
            _run(EXAMPLE, "warm", "generator", options.target, 3, folder, environment)
            runs = []
            for example in FOR_THE_MODEL[: options.examples]:
                path = EXAMPLES / f"{example}.py"
                runs.append(
                    _run(path, example, "auto", options.target, options.budget, folder, environment, "measured")
                )
                one = runs[-1]
                times = f"verified {one.verified:.1f} s, faster {one.faster:.1f} s, command {one.seconds:.1f} s"
                print(f"{example}: {times}, outcome {one.result['outcome']}", flush=True)
        finally:
            stop(environment)
    for figure in _to_first(runs, options.target):
        print(f"{figure.name}: {figure.value:.1f} {figure.unit} ({figure.how})")


if __name__ == "__main__":
    main()
