"""`profile --lines` from the command line to the store: a real host, a real worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_assistant.cli import main
from kernel_assistant.records.codec import decode
from kernel_assistant.records.line_profile import LineProfile
from kernel_assistant.session.kinds.lines_job import class_source, latest_lines
from kernel_assistant.store import Store

TEXT = """\
import torch
from torch import nn


# kernel-assistant: inputs=(torch.randn(64, 64),)
class Net(nn.Module):
    def forward(self, x):
        y = x @ x
        return y.tanh()
"""


@pytest.mark.slow
def test_lines_of_a_module(settings, tmp_path: Path, capsys) -> None:
    path = tmp_path / "with spaces ä.py"
    path.write_text(TEXT)
    assert main(["profile", "--lines", "--target", "cpu", "--json", f"{path}:Net"]) == 0
    profile = decode(capsys.readouterr().out, LineProfile)
    assert [(row.line, row.function) for row in profile.lines] == [(8, "forward"), (9, "forward")]
    assert (profile.first_line, profile.last_line, profile.class_name) == (6, 9, "Net")
    assert profile.lines[0].flops == 2 * 64**3 and profile.lines[0].kernels[0].name == "aten::mm"
    rows = Store(settings.state_dir).jobs_of(str(path))
    assert latest_lines(rows, "Net") == profile and latest_lines(rows, "Other") is None
    assert main(["profile", "--lines", "--target", "cpu", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "        y = x @ x" in shown and "aten::mm" in shown
    path.write_text(TEXT.replace("x @ x", "x @ missing"))
    assert main(["profile", "--lines", "--target", "cpu", str(path)]) == 2
    assert "NameError" in capsys.readouterr().err


def test_the_class_with_its_decorators() -> None:
    text = "x = 1\n\n@dec\n@other(\n    1\n)\nclass Net:\n    pass\n\n\ny = 2\n"
    assert class_source(text, "Net") == (3, "@dec\n@other(\n    1\n)\nclass Net:\n    pass\n")
    assert json.dumps(class_source(text, "Missing")) == json.dumps([1, text])
