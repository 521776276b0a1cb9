"""`kernel-assistant lint` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_assistant.cli import main

SLOW = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x.exp().item()
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))


def test_lines_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(SLOW)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "other.py").write_text(SLOW)
    assert main(["lint", str(tmp_path)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path}/net.py:7:16: KA005 .item() needs the value")
    assert last == "1 hint: 1 × host synchronisation in forward"
    assert main(["lint", "--ignore", "ka005", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no hints\n"


def test_a_project_leaves_codes_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(SLOW)
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-assistant]\nignore_hints = ["ka005"]\n')
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no hints\n"


def test_json_has_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(SLOW)
    assert main(["lint", "--json", str(tmp_path / "net.py")]) == 1
    (hint,) = json.loads(capsys.readouterr().out)
    assert (hint["code"], hint["class_name"], hint["line"]) == ("KA005", "Net", 7)
    assert hint["href"].endswith("docs/diagnostics.md#ka005")


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe")
    assert main(["lint", str(tmp_path)]) == 0
    assert "bad.py is not UTF-8" in capsys.readouterr().err
    assert main(["lint", "--ignore", "KA999", str(tmp_path)]) == 2
