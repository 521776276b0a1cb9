from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.worker.opening.open_task import open_task
from kernel_assistant.worker.process.worker_errors import TaskError
from tests.worker.opened import commented, module_text

BROKEN = Path(__file__).parent.parent / "data" / "modules" / "bad" / "broken.py"
X = "(torch.randn(4, 6),)"


def failure(class_name: str, args: str = X, path: Path = BROKEN, **changes: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        open_task({**commented(path, class_name, args), **changes}, "cpu")
    error = caught.value
    for line in (error.message, error.next_step):
        assert line and "\n" not in line and "Traceback" not in line and len(line) < 500
    return error


CLASSES = {
    "Missing": ("no_class", "Missing is not defined"),
    "NotAModule": ("no_class", "NotAModule is not defined"),
    "TwoArguments": ("cannot_build", "TwoArguments(width, height) cannot be built from what is declared: missing"),
    "RaisesInInit": ("cannot_build", "RaisesInInit failed at broken.py:19: ValueError: the width must be even"),
    "ExitsInInit": ("cannot_build", "building ExitsInInit failed at broken.py:27: SystemExit: 3"),
    "HugeInit": ("out_of_memory", "building HugeInit needs 37252.9 GiB"),
    "WrongSizes": ("forward_failed", "WrongSizes.forward failed at broken.py:44: RuntimeError: mat1 and mat2"),
    "HugeInside": ("out_of_memory", "a value inside HugeInside.forward needs 894.1 GiB"),
    "WantsMore": ("forward_failed", "WantsMore.forward(x, y) does not take the declared inputs: missing"),
    "AlwaysDrops": ("nondeterministic", "draws random numbers: dropout"),
    "DrawsNoise": ("nondeterministic", "draws random numbers: randn_like"),
    "CountsCalls": ("nondeterministic", "CountsCalls.forward gives different results"),
    "WritesInput": ("mutates_inputs", "WritesInput.forward changes its input tensor 0"),
    "WritesInputData": ("mutates_inputs", "WritesInputData.forward changes its input tensor 0"),
    "WritesParameter": ("mutates_inputs", "WritesParameter.forward changes its own total"),
    "ReplacesBuffer": ("mutates_inputs", "ReplacesBuffer.forward changes its own total"),
    "ReadsScale": ("unsupported_input", "ReadsScale.forward uses a tensor that the module does not hold"),
    "ReadsTable": ("unsupported_input", "ReadsTable.forward uses a tensor that the module does not hold"),
    "ReturnsNumber": ("unsupported_output", "ReturnsNumber.forward returns a int"),
    "ReturnsNothing": ("unsupported_output", "ReturnsNothing.forward returns no tensor"),
    "ReturnsComplex": ("unsupported_output", "torch.complex64"),
    "ComplexInside": ("unsupported_output", "Inside: forward computes with torch.strided tensors of torch.complex64"),
    "BranchesOnValues": ("forward_failed", "BranchesOnValues.forward: broken.py:131 (return x * 2 if float"),
    "ValueSizes": ("forward_failed", "trace ValueSizes.forward: a tensor inside has a size that depends on values"),
}


def test_a_branch_on_values_says_what_to_write_instead() -> None:
    error = failure("BranchesOnValues")
    assert "torch.where" in error.next_step and "Guard" not in error.message
    helper = "import torch\n\n\ndef halve(x):\n    while x.max() > 1:\n        x = x / 2\n    return x\n"
    text = f"{helper}\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return halve(x)\n"
    assert "broken.py:5 (while x.max() > 1:)" in failure("Net", content=text).message


INPUTS = {
    "(torch.randn(4, 6, 0.5),)": ("no_inputs", "making the inputs of WrongSizes (workload default) failed: TypeError"),
    "(undefined_name,)": ("no_inputs", "NameError: name 'undefined_name' is not defined"),
    "(torch.randn(10**12),)": ("out_of_memory", "needs 3725.3 GiB"),
    "(torch.zeros(4, 4).to_sparse(),)": ("unsupported_input", "input 0 of WrongSizes is a torch.sparse_coo"),
    "(torch.zeros(4, dtype=torch.complex64),)": ("unsupported_input", "torch.complex64"),
    "([torch.zeros(4), {'a': object()}],)": ("unsupported_input", "input 0[1]['a'] of WrongSizes is a object"),
    "": ("no_inputs", "broken.py declares no inputs for WrongSizes"),
    "(exit(),)": ("no_inputs", "SystemExit"),
    "(input(),)": ("no_inputs", "EOFError"),
}


@pytest.mark.parametrize(
    ("class_name", "args", "kind", "cause"),
    [
        *((name, X, *row) for name, row in CLASSES.items()),
        *(("WrongSizes", args, *row) for args, row in INPUTS.items()),
    ],
)
def test_classes_and_inputs(class_name: str, args: str, kind: str, cause: str) -> None:
    error = failure(class_name, args)
    assert (error.kind, cause in error.message) == (kind, True), error.message


def test_an_object_among_recorded_inputs_is_named_with_what_to_do(tmp_path: Path) -> None:
    error = failure("WrongSizes", "(torch.zeros(4), {'past': object()})", recording=str(tmp_path), init="()")
    assert "input 1['past'] of WrongSizes is a object" in error.message
    assert "use_cache=False" in error.next_step and "scan it again" in error.next_step


IMPORTS = {
    "import no_such_package\n": ("No module named 'no_such_package'", "install no_such_package"),
    "x = 1 / 0\n": ("at net.py:1: ZeroDivisionError", "mend the file"),
    "raise SystemExit\n": ("SystemExit", "mend the file"),
    "def f(:\n": ("at net.py:1: SyntaxError", "mend the file"),
    "from . import sibling\n": ("ImportError: attempted relative import", "mend the file"),
}


@pytest.mark.parametrize(("text", "cause", "next_step"), [(text, *row) for text, row in IMPORTS.items()])
def test_import(tmp_path: Path, text: str, cause: str, next_step: str) -> None:
    (tmp_path / "net.py").write_text(text)
    error = failure("Net", path=tmp_path / "net.py")
    assert error.kind == "import_failed" and cause in error.message and next_step in error.next_step
    assert "Traceback" in error.detail


def test_workloads_that_no_graph_can_cover() -> None:
    def two(args: str) -> list[dict[str, str]]:
        return [{"name": "small", "args": X, "kwargs": ""}, {"name": "large", "args": args, "kwargs": ""}]

    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x.view(-1, 6) * 2\n"
    error = failure("Net", content=text, workloads=two("(torch.randn(4, 6).double(),)"))
    assert error.kind == "unsupported_input" and "workload large of Net differs from small" in error.message
    error = failure("Net", content=text, workloads=two("(torch.randn(3, 12),)"))
    assert error.kind == "unsupported_input" and "workload large of Net has shapes [3, 12]" in error.message


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TaskError) as caught:
        open_task({}, "cuda:0")
    assert caught.value.kind == "no_gpu"


def test_a_loop_of_many_steps_is_named(tmp_path):
    """The error comes before tracing ends, which would take minutes for a loop with so many steps."""
    path = tmp_path / "loop.py"
    path.write_text(module_text("for _ in range(10**9):\n    x = x + 1\nreturn x", X))
    error = failure("Model", path=path)
    assert error.kind == "unsupported_input"
    assert error.message == (
        "Model.forward calls more than 4000 operators (4001 of them from line 13 of loop.py), "
        "a graph too large to search"
    )
    assert "body of the loop" in error.next_step
