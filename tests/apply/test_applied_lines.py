"""Tests the times of a class with applied kernels: the original lines are timed, then the kernels are on again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_assistant.apply import apply_result
from kernel_assistant.records import to_builtins
from kernel_assistant.source import build_task
from tests.apply.conftest import ROOT, MakeResult, Python

PROFILE = """
import json, sys
from kernel_assistant.worker.lines.line_profile import profile_lines
from kernel_assistant.worker.measuring.roofline import Roofline
found = profile_lines(json.loads(sys.argv[1]), "cpu", 0.1, Roofline())
import model_kernels, torch
before = model_kernels.counters()
from model import Gate
with torch.no_grad():
    Gate().eval()(torch.ones(8, 64))
after = model_kernels.counters()
print(json.dumps([found["lines"], before["Gate"], after["Gate"]]))
"""


@pytest.mark.slow
def test_lines_below_applied_kernels_are_timed(
    model: Path, make_result: MakeResult, user_file: str, python: Python
) -> None:
    text = user_file.replace("class Gate", "# kernel-assistant: inputs=(torch.ones(8, 64),)\nclass Gate")
    model.write_text(text)
    apply_result(make_result(text), model)
    applied = model.read_text()
    task = to_builtins(build_task(f"{model}:Gate", target="cpu", numerics="kernelbench"))
    out = python(PROFILE, model.parent, json.dumps(task), env={"PYTHONPATH": f"{ROOT}:{model.parent}"})
    lines, before, after = json.loads(out)
    (row,) = lines
    assert applied.splitlines()[row["line"] - 1].strip().startswith("return self.out(") and row["ms"] > 0
    assert before == {"kernel": 0, "fallbacks": {}}
    assert after == {"kernel": 1, "fallbacks": {}}
