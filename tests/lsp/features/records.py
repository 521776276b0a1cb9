"""Records in the form in which jobs leave them, for the pure functions."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.records import JobOutcome
from kernel_assistant.records.line_profile import LineKernel, LineProfile, LineTime
from kernel_assistant.store import JobKind, JobOptions, JobRow, JobState
from kernel_assistant_lsp.text.snapshot import Snapshot
from tests.common import results
from tests.common.tasks import task_of
from tests.session.episodes import win

TEXT = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = torch.cat(
            [x, x],
        )
        return y.tanh() @ y.mT
"""


def snapshot(text: str = TEXT, name: str = "net.py", encoding: str = "utf-16") -> Snapshot:
    return Snapshot(f"file:///project/{name}", Path("/project") / name, text, 1, encoding)


def job(outcome: JobOutcome = JobOutcome.improved, *, content: str = TEXT, partial: bool = False) -> JobRow:
    figures = {"speedup_vs_eager": 3.414, "speedup_vs_compile": 2.1, "speedup_vs_compile_ci": (1.9, 2.3)}
    figures |= {"error_vs_fp64": 1.5e-7, "relative_error": 2e-8, "error_ratio": 0.9, "roofline": 0.81}
    figures |= {"share_in_our_kernels": 0.7, "residual": ("aten::sort",)} if partial else {}
    best = results.best(**figures)
    wins = (win("freezing", 1.25, spread=0.04, write="freezing = True"),)
    result = results.result(outcome=outcome, best=best, evaluations=17, seconds=12.0, free_wins=wins)
    task = task_of("/project/net.py", content)
    options = JobOptions(kind=JobKind.optimize)
    return JobRow(id="7", task=task, options=options, state=JobState.done, ended=1_790_000_000.0, result=result)


def profile(target: str = "cpu") -> LineProfile:
    source = TEXT.partition("\n\n\n")[2]
    seven = {"line": 7, "end_line": 9, "ms": 0.25, "host_ms": 0.25, "share": 0.2}
    ten = {"line": 10, "end_line": 10, "ms": 1.0, "host_ms": 1.0, "share": 0.8}
    ten |= {"read_bytes": 3_000_000, "written_bytes": 1_000_000, "flops": 2_000_000_000, "roofline": 0.42}
    kernels = (LineKernel(name="void cutlass::Kernel<a, b>(int)", calls=1, ms=0.3),)
    lines = (
        LineTime(function="forward", calls=1, **seven),
        LineTime(function="forward", calls=1, **ten, kernels=kernels),
    )
    module = {"path": "/project/net.py", "class_name": "Net", "source": source, "first_line": 5}
    run = {"device": "a device", "torch": "2.13.0", "workload": "default", "ms": 1.25, "runs": 50}
    return LineProfile(**module, **run, target=target, lines=lines)
