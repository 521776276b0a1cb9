"""The folder that a job leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

from kernel_assistant.session.artifacts import write_result
from kernel_assistant.targets import cpu
from tests.common.tasks import task_of


def test_facts_keep_the_order_of_keys(tmp_path: Path) -> None:
    """A module that returns {"query": …, "key": …} must return the same order with its kernels."""
    result = {"dict": {"query": {"output": 0}, "key": {"output": 1}}}
    nothing = dict.fromkeys(("graph", "trajectory", "candidate", "evaluation"))
    facts = {"result": result, "inputs": []}
    task = task_of("/a.py", "", "A")
    write_result(tmp_path / "result", task=task, device=cpu.facts(), facts=facts, binaries={}, **nothing)
    read = json.loads((tmp_path / "result" / "facts.json").read_text(encoding="utf-8"))
    assert list(read["result"]["dict"]) == ["query", "key"]
