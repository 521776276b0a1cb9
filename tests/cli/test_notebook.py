"""Tests the Python call with classes of a notebook's cells, in a real IPython, and of Python's own prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kernel_assistant.errors import EXIT_USAGE
from kernel_assistant.records import JobOutcome, OptimizeResult, decode

#: Runs the cells of a JSON list as a notebook's kernel does; the first error ends it.
SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in json.loads(sys.stdin.read()):
    shell.run_cell(cell, store_history=True).raise_error()
"""

IMPORTS = """\
from __future__ import annotations
import torch
from torch import nn
import kernel_assistant, warnings
from kernel_assistant.errors import KernelAssistantError

STEPS = 3
SCALE = 9.0
x = torch.randn(32, 512)

def step(x, scale):
    return torch.relu(x * scale - 0.5) - 0.125

def refused(call):
    try:
        call()
    except KernelAssistantError as error:
        print(json.dumps([type(error).__name__, error.cause, error.next_step]))
"""

CHAIN = """\
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = len(table)

    def forward(self, x):
        for _ in range(STEPS):
            x = step(x, SCALE)
        return x
"""

BUILD = """\
import json
table = torch.utils.data.TensorDataset(torch.zeros(4))
module = Chain().eval()
"""

OPTIMIZE = """\
told = []
wanted = {"target": "cpu", "budget": 60, "policy": "generator", "progress": told.append}
result = kernel_assistant.optimize(module, [x], **wanted)
assert any(line.startswith("turn 1: ") for line in told)
"""

USE = """\
from kernel_assistant.records import encode
fast = kernel_assistant.accelerated(module, result, force=True)
model = nn.Sequential(nn.Identity(), module)
inside = kernel_assistant.accelerated(model, result, force=True)
with torch.no_grad():
    equal = [torch.allclose(one(x), module(x), atol=1e-3) for one in (fast, inside)]
counted = [one.kernel_counters()["Chain"] for one in (fast, inside[1])]
same = [isinstance(fast, Chain), type(module) is Chain, type(model[1]) is Chain]
print(json.dumps([equal, [one["kernel"] for one in counted], [one["fallbacks"] for one in counted], same]))
print(encode(result).decode())
"""

AGAIN = "refused(lambda: kernel_assistant.accelerated(Chain().eval(), result, force=True))"


@pytest.fixture
def session(home):
    """A function: cells → the lines that they print."""

    def run_cells(*cells, **environment):
        environ = {**os.environ, "IPYTHONDIR": str(home / "ipython"), **environment}
        told = {"input": json.dumps(cells), "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, "-c", SESSION], cwd=home, env=environ, check=False, **told)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run_cells


@pytest.mark.timed
@pytest.mark.slow
def test_a_module_of_two_cells_is_optimized_and_runs_its_kernels_in_the_session(run, home, scripted, session):
    # Cells run again in another order: the newest of each definition is the one that counts.
    newest = "STEPS = 12\nSCALE = 1.25"
    cells = (IMPORTS, CHAIN.replace("STEPS", "2 * STEPS"), newest, CHAIN, BUILD, OPTIMIZE, USE)
    changes = ("SCALE = 2.5", AGAIN, newest, "Chain.forward = lambda self, x: x", AGAIN)
    *_, used, written, edited, replaced = session(*cells, *changes, JPY_SESSION_NAME="/home/me/norms.ipynb")
    equal, kernels, fallbacks, same = json.loads(used)
    assert equal == [True, True] and min(kernels) >= 1 and fallbacks == [{}, {}] and same == [True, True, True]
    result = decode(written, OptimizeResult)
    assert result.task == "cells.py:Chain" and result.session == "the notebook /home/me/norms.ipynb"
    assert result.outcome in (JobOutcome.improved, JobOutcome.no_measurable_gain, JobOutcome.inconclusive)
    assert result.best is not None and result.free_wins
    # A class that has changed since its job gets no kernels.
    kind, cause, next_step = zip(*map(json.loads, (edited, replaced)), strict=True)
    assert kind == ("UsageError", "UsageError")
    assert cause[0] == "Chain has changed since the job" and next_step[0] == "optimize it again"
    assert "Chain.forward (changed after the cell of Chain ran)" in cause[1]

    assert "Chain was typed into the notebook /home/me/norms.ipynb" in run("show").stdout
    applied = run("apply", "last", "--force")
    assert applied.returncode == EXIT_USAGE
    assert "Chain of job 1 is of the notebook /home/me/norms.ipynb: there is no file to apply to" in applied.stderr
    assert "kernel-assistant export 1 DIR --to package" in applied.stderr
    assert run("apply", "last", "--force", "--into", home / "train.py").returncode == EXIT_USAGE

    run("export", "last", home / "exported", "--to", "package", code=0)
    use = "import torch; from chain_kernels import Chain; print(Chain.forward(None, torch.ones(1, 512)).shape)"
    folder = home / "exported"
    plain = subprocess.run([sys.executable, "-c", use], cwd=folder, capture_output=True, text=True, check=True)
    assert plain.stdout == "torch.Size([1, 512])\n"


#: What the session has → what Net computes of it, and what is said.
REFUSALS = {
    "rows = iter([1])": ("x + next(rows)", "rows (list_iterator, used by Net)", "keep it in the module"),
    "bias = torch.ones(3)": ("x + bias", "bias (Tensor, used by Net)", "a tensor as a buffer"),
    "def first(): return next(rows)": ("x + first()", "rows (list_iterator, used by first)", "keep it in the module"),
    "def make():\n    y = 2\n    return lambda x: x + y\nadd = make()": (
        "add(x) + bias",
        "add (its text is not kept), bias (Tensor, used by Net)",
        "move it to a .py file",
    ),
    "class Base(nn.Module): pass\nclass Inner(Base): pass\nclass Base(nn.Module): size = 2": (
        "Inner()(x)",
        "Inner (made of an earlier Base)",
        "run the cell of the class again",
    ),
}


def test_what_cannot_be_carried_is_named(session):
    net = "class Net(nn.Module):\n    def forward(self, x):\n        return {}"
    call = "refused(lambda: kernel_assistant.optimize(Net(), [torch.ones(3)]))"
    cells = [cell for names, (body, _, _) in REFUSALS.items() for cell in (names, net.format(body), call)]
    answers = list(map(json.loads, session("import json", IMPORTS, *cells)))
    for (kind, cause, said), (_, what, next_step) in zip(answers, REFUSALS.values(), strict=True):
        assert kind == "UsageError" and next_step in said
        assert cause == f"Net needs what cannot be carried out of an IPython session: {what}"


def test_an_instance_of_an_earlier_class_is_told_to_be_made_anew(session):
    net = "class Net(nn.Module):\n    def forward(self, x): return x"
    call = "refused(lambda: kernel_assistant.optimize({}, [torch.ones(3)]))"
    once = "module = Net()\nnested = nn.Sequential(Net())"
    outer = (
        "class Outer(nn.Module):\n    def forward(self, x): return self.inner(x)\nouter = Outer(); outer.inner = nested"
    )
    lines = session("import json", IMPORTS, net, once, net, call.format("module"), outer, call.format("outer"))
    for kind, _, next_step in map(json.loads, lines):
        assert kind == "UsageError" and next_step == "make the module anew, with the newest classes"


PROMPT = """\
import torch, kernel_assistant
class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1

kernel_assistant.optimize(Net(), [torch.ones(3)])
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this prompt keeps what is typed")
def test_a_prompt_that_keeps_no_text_is_told_in_one_sentence(home):
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=PROMPT, cwd=home, capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    place = next(number for number, line in enumerate(lines) if "kernel_assistant.errors.UsageError" in line)
    why = "the source of Net is not kept by this session: Python's own prompt keeps what is typed from Python 3.13 on"
    next_step = "put the class into a .py file and import it, or use IPython or Jupyter"
    assert lines[place : place + 2] == [f"kernel_assistant.errors.UsageError: {why}", next_step]
