"""Inputs and buffers with gaps, with dimensions in another order, with expanded ones and windows that overlap: judged,
applied, and run on what lies the same way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kernel_assistant.apply import apply_result
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Outcome, Tier
from kernel_assistant.session.artifacts import write_result
from tests.judge import kernels

#: Every input is read where it lies; `place` are integers, which the judge must not change.
TEXT = """
import torch
from torch import nn


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 128).reshape(8, 16)[:, ::2])
        self.register_buffer("row", torch.linspace(-1, 1, 8).expand(8, 8))

    def forward(self, stepped, expanded, turned, windows, place):
        mixed = torch.tanh(stepped * expanded + turned) + windows * self.table
        return mixed + self.row * place


def get_inputs():
    return [
        torch.randn(16, 8, 32)[::2, :, ::4],
        torch.rand(8, 1, 8).expand(8, 8, 8),
        torch.randn(8, 8, 8).permute(1, 2, 0),
        torch.randn(8, 15).unfold(1, 8, 1),
        torch.arange(8).expand(8, 8, 8),
    ]


def get_init_inputs():
    return []
"""

USE = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path.insert(0, "")
from runpy import run_path
import torch
import model

torch.manual_seed(3)
module, given = model.Strided().eval(), model.get_inputs()
plain = model.Strided.forward.__wrapped__
counters = run_path("model_kernels/load.py")["counters"]
with torch.no_grad():
    torch.testing.assert_close(module(*given), plain(module, *given))
    counted = counters()["Strided"]
    assert counted["kernel"] == 1 and not counted["fallbacks"], counted
    room = torch.randn(1 + 16 * 8 * 32)[1:].view(16, 8, 32)[::2, :, ::4]
    assert room.stride() == given[0].stride() and room.data_ptr() % 64
    with torch.profiler.profile():  # through the registered operator, which copies what is not aligned
        torch.testing.assert_close(module(room, *given[1:]), plain(module, room, *given[1:]))
    torch.testing.assert_close(module(room, *given[1:]), plain(module, room, *given[1:]))
    dense = [one.contiguous() for one in given]
    torch.testing.assert_close(module(*dense), plain(module, *dense))
    # Whether what is not aligned is copied, or left to the original, was measured.
    counted = counters()["Strided"]["fallbacks"]
    assert counted.pop("strides") == 1 and set(counted) <= {"alignment"}, counted
print("served")
"""


def test_judged_applied_and_run(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    task = kernels.task(TEXT, "Strided")
    with kernels.environment(worker, cache, task) as environment:
        graph = environment.graph
        assert [value.spec.strides is None for value in graph.inputs].count(True) == 0
        candidate = emit(graph, initial(graph, "cpu", environment.device)[0])
        (evaluation,) = environment.evaluate([candidate], Tier.verify)
        assert evaluation.outcome is Outcome.correct, evaluation.message
        # All cases and the timed calls, whose values are new ones; a busy machine may leave the times unclear.
        (timed,) = environment.evaluate([candidate], Tier.full)
        assert timed.outcome in (Outcome.correct, Outcome.inconclusive), timed.message
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
    source = tmp_path / "model.py"
    source.write_text(TEXT)
    apply_result(tmp_path / "result", source)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "served\n", done.stderr
