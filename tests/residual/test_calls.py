"""Residual calls between kernels, with the real executor in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.records.graph import Node, OpGraph, TensorSpec
from kernel_assistant.worker.runner.executor import KERNELS, RESIDUAL
from kernel_assistant.worker.runner.plan import PlanError
from kernel_assistant.worker.runner.pytorch.aten import Operator, in_place
from kernel_assistant.worker.runner.pytorch.flags import read_flags, set_flags
from kernel_assistant.worker.runner.pytorch.trace import operators_during
from tests.generator.checks import check
from tests.generator.harness import Function, bindings, built_on_cpu, export, resized


def _sorted_rows(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sort(-1, descending=True).values.tanh() + x


class Heads(nn.Module):
    """Self-attention; the sequence is the first dimension or the second."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.mixed, self.norm = nn.MultiheadAttention(24, 3, batch_first=batch_first), nn.LayerNorm(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(x + self.mixed(x, x, x)[0])
        return found


def _put_and_turned(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    y[torch.arange(x.size(0) - 1, -1, -1)] = x * 2.0
    y.add_(y.flip(0))
    return y - x


def _many_to_few(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Most rows go to few places; the sums are wider than the rows."""
    total = torch.zeros(20, rows.shape[1], dtype=torch.promote_types(rows.dtype, torch.float32))
    return total.index_add_(0, ids, rows.to(total.dtype)).to(rows.dtype)


def _also_read(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """What is changed is read, too, so that a copy has to be changed."""
    first = values.new_ones(20)
    return first.scatter_add(0, ids, values * 3) * 2 + first.scatter_reduce(0, ids, values, "amax")


FEW = (torch.rand(500, generator=torch.Generator().manual_seed(3)) ** 8 * 20).long()
CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    # Two results, of which one is read; a keyword.
    "sort": (Function(_sorted_rows), (torch.randn(5, 99),)),
    # An output of the module that PyTorch computes, in place where it can and by a copy where it cannot.
    "last linear": (nn.Sequential(nn.GELU(), nn.Linear(24, 40)), (torch.randn(7, 24),)),
    "last linear, three dimensions": (nn.Sequential(nn.GELU(), nn.Linear(24, 40)), (torch.randn(3, 7, 24),)),
    "last convolution": (nn.Sequential(nn.GELU(), nn.Conv1d(6, 4, 3)), (torch.randn(3, 6, 20),)),
    # A number that is infinite.
    "distances": (Function(lambda x: torch.cdist(x.tanh(), x[:, :3], float("inf")).exp()), (torch.randn(4, 5, 9),)),
    # Operands of another layout than the buffers.
    "transposed": (Function(lambda x: (x.mT.contiguous() @ x).relu() + 1), (torch.randn(4, 6, 5),)),
    # A call that reads the result of a call, reshaped.
    "in a row": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 8), nn.Softmax(-1)),
        (torch.randn(3, 3, 8, 8),),
    ),
    # Views of copies of what is strided: `contiguous` and `reshape` behind a transpose.
    "heads": (Heads(batch_first=True), (torch.randn(3, 5, 24),)),
    "heads, sequence first": (Heads(batch_first=False), (torch.randn(5, 3, 24),)),
    "put and turned": (Function(_put_and_turned), (torch.randn(6, 40),)),
    "many to few": (Function(_many_to_few), (torch.rand(500, 8).bfloat16(), FEW)),
    "also read": (Function(_also_read), (torch.randn(500), FEW)),
    "half": (nn.Sequential(nn.Linear(16, 32), nn.SiLU()).to(torch.bfloat16), (torch.randn(4, 16).bfloat16(),)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_at_several_sizes(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    built = built_on_cpu(export(model, *args), tmp_path)
    assert built.candidate.plan.residual
    for given in (args, resized(args, 1), resized(args, 9)):
        check(model, given, built)


def test_frozen_and_one_kind_alone(tmp_path: Path) -> None:
    model, args = CASES["in a row"]
    graph = export(model, *args)
    built = built_on_cpu(graph, tmp_path)
    bound, pointers, (output,), alive = built.bind(bindings(graph, model, args))
    assert bound.kinds == {KERNELS, RESIDUAL}
    assert {bound.scratch_bytes[bound.names[index]] for index in bound.given} == {0}
    with torch.no_grad():
        want = model(*args)
    for which in ("every", KERNELS):
        call = bound.freeze(pointers, which)
        output.fill_(float("nan"))
        call(0)
        torch.testing.assert_close(output, want)
    assert operators_during(lambda: bound.freeze(pointers, KERNELS)) != []
    kernels = bound.freeze(pointers, KERNELS)
    assert operators_during(lambda: kernels(0)) == []
    del alive


def test_what_is_returned_as_it_is(tmp_path: Path) -> None:
    """A result is returned unchanged only if it has the shape that the module returns."""
    for name, last, returned in (("as it is", nn.Identity(), {3}), ("reshaped", nn.Flatten(), set())):
        model, args = nn.Sequential(nn.GELU(), nn.Conv1d(6, 4, 3), last), (torch.randn(3, 6, 20),)
        graph = export(model, *args)
        (tmp_path / name).mkdir()
        built = built_on_cpu(graph, tmp_path / name)
        bound, pointers, (output,), alive = built.bind(bindings(graph, model, args))
        assert bound.returned == returned
        with torch.no_grad():
            want = model(*args)
        tensors = [alive.get(one) for one in bound.names]
        if returned:
            tensors[3] = None
        tensors[4] = tensors[4].view(torch.float32)
        bound.run(pointers, 0, tensors)
        torch.testing.assert_close(tensors[3] if returned else output, want)


def test_a_result_that_is_an_operand_is_copied(tmp_path: Path) -> None:
    """Later kernels may write to the memory of a result, but never to memory that belongs to somebody else."""
    spec = TensorSpec(dtype="f32", shape=("B", "8"))
    plain = export(Function(lambda x: x * 2), torch.rand(4, 8))
    nodes = (
        Node(name="n0", op="resolve_neg", args=("%x0",), spec=spec),
        Node(name="n1", op="mul.Tensor", args=("%n0", 2), spec=spec),
    )
    graph = OpGraph(dims=plain.dims, inputs=plain.inputs, nodes=nodes, outputs=("n1",))
    bound, pointers, (output,), alive = built_on_cpu(graph, tmp_path).bind({"x0": (x := torch.rand(4, 8))})
    tensors: list[torch.Tensor | None] = [alive["x0"], output, None]
    bound.run(pointers, 0, tensors)
    torch.testing.assert_close(output, x * 2)
    assert tensors[2] is not None and tensors[2].data_ptr() != alive["x0"].data_ptr()
    torch.testing.assert_close(tensors[2], x)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"op": "no_such_operator", "args": ["%x0"]}, "has no operator aten.no_such_operator"),
        ({"op": "a_library::nms", "args": ["%x0"]}, "a_library::nms: no such operator"),
        ({"op": "relu", "args": ["%x0"], "kwargs": {"slope": 2}}, "relu takes self"),
        ({"op": "relu", "args": ["%x0", 1, 2]}, "relu takes self"),
        ({"op": "sum", "args": ["%x0"], "kwargs": {"dtype": "load"}}, "'load' is no ScalarType"),
    ],
)
def test_what_pytorch_has_not_is_named(node: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Operator({"name": "n0", **node}, {}, "cpu")


def test_what_nobody_else_has_is_changed_in_place() -> None:
    zeros = {"name": "n0", "op": "zeros", "args": [[4]], "kwargs": {"dtype": "f32"}}
    add = {"name": "n1", "op": "index_add", "args": ["%n0", 0, "%x0", "%x1"], "kwargs": {"alpha": 2}}
    assert in_place([zeros, add]) == {**add, "op": "index_add_"}
    put = {"name": "n1", "op": "scatter.value", "args": ["%n0", 0, "%x0", 1]}
    assert in_place([zeros, put])["op"] == "scatter_.value"
    assert in_place([add]) == add
    twice = {**add, "args": ["%n0", 0, "%x0", "%n0"]}
    assert in_place([zeros, twice]) == twice
    view = {"name": "n0", "op": "expand", "args": ["%x1", [4]]}
    assert in_place([view, add]) == add
    values = {"x0": torch.tensor([1, 1, 3]), "x1": torch.tensor([1.0, 2.0, 3.0])}
    for node in (zeros, in_place([zeros, add])):
        Operator(node, {}, "cpu")(values)
    assert values["n1"] is values["n0"]
    assert values["n1"].tolist() == [0, 6, 0, 6]


def test_operands_are_what_the_schema_wants() -> None:
    values = {"x0": torch.rand(3, 4)}
    nodes: list[dict[str, Any]] = [
        {"name": "n0", "op": "full", "args": [["B", 2, 1, 1], "inf"], "kwargs": {"dtype": "f16"}},
        {"name": "n1", "op": "_to_copy", "args": ["%n0"], "kwargs": {"dtype": "f64", "memory_format": "channels_last"}},
        {"name": "n2", "op": "gelu", "args": ["%x0"], "kwargs": {"approximate": "tanh"}},
        {"name": "n3", "op": "cat", "args": [["%x0", "%n2"], 1]},
        {"name": "n4", "op": "narrow", "args": ["%n3", 1, 0, "B - 1"]},
        # What the graph calls contiguous is so, and a view of strided values is the same elements.
        {"name": "n5", "op": "transpose.int", "args": ["%x0", 0, 1]},
        {"name": "n6", "op": "clone", "args": ["%n5"], "spec": {"dtype": "f32", "shape": ["4", "B"], "strides": None}},
        {"name": "n7", "op": "clone", "args": ["%n5"], "spec": {"strides": ["1", "4"]}},
        {"name": "n8", "op": "view", "args": ["%n5", [2, "2*B"]]},
    ]
    for node in nodes:
        Operator(node, {"B": 3}, "cpu")(values)
    assert values["n0"].dtype is torch.float16 and values["n0"].shape == (3, 2, 1, 1) and values["n0"].isinf().all()
    assert values["n1"].dtype is torch.float64
    assert torch.equal(values["n3"], torch.cat([values["x0"], F.gelu(values["x0"], approximate="tanh")], 1))
    assert values["n4"].shape == (3, 2)
    assert values["n6"].is_contiguous() and values["n7"].stride() == (1, 4)
    assert torch.equal(values["n8"], values["x0"].t().reshape(2, 6))


@pytest.mark.slow
def test_flags_of_one_process_become_those_of_another() -> None:
    code = """
import json, sys, torch
from kernel_assistant.worker.runner.pytorch.flags import read_flags, set_flags
set_flags(json.loads(sys.argv[1]))
assert not torch.is_grad_enabled()
print(json.dumps(read_flags()))
"""
    flags = read_flags()
    wanted = {**flags, "cudnn.benchmark": True, "math_sdp": False, "threads": 1, "dtype": "float64"}
    done = subprocess.run([sys.executable, "-c", code, json.dumps(wanted)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted
    enabled = torch.is_grad_enabled()
    set_flags(flags)
    torch.set_grad_enabled(enabled)
    assert read_flags() == flags


def test_torch_is_imported_where_no_folder_can_be_written() -> None:
    """Packages that torch imports may ask for the folder's name, and a trace imports no compiler."""
    code = (
        "import sys, tempfile\n"
        "def none(): raise FileNotFoundError('no usable temporary directory')\n"
        "tempfile._get_default_tempdir = none\n"
        "from kernel_assistant.worker.runner.serve import _import_torch\n"
        "_import_torch({'flags': {}, 'libraries': {'sources': {}, 'imports': {}}}, None)\n"
        "tempfile.gettempdir()\n"
        "from kernel_assistant.worker.runner.pytorch.trace import operators_during\n"
        "import torch\n"
        "assert operators_during(lambda: torch.ones(2) + 1) == ['aten.add.Tensor', 'aten.ones.default']\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
