"""From `optimize` to the first verified and the first faster candidate, with nothing warm and with everything warm: the
generator's, and that of the shipped model where there is one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.cli_cost import MOST_MEGABYTES, host_megabytes, own_home, run_measured, stop
from bench.figures import Figure, Settings
from kernel_assistant.events import AnyEvent, CandidateEvaluated, decode_event
from kernel_assistant.serving.registry import SHIPPED

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gated_rms_norm.py"


def measure(settings: Settings) -> list[Figure]:
    budget = settings.count(60, 15)
    with tempfile.TemporaryDirectory(prefix="ka-") as folder:
        environment = own_home(Path(folder))
        try:
            figures = _run("cold", "generator", settings.target, budget, Path(folder), environment)
            figures += _run("warm", "generator", settings.target, budget, Path(folder), environment)
            if SHIPPED.is_file():
                figures += _run("model, warm", "auto", settings.target, budget, Path(folder), environment)
            host = host_megabytes(Path(folder))
        finally:
            stop(environment)
    if host is not None:
        figures.append(Figure("peak memory of the host after two jobs", host, "MB", "resident", ("≤", MOST_MEGABYTES)))
    return figures


def _run(kind: str, policy: str, target: str, budget: int, folder: Path, environment: dict[str, str]) -> list[Figure]:
    out = folder / f"{kind}.json"
    arguments = ["optimize", str(EXAMPLE), "--json", "--target", target, "--budget", f"{budget}s", "--policy", policy]
    seconds, megabytes = run_measured(arguments, environment, out)
    result = json.loads(out.read_text(encoding="utf-8"))
    events = _events(folder, result["artifacts"]["job"])
    began = events[0].time
    evaluated = [event for event in events if isinstance(event, CandidateEvaluated) and event.evaluation.correct]
    if policy == "auto":
        # The generator plays behind the model; what it finds is in the other lines.
        evaluated = [event for event in evaluated if event.origin == "model"]
    faster = [event for event in evaluated if _faster(event)]
    figures = [
        Figure(f"{kind}: whole command", seconds, "s", f"budget {budget} s, outcome {result['outcome']}"),
        Figure(f"{kind}: evaluations", result["evaluations"], "", f"stopped: {result['stop_reason']}"),
    ]
    if evaluated:
        figures.append(Figure(f"{kind}: first verified", evaluated[0].time - began, "s", "after the job was queued"))
    if faster:
        text = "after the job was queued; faster than torch.compile, whose own compiling is part of it"
        figures.append(Figure(f"{kind}: first faster", faster[0].time - began, "s", text))
    if result["best"]:
        figures.append(Figure(f"{kind}: speed-up over torch.compile", result["best"]["speedup_vs_compile"], "times"))
    figures.append(Figure(f"{kind}: peak memory of the command", megabytes, "MB", "resident", ("≤", MOST_MEGABYTES)))
    return figures


def _faster(event: CandidateEvaluated) -> bool:
    timing = event.evaluation.timing
    return timing is not None and timing.speedup_vs_compile is not None and timing.speedup_vs_compile > 1


def _events(folder: Path, job: str) -> list[AnyEvent]:
    (log,) = [path for path in folder.rglob("*.jsonl") if job in str(path)]
    return [decode_event(line) for line in log.read_bytes().splitlines()]
