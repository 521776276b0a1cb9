"""Inputs and buffers with gaps, turned, expanded or overlapping: judged, applied, and run on what lies the same way."""

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
from tests.worker.opened import module_text

#: Every input is read where it lies; `place` are integers, which the judge must not change.
TEXT = module_text(
    """mixed = torch.tanh(stepped * expanded + turned) + windows * self.table
return mixed + self.row * place""",
    """
    torch.randn(16, 8, 32)[::2, :, ::4],
    torch.rand(8, 1, 8).expand(8, 8, 8),
    torch.randn(8, 8, 8).permute(1, 2, 0),
    torch.randn(8, 15).unfold(1, 8, 1),
    torch.arange(8).expand(8, 8, 8),
    """,
    """self.register_buffer("table", torch.linspace(-1, 1, 128).reshape(8, 16)[:, ::2])
self.register_buffer("row", torch.linspace(-1, 1, 8).expand(8, 8))""",
    "stepped, expanded, turned, windows, place",
)
USE = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path.insert(0, "")
from runpy import run_path
import torch
import model

torch.manual_seed(3)
module, given = model.Model().eval(), model.get_inputs()
plain = model.Model.forward.__wrapped__
counters = run_path("model_kernels/load.py")["counters"]
with torch.no_grad():
    torch.testing.assert_close(module(*given), plain(module, *given))
    counted = counters()["Model"]
    assert counted["kernel"] == 1 and not counted["fallbacks"], counted
    room = torch.randn(1 + 16 * 8 * 32)[1:].view(16, 8, 32)[::2, :, ::4]
    assert room.stride() == given[0].stride() and room.data_ptr() % 64
    with torch.profiler.profile():  # through the registered operator, which copies what is not aligned
        torch.testing.assert_close(module(room, *given[1:]), plain(module, room, *given[1:]))
    torch.testing.assert_close(module(room, *given[1:]), plain(module, room, *given[1:]))
    dense = [one.contiguous() for one in given]
    torch.testing.assert_close(module(*dense), plain(module, *dense))
    # Whether what is not aligned is copied, or left to the original, was measured.
    counted = counters()["Model"]["fallbacks"]
    assert counted.pop("strides") == 1 and set(counted) <= {"alignment"}, counted
print("served")
"""


def test_judged_applied_and_run(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    task = kernels.task(TEXT, "Model")
    with kernels.environment(worker, cache, task) as environment:
        graph = environment.graph
        assert [value.spec.strides is None for value in graph.inputs].count(True) == 0
        candidate = emit(graph, initial(graph, "cpu", environment.device)[0])
        (evaluation,) = environment.evaluate([candidate], Tier.verify)
        assert evaluation.outcome is Outcome.correct, evaluation.message
        # All cases and the timed calls, whose values are new ones; a busy machine may leave the times unclear.
        (timed,) = environment.evaluate([candidate], Tier.full)
        assert timed.outcome in (Outcome.correct, Outcome.inconclusive), timed.message
        about = {"task": task, "graph": graph, "device": environment.device, "facts": environment.facts}
        judged = {"candidate": candidate, "evaluation": evaluation, "binaries": environment.binaries(candidate)}
        write_result(tmp_path / "result", trajectory=None, **about, **judged)
    source = tmp_path / "model.py"
    source.write_text(TEXT)
    apply_result(tmp_path / "result", source)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "served\n", done.stderr
