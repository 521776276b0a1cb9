"""Integer inputs that index, at other sizes of what they index: they exist there, and keep what made them special."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from kernel_assistant.worker.graph.export import export_graph
from kernel_assistant.worker.opening.index_guard import IndexGuard
from kernel_assistant.worker.opening.index_inputs import in_range, index_bounds
from tests.generator.harness import Function
from tests.worker.opened import module_text, open_text

DIMS = {"B": 8, "B2": 6}


def _bounds(function: object, *args: torch.Tensor) -> dict[str, list[object]]:
    return index_bounds(export_graph(Function(function), args, {}))


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda x, i: x[i], "B"),
        (lambda x, i: x[:, i % 4][i.view(2, 3).int().long()], "B"),
        (lambda x, i: F.embedding(i, x), "B"),
        (lambda x, i: x.index_add(0, i.clone(), torch.ones(6, 4)), "B"),
        (lambda x, i: torch.zeros_like(x).scatter_add_(0, i[:, None].expand(6, 4), torch.ones(6, 4)), "B"),
        (lambda x, i: torch.zeros_like(x).index_put((i,), torch.ones(6, 4), accumulate=True), "B"),
        (lambda x, i: torch.take_along_dim(x, i[:, None], 0), "8"),
        (lambda x, i: F.cross_entropy(x[:6], i % 4), None),
        (lambda x, i: x[(i + 1) % 8], None),
        (lambda x, i: x[:6] * i[:, None], None),
    ],
)
def test_the_graph_says_what_an_input_indexes(function: object, size: str | None) -> None:
    moved = _bounds(function, torch.randn(8, 4), torch.randint(0, 8, (6,)))
    assert [str(one) for one in moved.get("x1", [])] == ([size] if size else [])


def test_a_mask_stands_for_all_of_its_dimensions() -> None:
    node = {"name": "n0", "op": "index.Tensor", "args": ["%x0", ["%x1", "%x2"]], "kwargs": {}}
    shapes = {"x0": ("B", "7", "9"), "x1": ("B", "7"), "x2": ("K",)}
    dtypes = {"x0": "f32", "x1": "bool", "x2": "i64"}
    inputs = [{"name": name, "spec": {"dtype": dtypes[name], "shape": shape}} for name, shape in shapes.items()]
    graph = {"inputs": inputs, "nodes": [{**node, "spec": {"dtype": "f32", "shape": ("K",)}}]}
    assert index_bounds(graph) == {"x2": ["9"]}


@given(
    st.lists(st.integers(-5, 7), min_size=1, max_size=12),
    *[st.integers(1, 12)] * 2,
    st.sampled_from([torch.int64, torch.int32]),
)
def test_indices_exist_at_every_size(values: list[int], rows: int, size: int, dtype: torch.dtype) -> None:
    declared = torch.tensor(values, dtype=dtype)
    resized = declared[torch.arange(rows) % len(values)]
    moved = in_range(declared, resized, ["B"], {"B": size}, {"B": 8})
    assert (moved.shape, moved.dtype) == (resized.shape, dtype)
    assert bool(((moved >= -size) & (moved < size)).all())
    if 1 < len(set(values)) == len(values) and min(values) >= 0 and rows <= size:
        assert len(set(moved.tolist())) == rows
    elif sorted(values) != values:
        assert torch.equal(moved < 0, resized < 0)
    if len(values) > 1 and sorted(values) == values:
        assert moved.tolist() == sorted(moved.tolist())


def test_what_a_loss_ignores_stays() -> None:
    target = torch.tensor([4, -100, 2, 0])
    assert in_range(target, target, ["C"], {"C": 3}, {"C": 5}).tolist() == [1, -100, 2, 0]


CALLS = [
    lambda x, i: x[i],
    lambda x, i: x.index_select(0, i),
    lambda x, i: x.gather(0, i[:, None].expand(6, 4)),
    lambda x, i: F.embedding(i, x),
    lambda x, i: x.clone().index_add_(0, i, torch.ones(6, 4)),
    lambda x, i: x.clone().index_copy_(0, i, torch.ones(6, 4)),
    lambda x, i: x.scatter(0, i[:, None], 1.0),
    lambda x, i: x.scatter_add(0, i[:, None].expand(6, 4), torch.ones(6, 4)),
    lambda x, i: x.scatter_reduce(0, i[:, None].expand(6, 4), torch.ones(6, 4), "amax"),
    lambda x, i: x.index_put((i,), torch.ones(6, 4), accumulate=True),
    lambda x, i: torch.take_along_dim(x, i[:, None], 0),
    lambda x, i: F.embedding_bag(i.clamp(-1, 8), x, torch.tensor([0, 3])),
    lambda x, i: F.nll_loss(x[:6], i, ignore_index=-7),
    lambda x, i: F.cross_entropy(x[:6].T[:, :4].T, i[:4]),
]


def _refusal(call: Callable[[], object], watch: AbstractContextManager[object]) -> Exception | None:
    """The error that refuses the call's indices."""
    try:
        with watch:
            call()
    except (IndexError, RuntimeError) as error:
        return error
    return None


@given(values=st.lists(st.integers(-9, 9), min_size=6, max_size=6), number=st.integers(0, len(CALLS) - 1))
def test_the_guard_refuses_what_the_cpu_refuses(values: list[int], number: int) -> None:
    """The guard is for GPUs, where an index outside ends the process's context. Here it has the CPU's own checks beside
    it: it may refuse nothing that these accept, and has to refuse what they refuse.
    """
    call, x, index = CALLS[number], torch.randn(8, 4), torch.tensor(values)
    plain, guarded = (_refusal(partial(call, x, index), watch) for watch in (nullcontext(), IndexGuard()))
    assert (plain is None) == (guarded is None), (plain, guarded)
    assert plain is None or (isinstance(guarded, IndexError) and "out of bounds for a dimension" in str(guarded))


SOURCE = module_text(
    """message = nodes.index_select(0, source) * weight.unsqueeze(-1)
where = target.unsqueeze(-1).expand_as(message)
return torch.zeros_like(nodes).scatter_add_(0, where, message)""",
    "torch.randn(64, 8), *(torch.randint(0, 64, (512,)) for _ in range(2)), torch.rand(512)",
    arguments="nodes, source, target, weight",
)


def test_a_module_that_indexes_is_tried_at_other_sizes(tmp_path: Path) -> None:
    """Its table may become smaller than its indices say; then they are wrapped, where each such size was refused."""
    opened = open_text(tmp_path, SOURCE)
    assert len(opened.held_out_dims()) == 3
    args, _ = opened.inputs(0, 1, dims={"B": 1, "B2": 40})
    assert int(args[1].max()) == 0
    assert args[1].shape == (40,)
