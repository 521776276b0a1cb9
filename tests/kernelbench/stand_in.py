"""A checkout with the functions of KernelBench that an evaluation on the CPU calls, under the same names."""

from __future__ import annotations

from pathlib import Path

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return {result}

def get_inputs():
    return [torch.rand(64, 256)]

def get_init_inputs():
    return [256]
"""

EVAL = """
import openai  # as KernelBench, for language models
import torch

class KernelExecResult:
    def __init__(self, compiled=False, correctness=False, metadata=None):
        self.compiled, self.correctness, self.metadata = compiled, correctness, metadata or {}
        self.runtime = self.ref_runtime = -1.0
        self.runtime_stats = {}

def set_seed(seed):
    torch.manual_seed(seed)

def get_tolerance_for_precision(precision):
    return 1e-4

def load_original_model_and_inputs(text, context):
    exec(text, context)
    return context["Model"], context["get_init_inputs"], context["get_inputs"]

def load_custom_model(text, context, build_directory=None):
    exec(text, context)
    return context.get("ModelNew")

def run_and_check_correctness(model, new, get_inputs, metadata, num_correct_trials, seed, device, precision):
    for _ in range(num_correct_trials):
        inputs = get_inputs()
        torch.cuda.synchronize(device=device)
        with torch.no_grad():
            if not torch.allclose(model(*inputs), new(*inputs), atol=1e-4, rtol=1e-4):
                metadata["correctness_issue"] = "Output mismatch"
                return KernelExecResult(True, False, metadata)
    return KernelExecResult(True, True, metadata)
"""


def write_checkout(root: Path) -> None:
    """Writes it into the folder `root`, beside the problems."""
    package = root / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "eval.py").write_text(EVAL)
    (package / "timing.py").write_text("")


def write_problem(root: Path, level: int, name: str, result: str) -> None:
    """Writes a problem whose module returns the expression `result` of `x` and `self.linear`."""
    path = root / "KernelBench" / f"level{level}" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROBLEM.format(result=result))
