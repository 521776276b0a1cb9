"""Tests the screen of free-form Python: every way to PyTorch's operators is refused, honest files pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.environment import freeform_text
from kernel_assistant.environment.screens.screen_python import screen_python, screen_reference

SOLUTION = Path(__file__).with_name("solution.py").read_text(encoding="utf-8")
RETURN = "return self.gelu.scaled_gelu(x.contiguous(), self.shift, row, self.scale)"

FORWARDS = {
    "torch function": "return torch.relu(x)",
    "functional": "return F.relu(x)",
    "functional through nn": "return nn.functional.relu(x)",
    "layer": "return self.linear(x)",
    "layer's forward": "return self.linear.forward(x)",
    "new layer": "return nn.ReLU()(x)",
    "layer in a loop": "for layer in [self.linear]:\n            x = layer(x)\n        return x",
    "tensor method": "return x.softmax(-1)",
    "method of a copy": "y = x\n        return y.mul(2)",
    "method by its class": "return torch.Tensor.relu(x)",
    "in place": "return x.add_(1)",
    "input filled": "x.zero_()\n        return x",
    "matmul": "return x @ x",
    "operator": "return x + 1",
    "operator on a result": "y = self.gelu.scaled_gelu(x, x, x, 1.0)\n        return y * 2",
    "operator on a part": "return x[0] * 2",
    "negation": "return -x",
    "comparison": "return x > 0",
    "augmented": "y = self.gelu.scaled_gelu(x, x, x, 1.0)\n        y *= 2\n        return y",
    "item assignment": "x[0] = 1\n        return x",
    "builtin sum": "return sum([x, x])",
    "builtin abs": "return abs(x)",
    "alias": "t = torch\n        return t.relu(x)",
    "table": "return [torch.relu][0](x)",
    "argument": "return helper(torch.relu, x)",
    "lambda": "return (lambda y: y.relu())(x)",
    "map": "return list(map(torch.relu, [x]))[0]",
    "getattr": "return getattr(torch, 'relu')(x)",
    "torch.ops": "return torch.ops.aten.relu(x)",
    "torch._C": "return torch._C._nn.gelu(x)",
    "einsum": "return torch.einsum('i,i', x, x)",
    "eval": "return eval('x')",
    "exec": "exec('y = x')\n        return x",
    "fallback": f"try:\n            {RETURN}\n        except RuntimeError:\n            return x",
    "own class": "return self.__class__",
    "super's forward": "return super().forward(x)",
    "reference": "return Model(1, 1.0)(x)",
    "data": "x.data = x\n        return x",
    "counter": f"self.calls += 1\n        {RETURN}",
    "global": f"global FEATURES\n        {RETURN}",
    "file": f"open('/etc/passwd')\n        {RETURN}",
    "environment": f"os.environ['PATH'] = ''\n        {RETURN}",
    "program": f"os.system('ls')\n        {RETURN}",
    "tf32": f"torch.backends.cuda.matmul.allow_tf32 = True\n        {RETURN}",
    "patch": f"torch.Tensor.copy_ = None\n        {RETURN}",
    "nested function": f"def inner(y):\n            return y\n        {RETURN}",
    "stream": f"torch.cuda.Stream()\n        {RETURN}",
}

TOPLEVEL = {
    "os": "import subprocess",
    "ctypes": "import ctypes",
    "threads": "from threading import Thread",
    "gc": "import gc",
    "inspect": "import inspect",
    "importlib": "import importlib",
    "time": "import time",
    "numpy": "import numpy as np",
    "star": "from torch.nn.functional import *",
    "functional by name": "from torch.nn.functional import relu",
    "judge": "import kernel_assistant",
    "patched clock": "torch.cuda.synchronize = print",
    "loop": "for name in ():\n    print(name)",
    "decorator": "@torch.compile\ndef fast(x):\n    return x",
    "metaclass": "class Odd(nn.Module, metaclass=abc.ABCMeta):\n    pass",
    "subclass of a tensor": "class Lazy(torch.Tensor):\n    pass",
    "inherits": "class Other(nn.Linear):\n    pass",
    "dunder": "class Odd:\n    def __getattr__(self, name):\n        return 1",
    "C++ with ATen": 'other = """#include <torch/extension.h>\nauto f(at::Tensor x) { return at::softmax(x, -1); }"""',
    "C++ with a file": 'other = """#include "/etc/passwd"\n"""',
    "C++ with a thread": 'other = """#include <thread>\nstd::thread t;"""',
    "C++ around the dispatcher": 'other = """auto f() { return at::native::empty_cpu(1); };"""',
}


def candidate_of(text: str) -> str:
    return freeform_text.candidate_part(text, freeform_text.parse(text, "solution.py"))


def test_honest_file_passes() -> None:
    assert screen_python(candidate_of(SOLUTION)) == ()


@pytest.mark.parametrize("name", FORWARDS)
def test_forward_is_refused_at_its_line(name: str) -> None:
    text = candidate_of(SOLUTION.replace(RETURN, FORWARDS[name]).replace("import math", "import math\nimport os"))
    problems = screen_python(text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "row = self.linear" in row)
    assert any(problem.line > line for problem in problems), problems


@pytest.mark.parametrize("name", TOPLEVEL)
def test_top_level_is_refused(name: str) -> None:
    text = SOLUTION.replace("class ModelNew", TOPLEVEL[name] + "\n\n\nclass ModelNew")
    assert screen_python(text.replace(SOLUTION[SOLUTION.index("class Model(") : SOLUTION.index("cpp_source")], ""))


@pytest.mark.parametrize(
    "change",
    [
        ("class ModelNew(nn.Module)", "class ModelNew(Model)"),
        ("    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        row", "    def call(self, x):\n        row"),
        ("self.gelu = gelu", "self.gelu = gelu\n        self.register_forward_hook(print)"),
        ("self.gelu = gelu", "self.gelu = gelu\n        self.op = torch.relu"),
    ],
)
def test_class_is_refused(change: tuple[str, str]) -> None:
    assert screen_python(candidate_of(SOLUTION.replace(*change)))


def test_triton_kernels_and_their_launch_pass() -> None:
    text = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        double[grid](x, out, n, BLOCK=1024)
        return out
"""
    assert screen_python(text) == ()


def test_parts_keep_lines_and_leave_each_other_out() -> None:
    tree = freeform_text.parse(SOLUTION, "solution.py")
    candidate, reference = candidate_of(SOLUTION), freeform_text.reference_part(SOLUTION, tree)
    assert "class Model(" not in candidate and "def get_inputs" not in candidate and "__main__" not in candidate
    assert "ModelNew" not in reference and "load_inline(name" not in reference and "FEATURES = 512" in reference
    line = SOLUTION.splitlines().index("class ModelNew(nn.Module):")
    assert candidate.splitlines()[line] == "class ModelNew(nn.Module):"


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "import torch\ntorch.load('x')",
        "from os import system",
        "open('x')",
        "import torch\nx = torch.hub",
        "x = ().__class__",
        "import torch\ntorch.ops.load_library('x')",
    ],
)
def test_reference_beside_a_candidate_is_screened(text: str) -> None:
    assert screen_reference(text)
    tree = freeform_text.parse(SOLUTION, "solution.py")
    assert screen_reference(freeform_text.reference_part(SOLUTION, tree)) == ()
