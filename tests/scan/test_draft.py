"""Drafts of inputs: what they take from signatures and literal calls, and that they fit the class."""

from __future__ import annotations

import json

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.source.build import build_task
from kernel_assistant.source.draft import draft
from kernel_assistant.worker.open_task import open_task

HEAD = "import torch\nfrom torch import nn\n\n\n"


def module(init, forward, body="return x * 2", before=""):
    lines = [
        "class Net(nn.Module):",
        f"    def __init__(self{init}):",
        "        super().__init__()",
        "",
        f"    def forward(self{forward}):",
        f"        {body}",
    ]
    return HEAD + before + "\n".join(lines) + "\n"


CASES = {
    "no arguments": (module("", ", x"), None, "[torch.randn(8, 128, 256)]"),
    "a width": (module(", dim: int, eps=1e-5", ", x"), "[256]", "[torch.randn(8, 128, 256)]"),
    "another name": (module(", name: str, on: bool, rate: float", ", x"), "['', False, 0.5]", None),
    "optional inputs are left out": (module("", ", x, mask=None"), None, "[torch.randn(8, 128, 256)]"),
    "masks, ids and numbers": (
        module("", ", input_ids, attention_mask, steps: int", "return input_ids * attention_mask"),
        None,
        "[torch.randint(0, 100, (8, 128)), torch.ones(8, 128, dtype=torch.bool), 1]",
    ),
    "keyword-only": (module(", *, dim", ", *, x"), '{"dim": 256}', '{"x": torch.randn(8, 128, 256)}'),
    "a config": (
        module(", config: Config", ", x", before="class Config:\n    width = 4\n\n\n"),
        "[Config()]",
        "[torch.randn(8, 128, 256)]",
    ),
}


@pytest.mark.parametrize(("text", "init", "inputs"), CASES.values(), ids=CASES.keys())
def test_a_draft_says_what_the_signatures_say_and_opens(write, text, init, inputs):
    path = write("net.py", text)
    found = draft(f"{path}:Net").text
    if init is not None:
        assert f"def get_init_inputs():\n    return {init}" in found
    if inputs is not None:
        assert f"def get_inputs():\n    return {inputs}" in found
    path.write_text(text + "\n\n" + found)
    task = build_task(f"{path}:Net", target="cpu", numerics="kernelbench")
    assert open_task(to_builtins(task), "cpu").graph["outputs"]


def test_a_literal_call_of_the_project_gives_the_arguments(write):
    write("pyproject.toml", "")
    path = write("src/net.py", module(", rate, dim, *, bias", ", x"))
    write("use.py", "from src.net import Net\nNet(object(), 3)\nnet = Net(0.25, 96, bias=True)\n")
    found = draft(f"{path}:Net")
    assert 'return {"rate": 0.25, "dim": 96, "bias": True}' in found.text
    assert "torch.randn(8, 128, 96)" in found.text
    assert found.origin.endswith("use.py:3")


def test_it_never_runs_the_file(write, run):
    path = write("net.py", "raise SystemExit('ran')\n" + module("", ", x"))
    done = run("draft", "--json", path)
    assert done.returncode == 0, done.stderr
    assert "get_inputs" in json.loads(done.stdout)["text"]


def test_no_such_class(write):
    path = write("net.py", module("", ", x"))
    with pytest.raises(UsageError, match="class Nat"):
        draft(f"{path}:Nat")
