"""What a module reads and writes by position in memory: windows written in place, `as_strided`, and the strides of
results. The exported program is compared with PyTorch, or the operator is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.targets import cpu
from kernel_assistant.worker.graph.export import trace
from kernel_assistant.worker.graph.real_strides import order_in_memory, strides_text
from kernel_assistant.worker.opening.open_task import OpenTask
from kernel_assistant.worker.opening.output_layouts import with_real_outputs
from kernel_assistant.worker.process.worker_errors import TaskError
from kernel_assistant.worker.symbols import evaluate_size
from tests.generator.harness import Function
from tests.worker.opened import module_text, open_text

Values = Callable[[torch.Tensor], torch.Tensor]


def _exported(function: Values, x: torch.Tensor) -> tuple[torch.Tensor, OpGraph]:
    """What the exported program gives, operator by operator, and the graph."""
    traced = trace(Function(function), (x,), {}, [frozenset()])
    (found,) = torch.fx.Interpreter(traced.program.graph_module).run(x)
    return found, from_builtins(traced.graph, OpGraph)


@settings(max_examples=12)
@given(st.integers(0, 2), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_what_lies_between_windows_stays(dim: int, size: int, gap: int, tail: int, windows: int, turned: bool) -> None:
    step = size + gap
    shape = [2, 3, 2]
    shape[dim] = (windows - 1) * step + size + tail
    x = torch.arange(1.0, 1.0 + torch.Size(shape).numel()).view(shape)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        view = y.transpose(0, 1) if turned else y
        view.unfold(1 - dim if turned and dim < 2 else dim, size, step)[..., :1].mul_(-2)
        return y

    found, _ = _exported(scaled, x)
    torch.testing.assert_close(found, scaled(x), rtol=0, atol=0)


def test_two_writes_through_windows_of_two_values() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        y, z = x.clone(), x * 2
        y.unfold(1, 2, 3).add_(1)
        z.unfold(0, 1, 2).copy_(y.unfold(0, 1, 2))
        y.unfold(1, 1, 4).zero_()
        return y + z

    x = torch.randn(5, 10)
    found, graph = _exported(both, x)
    torch.testing.assert_close(found, both(x))
    assert emit(graph, initial(graph, "cpu", cpu.facts())[0]).plan.residual == ()


ROLLED: dict[str, Values] = {
    "given": lambda x: torch.as_strided(x.roll(1, 3), (4, 6), (7, 1), 3),
    "of a view": lambda x: torch.as_strided(x.roll(1, 1)[:, 1:].flatten(2), (3, 5), (2, 3)),
    "of a product": lambda x: torch.as_strided((x * 2).mT[1:], (2, 2, 2), (9, 3, 1)),
}


@pytest.mark.parametrize("name", ROLLED)
def test_positions_are_those_of_the_real_layout(name: str) -> None:
    """The operand is the owner of the storage, with the strides that PyTorch gives it."""
    x = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    _, graph = _exported(ROLLED[name], x)
    node = next(node for node in graph.nodes if node.op == "as_strided")
    owner = next(one for one in graph.nodes if f"%{one.name}" == node.args[0])
    assert owner.spec.strides == ("60", "1", "15", "3")
    stored = {"given": x.roll(1, 3), "of a view": x.roll(1, 1), "of a product": x * 2}[name]
    storage = stored.permute(0, 2, 3, 1)
    assert storage.is_contiguous()
    size, stride, offset = node.args[1:]
    assert isinstance(size, list) and isinstance(stride, list) and isinstance(offset, int)
    numbers = [[int(str(item)) for item in items] for items in (size, stride)]
    torch.testing.assert_close(storage.as_strided(*numbers, offset), ROLLED[name](x), rtol=0, atol=0)


def test_a_fixed_part_of_storage_fixes_the_sizes() -> None:
    """A smaller operand would not have it."""
    x = torch.randn(4, 4)
    assert not trace(Function(lambda x: torch.as_strided(x * 2, (2, 2), (4, 1))), (x,), {}).graph["dims"]
    assert trace(Function(lambda x: torch.as_strided(x * 2, (x.shape[0], 2), (4, 1))), (x,), {}).graph["dims"]


def test_writes_into_storage_are_refused_by_name() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        torch.as_strided(y, (2, 2), (5, 1)).mul_(2)
        return y * 3

    _, graph = _exported(written, torch.randn(4, 4))
    with pytest.raises(Unsupported, match="as_strided_scatter"):
        initial(graph, "cpu", cpu.facts())


def _opened(folder: Path, result: str) -> OpenTask:
    """The task of a module that returns `result` for an input with channels last."""
    inputs = "torch.randn(4, 6, 3, 5).to(memory_format=torch.channels_last)"
    return open_text(folder, module_text(f"return {result}", inputs))


@pytest.mark.parametrize(
    "body",
    [
        "x.roll(1, 3), x.roll(2, 0)",
        "nn.functional.one_hot((x > 0).long(), 2)",
        "x.transpose(1, 3), x[:, 1:3], x.mean(1, keepdim=True).expand(4, 6, 3, 5)",
        "nn.functional.dropout(x[..., ::2], 0.5, self.training), x",
    ],
)
def test_results_have_the_strides_of_the_real_run(body: str, tmp_path: Path) -> None:
    opened = _opened(tmp_path, body)
    outputs = opened.call(*opened.inputs(0, 1))
    graph = from_builtins(opened.graph, OpGraph)
    for name, spec, output in zip(graph.outputs, opened.out_specs, outputs, strict=True):
        assert _strides(spec["strides"], output, opened.dims) == output.stride()
        if name not in {value.name for value in graph.inputs}:
            assert _strides(graph.spec(name).strides, output, opened.dims) == output.stride()


def _strides(texts: object, tensor: torch.Tensor, dims: dict[str, int]) -> tuple[int, ...]:
    if texts is None:
        return torch.empty(tensor.shape).stride()
    assert isinstance(texts, list | tuple)
    found = [evaluate_size(text, dims) for text in texts]
    each = zip(tensor.shape, found, tensor.stride(), strict=True)
    return tuple(stride if size != 1 else own for size, stride, own in each)


def test_real_strides_are_written_with_free_dimensions() -> None:
    """As a device may have them: another order than the trace says."""
    x = torch.randn(4, 6, 3)
    traced = trace(Function(lambda x: x * 2), (x,), {}, [frozenset({0})])
    found = with_real_outputs(traced, [torch.empty_strided((4, 6, 3), (6, 1, 24))])
    assert found is not None and found.out_specs[0]["strides"] == ["6", "1", "B*6"]
    assert found.graph["nodes"][-1]["spec"] == found.out_specs[0]
    assert with_real_outputs(traced, [torch.empty_strided((4, 6, 3), (40, 3, 1))]) is None


@given(order=st.permutations(range(4)), sizes=st.tuples(*[st.integers(1, 4)] * 4))
def test_orders_come_back(order: list[int], sizes: tuple[int, ...]) -> None:
    dense = torch.empty([sizes[dim] for dim in order]).permute([order.index(dim) for dim in range(4)])
    found = order_in_memory(sizes, dense.stride())
    assert found is not None
    texts = strides_text(["B", *map(str, sizes[1:])], found)
    assert _strides(texts, dense, {"B": sizes[0]}) == dense.stride()


def test_outside_the_operand_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="as_strided with a storage_offset"):
        _opened(tmp_path, "torch.as_strided(x[:, :2], (4, 2), (90, 1), 3) + 1")
