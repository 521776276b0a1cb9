"""From a user's file to an applied result with PyTorch's own calls in it, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_assistant.apply import apply_result, undo
from kernel_assistant.apply.exporting.export import export
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.session.artifacts import write_result
from kernel_assistant.worker.applied.parts import Parts
from tests.common.kernelbench import AS_KERNELBENCH_DOES
from tests.judge import kernels
from tests.residual.modules import MODULES

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


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    started = kernels.new_worker(tmp_path_factory.mktemp("worker") / "worker.log")
    yield started
    started.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


#: In the gate: PyTorch's own operators, and one of another library.
IN_THE_GATE = ("Attention", "Turned")

#: KernelBench's form is tried with these: training mode changes nothing of them.
SAME_IN_TRAINING = ("Linear", "Attention")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_THE_GATE else pytest.mark.programs) for name in MODULES]
)
def test_verified_applied_run_undone(name: str, worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    text, stays = MODULES[name]
    task = kernels.task(text, name)
    with kernels.environment(worker, cache, task) as environment:
        graph = environment.graph
        candidate = emit(graph, initial(graph, "cpu", environment.device)[0])
        (evaluation,) = environment.evaluate([candidate], Tier.quick)
        assert evaluation.outcome is Outcome.correct, evaluation.message
        write_result(
            tmp_path / "result",
            task=task,
            graph=graph,
            device=environment.device,
            facts=environment.facts,
            trajectory=None,
            candidate=candidate,
            evaluation=evaluation,
            binaries=environment.binaries(candidate),
        )
    assert tuple(one.partition(" ")[0] for one in evaluation.residual) == stays
    assert 0.0 < evaluation.share_in_our_kernels < 1.0

    source = tmp_path / "model.py"
    source.write_text(text)
    apply_result(tmp_path / "result", source)
    noted = json.loads(Parts(str(tmp_path / "model_kernels"), name).read("provenance.json"))["numbers"]
    assert noted["residual"] == list(evaluation.residual) and noted["share_in_our_kernels"] < 1.0
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    code = USE.format(name=name)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "served\n", done.stderr
    undo(source)
    assert source.read_text() == text and not (tmp_path / "model_kernels").exists()
    if name in SAME_IN_TRAINING:
        export(tmp_path / "result", "kernelbench", tmp_path / "exported")
        command = [sys.executable, "-c", AS_KERNELBENCH_DOES, "exported/model.py", "exported/model_new.py"]
        done = subprocess.run(
            command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.stdout == "as package\n", done.stderr
