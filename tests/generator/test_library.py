"""Library launches of the generator: which nodes, with which fused operators; the launches must compute the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.library.library import emit_library, library_nodes
from kernel_assistant.generator.parse import parse
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Candidate, Launch, OpGraph, decode, encode
from kernel_assistant.records.codec import to_builtins
from tests.generator.harness import Function, as_list, bindings, export, resized
from tests.generator.library_modules import convolutions, products
from tests.generator.library_reference import run_plan
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.sampled(3)

CASES = {**products(), **convolutions()}
#: Sizes that the free dimension of the first argument is not alone in.
FIXED = ("mm, both transposed",)


def _candidate(graph: OpGraph) -> Candidate:
    return emit(graph, initial(graph, "cuda", H200)[0])


def _dims(graph: OpGraph, values: dict[str, torch.Tensor]) -> dict[str, int]:
    pairs = [pair for value in graph.inputs for pair in zip(value.spec.shape, values[value.name].shape, strict=True)]
    return {text: size for text, size in pairs if text in graph.dims}


@pytest.mark.parametrize("name", CASES)
def test_launches_compute_the_module(name: str) -> None:
    model, launches, args = CASES[name]
    graph = export(model, *args)
    candidate = _candidate(graph)
    assert [bool(launch.library) for launch in candidate.plan.launches] == [True] * launches
    for given in (args,) if name in FIXED or not graph.dims else (args, resized(args, 4)):
        values = bindings(graph, model, given)
        with torch.no_grad():
            want = as_list(model(*given))
        got = run_plan(to_builtins(candidate.plan), _dims(graph, values), values)
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
            assert mine.stride() == theirs.stride() or 1 in mine.shape


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_of_library_launches_reads_back(name: str) -> None:
    model, _, args = CASES[name]
    graph = export(model, *args)
    candidate = _candidate(graph)
    assert decode(encode(candidate), Candidate) == candidate
    assert parse(candidate) == (graph, initial(graph, "cuda", H200)[0])


def _libraries(model: Any, *args: torch.Tensor) -> list[Launch]:
    module = model if isinstance(model, nn.Module) else Function(model)
    return [launch for launch in _candidate(export(module, *args)).plan.launches if launch.library]


def _epilogue(launch: Launch) -> str:
    return dict(launch.settings)["epilogue"]


def test_nothing_is_given_away_on_the_cpu() -> None:
    graph = export(nn.Linear(4, 4), torch.randn(3, 4))
    assert library_nodes(graph, "cpu") == ()
    assert library_nodes(graph, "cuda") == (("n0",),)


def test_gelu_is_fused_only_where_the_library_has_the_same() -> None:
    x = torch.randn(20, 8)
    (exact,) = _libraries(nn.Sequential(nn.Linear(8, 8), nn.GELU()), x)
    (tanh,) = _libraries(nn.Sequential(nn.Linear(8, 8), nn.GELU(approximate="tanh")), x)
    assert (_epilogue(exact), _epilogue(tanh)) == ("bias", "bias_gelu")


def test_a_value_that_is_read_twice_ends_a_group() -> None:
    graph = export(Function(lambda a, b: F.relu(a @ b) + torch.exp(a @ b)), torch.randn(5, 8), torch.randn(8, 8))
    assert library_nodes(graph, "cuda") == (("n0",),)


def test_an_activation_ends_a_group() -> None:
    graph = export(Function(lambda a, b, c: F.relu(a @ b) + c), *(torch.randn(8, 8) for _ in range(3)))
    assert library_nodes(graph, "cuda") == (("n0", "n1"),)


def test_a_bias_goes_where_it_costs_nothing() -> None:
    """A bias before ReLU goes to cuDNN. It goes to the kernel if the kernel computes GELU or permutes, or follows a
    transposed or a depthwise convolution (of narrow rows, which the library computes).
    """
    x = torch.randn(2, 4, 9, 9)
    (with_relu,) = _libraries(nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), x)
    (with_gelu,) = _libraries(nn.Sequential(nn.Conv2d(4, 8, 3), nn.GELU()), x)
    (transposed,) = _libraries(nn.ConvTranspose2d(4, 8, 3), x)
    (depthwise,) = _libraries(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU()), x)
    turned = Function(lambda x: F.softmax(x.permute(0, 2, 3, 1), -1))
    (permuted,) = _libraries(nn.Sequential(nn.Conv2d(4, 8, 3), turned), x)
    found = [_epilogue(one) for one in (with_relu, with_gelu, permuted, transposed, depthwise)]
    assert found == ["bias_relu", "none", "none", "none", "none"]


def test_silu_goes_to_the_library_with_channels_last_where_no_kernel_reads_it() -> None:
    x = torch.randn(2, 4, 9, 9)
    last = x.to(memory_format=torch.channels_last)

    def epilogues(given: torch.Tensor, *behind: nn.Module, groups: int = 1) -> list[str]:
        model = nn.Sequential(nn.Conv2d(4, 8, 1, groups=groups), nn.SiLU(), *behind)
        if given is last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return [_epilogue(launch) for launch in _libraries(model, given)]

    assert epilogues(last) == ["bias_silu"]
    assert epilogues(last, nn.Conv2d(8, 4, 1)) == ["bias_silu", "bias"]
    assert epilogues(last, nn.Softmax(1)) == ["none"]
    assert epilogues(last, groups=2) == ["none"]
    assert epilogues(x) == ["none"]


def test_layer_norm_stays_in_our_kernels() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64))
    launches = _candidate(export(model, torch.randn(20, 32))).plan.launches
    assert launches[0].library == "cublaslt.matmul"
    assert not any(launch.library for launch in launches[1:])


COPIED = {
    "a slice that begins inside": lambda a, b: a[:, 2:] @ b,
    "heads that lie apart": lambda a, b: a.view(3, 4, 2, 2).transpose(1, 2) @ b.view(3, 4, 2, 2).permute(0, 2, 3, 1),
    "integers": lambda a, b: a.long() @ b.long(),
    "a sum of one operand": lambda a, b: torch.einsum("bij,bkl->bik", a, b),
    "three operands": lambda a, b: torch.einsum("bij,bjk,bkl->bil", a, b, a),
}


@pytest.mark.parametrize("name", COPIED)
def test_what_would_need_a_copy_is_left_alone(name: str) -> None:
    right = torch.randn(3, 4, 4)
    left = torch.randn(3, 6, 4) if name == "a slice that begins inside" else torch.randn(3, 4, 4)
    assert library_nodes(export(Function(COPIED[name]), left, right), "cuda") == ()


def test_layouts_are_not_mixed() -> None:
    x = torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)
    assert library_nodes(export(nn.Conv2d(4, 8, 3), x), "cuda") == ()


def test_a_part_without_a_product_is_refused() -> None:
    graph = export(Function(torch.exp), torch.randn(3, 4))
    with pytest.raises(Unsupported):
        emit_library(graph, "part0_")
