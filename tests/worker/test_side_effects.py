"""Side effects of a forward besides its result are reported, because kernels do not have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_assistant.environment.stage_messages import of_side_effects
from kernel_assistant.session.reporting.report import facts
from kernel_assistant.worker.opening.open_task import open_task
from tests.common import results
from tests.worker.opened import commented

MODULE = """
import subprocess, torch
CALLS = 0
SEEN = []
CACHE = None
class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.ready = None
        self.child = torch.nn.Linear(4, 4)
    def forward(self, x):
        global CALLS, CACHE
        {code}
        return self.child(x)
"""


def effects(folder: Path, code: str) -> list[str]:
    path = folder / "gate.py"
    path.write_text(MODULE.format(code=code))
    return list(open_task(commented(path, "Gate", "(torch.randn(3, 4),)"), "cpu").facts["side_effects"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", []),
        ("print('called')", ["prints"]),
        ("CALLS += 1", ["changes the global CALLS"]),
        ("SEEN.append(x.shape)", ["changes the global SEEN"]),
        ("self.calls += 1", ["changes self.calls"]),
        ("self.child.last = x + 1", ["changes self.child.last"]),
        ("subprocess.run(['true'])", ["starts true"]),
        ("self.ready = self.ready or 'made once'", []),
        ("CACHE = CACHE or 'made once'", []),
        ("open(__file__).read()", []),
    ],
)
def test_what_a_forward_does_beside_its_result(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert effects(tmp_path, code) == expected


def test_files_are_named(tmp_path: Path) -> None:
    written = tmp_path / "log.txt"
    assert effects(tmp_path, f"open({str(written)!r}, 'a').close()") == [f"writes {written}"]


def test_the_report_says_so_where_there_are_kernels(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps({"side_effects": ["prints", "changes self.calls"]}))
    left = {"facts.json": str(tmp_path / "facts.json")}
    told = ("warning", "Net.forward prints, changes self.calls: its kernels do not do that")
    assert told in facts(results.result(artifacts={**left, "plan.json": "plan.json"}), None)
    assert told not in facts(results.result(artifacts=left), None)
    assert of_side_effects("Net", {}) == of_side_effects("Net", {"side_effects": []}) == ""
    many = of_side_effects("Net", {"side_effects": [f"changes self.x{n}" for n in range(9)]})
    assert many == (
        "Net.forward changes self.x0, changes self.x1, changes self.x2, changes self.x3 and 5 more: "
        "its kernels do not do that"
    )
