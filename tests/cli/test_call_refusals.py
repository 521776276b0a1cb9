"""Tests which calls the Python function refuses, each with its reason, before anything is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

DEFINE = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"

SCRIPT = """
import json, sys
import net, torch
from kernel_assistant import optimize
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.client import Client
from kernel_assistant.config import resolve
x = torch.ones(3)

def local():
    class Inner(torch.nn.Module):
        pass
    return Inner()

def unpicklable():
    module = net.Net()
    module.f = lambda x: x
    return module

def from_text():
    exec("class Typed(torch.nn.Module): pass", globals())
    return Typed()

for call in json.loads(sys.argv[1]):
    try:
        eval(call)
        print(json.dumps(["nothing", "", ""]))
    except KernelAssistantError as error:
        print(json.dumps([type(error).__name__, error.cause, error.next_step]))
assert Client(resolve()[0]).status() is None, "a host was started"
"""

CASES = {
    "optimize(3, [])": "int is not a torch.nn.Module",
    "optimize(from_text(), [x])": "has no source",
    "optimize(local(), [x])": "not at the top level",
    "optimize(unpicklable(), [x])": "does not pickle",
    "optimize(net.Net(), [object()])": "the inputs cannot be saved",
    "optimize(net.Net(), [x], target='tpu')": "target",
    "optimize(net.Net(), [x], budget=-1)": "budget",
    "optimize(net.Net(), [x], numerics='lax')": "numerics",
    "optimize(net.Net(), [x], policy='magic')": "policy",
}


def run_script(home, calls, **environment):
    (home / "net.py").write_text(DEFINE)
    (home / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", json.dumps(calls)],
        cwd=home,
        # torch says so where numpy is not installed; nothing here needs it.
        env={**os.environ, "PYTHONWARNINGS": "ignore:Failed to initialize NumPy", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_refusal_says_why_and_what_to_do(home):
    answers = run_script(home, list(CASES))
    for (kind, cause, next_step), words in zip(answers, CASES.values(), strict=True):
        assert kind == "UsageError" and words in cause and next_step


def test_a_script_that_calls_while_it_is_imported_is_told_so(home):
    ((kind, cause, next_step),) = run_script(home, ["optimize(net.Net(), [x])"], KERNEL_ASSISTANT_INSIDE_TASK="1")
    assert kind == "UsageError" and "is imported" in cause and "__main__" in next_step
