"""Drafts of inputs: what they take from signatures and literal calls, and that they fit the class."""

from __future__ import annotations

import json

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import to_builtins
from kernel_assistant.source.build import build_task
from kernel_assistant.source.draft import draft, drafts, with_draft
from kernel_assistant.worker.opening.open_task import open_task

HEAD = "import torch\nfrom torch import nn\n\n\n"


def module(init, forward, body="return x * 2", before=""):
    made = f"class Net(nn.Module):\n    def __init__(self{init}):\n        super().__init__()\n\n"
    return f"{HEAD}{before}{made}    def forward(self{forward}):\n        {body}\n"


RANDOM = "torch.randn(8, 128, 256)"
CASES = {
    "no arguments": (module("", ", x"), "", "inputs=(torch.randn(8, 128, 256),)"),
    "a width": (module(", dim: int, eps=1e-5", ", x"), "init=(256,)", "inputs=(torch.randn(8, 128, 256),)"),
    "another name": (module(", name: str, on: bool, rate: float", ", x"), "init=('', False, 0.5)", ""),
    "optional inputs are left out": (module("", ", x, mask=None"), "", "inputs=(torch.randn(8, 128, 256),)"),
    "masks, ids and numbers": (
        *(module("", ", input_ids, attention_mask, steps: int", "return input_ids * attention_mask"), ""),
        "inputs=(torch.randint(0, 100, (8, 128)), torch.ones(8, 128, dtype=torch.bool), 1)",
    ),
    "keyword-only": (module(", *, dim", ", *, x"), 'init_kwargs={"dim": 256}', f'kwargs={{"x": {RANDOM}}}'),
    "both kinds": (module("", ", x, *, y", "return x + y"), "", f'inputs=({RANDOM},) kwargs={{"y": {RANDOM}}}'),
    "many": (module("", ", q, k, v, w, x", "return q + k + v + w + x"), "", f"\n# {RANDOM}"),
    "a config": (
        *(module(", config: Config", ", x", before="class Config:\n    width = 4\n\n\n"), "init=(Config(),)"),
        f"inputs=({RANDOM},)",
    ),
}


@pytest.mark.parametrize(("text", "init", "inputs"), CASES.values(), ids=CASES.keys())
def test_a_draft_says_what_the_signatures_say_and_opens(write, text, init, inputs):
    path = write("net.py", text)
    found = draft(f"{path}:Net").text
    assert init in found and inputs in found
    path.write_text(with_draft(text, "Net", found))
    task = build_task(f"{path}:Net", target="cpu", numerics="kernelbench")
    assert open_task(to_builtins(task), "cpu").graph["outputs"]


def test_a_literal_call_of_the_project_gives_the_arguments(write):
    write("pyproject.toml", "")
    path = write("src/net.py", module(", rate, dim, *, bias", ", x"))
    write("use.py", "from src.net import Net\nNet(object(), 3)\nnet = Net(0.25, 96, bias=True)\n")
    found = draft(f"{path}:Net")
    assert 'init_kwargs={"rate": 0.25, "dim": 96, "bias": True}' in found.text
    assert "torch.randn(8, 128, 96)" in found.text
    assert found.origin.endswith("use.py:3")


def test_it_never_runs_the_file(write, run):
    path = write("net.py", "raise SystemExit('ran')\n" + module("", ", x"))
    done = run("draft", "--json", path)
    assert done.returncode == 0, done.stderr
    assert "# kernel-assistant: inputs=" in json.loads(done.stdout)["text"]


def test_drafts_of_other_ranks_follow_the_likeliest(write):
    path = write("net.py", module(", in_channels: int", ", x"))
    shapes = [one.text.partition("randn(")[2].partition(")")[0] for one in drafts(f"{path}:Net")]
    assert shapes == ["8, 256, 32, 32", "8, 256, 128", "8, 128, 256", "8, 256"]
    ids = write("ids.py", module("", ", input_ids"))
    assert len(drafts(f"{ids}:Net")) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_draft_stands_above_decorators_and_is_indented_like_the_class(end):
    text = f"import torch{end}if True:{end}\t@deco{end}\tclass Net(torch.nn.Module):{end}\t\tdef forward(self): ..."
    found = with_draft(text, "Net", "# one\n# two\n")
    assert found == text.replace("\t@deco", f"\t# one{end}\t# two{end}\t@deco")


def test_no_such_class(write):
    path = write("net.py", module("", ", x"))
    with pytest.raises(UsageError, match="class Nat"):
        draft(f"{path}:Nat")
