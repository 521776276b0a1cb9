"""Time from `optimize` to the first verified and the first faster candidate, cold and warm: for the generator and, over
several examples, for the shipped model if there is one.

    python -m bench.optimize_time --target cuda --model FILE --budget 10 --examples 4

measures only another model, a GGUF file.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.cli_cost import COMMAND, MOST_MEGABYTES, host_megabytes, memory, own_home, run_measured, stop
from bench.figures import Figure, Settings
from kernel_assistant.events import AnyEvent, BaselineMeasured, CandidateEvaluated, Progress, decode_event
from kernel_assistant.serving.registry import SHIPPED

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
EXAMPLE = EXAMPLES / "gated_rms_norm.py"
#: Examples that suit a small model: one to about ten operators.
FOR_THE_MODEL = (
    "gated_rms_norm",
    "norm_gelu",
    "masked_cumsum",
    "geglu_residual",
    "switch_router",
    "unet_merge",
    "attention_scores",
)
#: Seconds between two reads of a job's events.
LOOK_SECONDS = 0.05
#: Aims: median seconds to the first verified and to the first faster candidate.
AIMS = {"cpu": (15.0, 45.0), "cuda": (5.0, 15.0)}


def measure(settings: Settings) -> list[Figure]:
    budget, target = settings.count(60, 15), settings.target
    with tempfile.TemporaryDirectory(prefix="ka-") as name:
        folder, environment = Path(name), own_home(Path(name))
        try:
            figures = [
                one for kind in ("cold", "warm") for one in _generator(kind, target, budget, folder, environment)
            ]
            if SHIPPED.is_file():
                names = FOR_THE_MODEL[: settings.count(len(FOR_THE_MODEL), 2)]
                runs = [_first_of(name, target, budget, folder, environment) for name in names]
                figures += _to_first(runs, target)
            host = host_megabytes(folder)
        finally:
            stop(environment)
    return figures + ([memory("the host after the jobs", host)] if host is not None else [])


def _first_of(
    name: str, target: str, budget: int, folder: Path, environment: dict[str, str], model: str = ""
) -> tuple[float, float]:
    """Seconds since the job was queued to the model's first verified and first faster candidate for an example,
    infinite if there is none. The job is cancelled when there is one, or when the model's turns are over, because the
    rest takes several times as long."""
    known = set(folder.rglob("jobs/*/events.jsonl"))
    arguments = ["optimize", str(EXAMPLES / f"{name}.py"), "--json", "--target", target, "--budget", f"{budget}s"]
    arguments += ["--model", model] if model else []
    events: list[AnyEvent] = []
    with subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as command:
        while command.poll() is None:
            events = [event for log in set(folder.rglob("jobs/*/events.jsonl")) - known for event in _read(log)]
            if math.isfinite(_times(events)[1]) or any(map(_behind_the_model, events)):
                command.send_signal(signal.SIGINT)
                command.wait()
            time.sleep(LOOK_SECONDS)
    if not events:
        raise RuntimeError(f"{' '.join(arguments)} ended with {command.returncode} before there was a job")
    return _times(events)


def _times(events: list[AnyEvent], origin: str = "model") -> tuple[float, float]:
    """Seconds to the first verified and the first faster candidate of this origin. A candidate counts as faster only
    once torch.compile is measured."""
    baselines = (one for one in events if isinstance(one, BaselineMeasured))
    compiled = next(((one.time, one.compile_ms) for one in baselines if one.compile_ms is not None), (math.inf, 0.0))
    evaluated = [
        event
        for event in events
        if isinstance(event, CandidateEvaluated) and event.origin == origin and event.evaluation.correct
    ]
    verified = [event.time - events[0].time for event in evaluated]
    faster = [_known(event, *compiled) - events[0].time for event in evaluated]
    return min(verified, default=math.inf), min(faster, default=math.inf)


def _behind_the_model(event: AnyEvent) -> bool:
    return isinstance(event, Progress) and (event.phase == "confirm" or event.message == "the generator writes kernels")


def _to_first(runs: list[tuple[float, float]], target: str) -> list[Figure]:
    figures = []
    for what, times, aim in zip(("verified", "faster"), zip(*runs, strict=True), AIMS[target], strict=True):
        reached = [seconds for seconds in times if math.isfinite(seconds)]
        figures.append(Figure(f"shipped model: examples with one {what}", len(reached), "", f"of {len(runs)}"))
        if 2 * len(reached) > len(runs):
            how = f"median of {len(runs)} examples, warm"
            figures.append(Figure(f"shipped model: first {what}", median(times), "s", how, ("≤", aim)))
    return figures


def _generator(kind: str, target: str, budget: int, folder: Path, environment: dict[str, str]) -> list[Figure]:
    """Runs the generator until the job ends; times are seconds since the job was queued."""
    out = folder / f"{kind}.json"
    words = ["optimize", str(EXAMPLE), "--json", "--target", target, "--budget", f"{budget}s", "--policy", "generator"]
    seconds, megabytes = run_measured(words, environment, out)
    result = json.loads(out.read_text(encoding="utf-8"))
    (log,) = folder.rglob(f"jobs/{result['artifacts']['job']}/events.jsonl")
    verified, faster = _times(_read(log), "generator")
    behind = "after the job was queued"
    figures = [
        Figure(f"{kind}: whole command", seconds, "s", f"budget {budget} s, outcome {result['outcome']}"),
        Figure(f"{kind}: evaluations", result["evaluations"], "", f"stopped: {result['stop_reason']}"),
    ]
    if math.isfinite(verified):
        figures.append(Figure(f"{kind}: first verified", verified, "s", behind))
    if math.isfinite(faster):
        how = f"{behind}; faster than torch.compile, whose own compiling is part of it"
        figures.append(Figure(f"{kind}: first faster", faster, "s", how))
    if result["best"]:
        figures.append(Figure(f"{kind}: speed-up over torch.compile", result["best"]["speedup_vs_compile"], "times"))
    return [*figures, Figure(f"{kind}: peak memory of the command", megabytes, "MB", "resident", ("≤", MOST_MEGABYTES))]


def _known(event: CandidateEvaluated, measured: float, compile_ms: float) -> float:
    """The time at which the candidate was known to be faster than torch.compile, whose own time was known at
    `measured`; infinite if it is not faster.
    """
    timing = event.evaluation.timing
    if timing is None:
        return math.inf
    speedup = timing.speedup_vs_compile or compile_ms / timing.candidate_ms
    return max(event.time, measured) if speedup > 1 else math.inf


def _read(log: Path) -> list[AnyEvent]:
    """All complete events in the log."""
    return [decode_event(line) for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


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
            # A first job, so that workers are warm.
            _generator("warm", options.target, 3, folder, environment)
            runs = []
            for example in FOR_THE_MODEL[: options.examples]:
                runs.append(_first_of(example, options.target, options.budget, folder, environment, "measured"))
                print(f"{example}: verified {runs[-1][0]:.1f} s, faster {runs[-1][1]:.1f} s", flush=True)
        finally:
            stop(environment)
    for figure in _to_first(runs, options.target):
        print(f"{figure.name}: {figure.value:.1f} {figure.unit} ({figure.how})")


if __name__ == "__main__":
    main()
