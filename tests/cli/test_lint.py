"""`kernel-assistant lint` as a person runs it."""

from __future__ import annotations

import json

from tests.common.commands import run_here

SLOW = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x.exp().item()
"""


def test_lines_and_exit_code(home) -> None:
    (home / "net.py").write_text(SLOW)
    (home / "venv").mkdir()
    (home / "venv" / "other.py").write_text(SLOW)
    told = run_here("lint", home)
    line, last = told.stdout.splitlines()
    assert told.returncode == 1 and line.startswith(f"{home}/net.py:7:16: KA005 .item() needs the value")
    assert last == "1 hint: 1 × host synchronisation in forward"
    told = run_here("lint", "--ignore", "ka005", home)
    assert (told.returncode, told.stdout) == (0, "no hints\n")


def test_a_project_leaves_codes_out(home) -> None:
    (home / "net.py").write_text(SLOW)
    (home / "pyproject.toml").write_text('[tool.kernel-assistant]\nignore_hints = ["ka005"]\n')
    told = run_here("lint", home)
    assert (told.returncode, told.stdout) == (0, "no hints\n")


def test_json_has_the_page(home) -> None:
    (home / "net.py").write_text(SLOW)
    told = run_here("lint", "--json", home / "net.py")
    (hint,) = json.loads(told.stdout)
    assert (told.returncode, hint["code"], hint["class_name"], hint["line"]) == (1, "KA005", "Net", 7)
    assert hint["href"].endswith("docs/diagnostics.md#ka005")


def test_what_cannot_be_read_is_said(home) -> None:
    (home / "bad.py").write_bytes(b"\xff\xfe")
    told = run_here("lint", home)
    assert told.returncode == 0 and "bad.py is not UTF-8" in told.stderr
    assert run_here("lint", "--ignore", "KA999", home).returncode == 2
