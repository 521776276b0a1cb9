"""From a user's file to an applied result with PyTorch's own calls in it, and back: its report too, and that paper
numerics allow no such call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.apply import apply_result, undo
from kernel_assistant.apply.exporting.export import export
from kernel_assistant.cli.report import report
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.policy.generator import GeneratorPolicy
from kernel_assistant.records import Evaluation, JobOutcome, Numerics, Outcome, StopReason, Tier
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.session.kinds.outcome import best_of
from kernel_assistant.worker.applied.parts import Parts
from tests.common.kernelbench import AS_KERNELBENCH_DOES
from tests.common.results import result
from tests.judge import kernels
from tests.residual.modules import CONV, MODULES

USE = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path.insert(0, "")
import torch
torch.manual_seed(3)
import model
from model import {name} as Class

module, (x,) = Class().eval(), model.get_inputs()
plain = Class.forward.__wrapped__
with torch.no_grad():
    for rows in (1, 3, 7):
        y = x[torch.arange(rows) % x.shape[0]].contiguous()
        torch.testing.assert_close(module(y), plain(module, y), atol=2e-5, rtol=2e-5)
    if Class.__name__ != "Recurrent":  # PyTorch does not compile through an LSTM
        compiled = torch.compile(lambda x: module(x * 1.5) + 1, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), plain(module, x * 1.5) + 1, atol=2e-5, rtol=2e-5)
from runpy import run_path
counted = run_path("model_kernels/load.py")["counters"]()["{name}"]
assert counted["kernel"] >= 3 and not counted["fallbacks"], counted
module(x).sum().backward()
assert run_path("model_kernels/load.py")["counters"]()["{name}"]["fallbacks"] == {{"gradient": 1}}
print("served")
"""


#: In the gate: PyTorch's own operators, and one of another library.
IN_THE_GATE = ("Attention", "Turned")

#: KernelBench's form is tried with these: training mode changes nothing of them.
SAME_IN_TRAINING = ("Linear", "Attention")


def _written(environment: Environment, tier: Tier, folder: Path) -> tuple[Evaluation, dict[str, str]]:
    """Evaluates the first candidate, which is right, and writes it as a result."""
    graph = environment.graph
    candidate = emit(graph, initial(graph, "cpu", environment.device)[0])
    (evaluation,) = environment.evaluate([candidate], tier)
    assert evaluation.outcome is Outcome.correct, evaluation.message
    written = write_result(
        folder,
        task=environment.task,
        graph=graph,
        device=environment.device,
        facts=environment.facts,
        trajectory=None,
        candidate=candidate,
        evaluation=evaluation,
        binaries=environment.binaries(candidate),
    )
    return evaluation, written


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_THE_GATE else pytest.mark.programs) for name in MODULES]
)
def test_verified_applied_run_undone(name: str, worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    text, stays = MODULES[name]
    task = kernels.task(text, name)
    with kernels.environment(worker, cache, task) as environment:
        evaluation, _ = _written(environment, Tier.quick, tmp_path / "result")
    assert tuple(one.partition(" ")[0] for one in evaluation.residual) == stays
    assert 0.0 < evaluation.share_in_our_kernels < 1.0

    source = tmp_path / "model.py"
    source.write_text(text)
    apply_result(tmp_path / "result", source)
    noted = json.loads(Parts(str(tmp_path / "model_kernels"), name).read("provenance.json"))["numbers"]
    assert noted["residual"] == list(evaluation.residual) and noted["share_in_our_kernels"] < 1.0
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def prints(*words: str) -> str:
        argv = [sys.executable, "-c", *words]
        done = subprocess.run(argv, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=240, check=False)
        return done.stdout or done.stderr

    assert prints(USE.format(name=name)) == "served\n"
    undo(source)
    assert source.read_text() == text and not (tmp_path / "model_kernels").exists()
    if name in SAME_IN_TRAINING:
        export(tmp_path / "result", "kernelbench", tmp_path / "exported")
        assert prints(AS_KERNELBENCH_DOES, "exported/model.py", "exported/model_new.py") == "as package\n"


@pytest.mark.slow
def test_full_tier_and_what_is_told(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    """Runs every case of the full tier, with other weights and sizes, and checks the report."""
    with kernels.environment(worker, cache, kernels.task(CONV, "Conv")) as environment:
        evaluation, written = _written(environment, Tier.full, tmp_path / "result")
    best = best_of(evaluation, "generator", ())
    assert best is not None and best.residual == ("conv2d (n0)",) and best.share_in_our_kernels < 1.0
    measured = result(outcome=JobOutcome.no_measurable_gain, best=best, artifacts=written)
    told = next(line for line in report(measured) if "in our kernels" in line)
    assert "(partial)" in told and "PyTorch's own calls: conv2d (n0)" in told


def test_paper_numerics_refuse_it_and_the_search_ends(worker: WorkerClient, cache: Path) -> None:
    task = msgspec.structs.replace(kernels.task(CONV, "Conv"), numerics=Numerics.paper)
    with kernels.environment(worker, cache, task) as environment:
        budget, cancel = Budget(seconds=60), threading.Event()
        trajectory = run_episode(environment, GeneratorPolicy(), budget, emit=lambda event: None, cancel=cancel)
    assert trajectory.stop_reason is StopReason.finished and trajectory.best is None
    (refused,) = [one for step in trajectory.steps for one in step.evaluations]
    assert refused.outcome is Outcome.refused and "paper numerics" in refused.message
