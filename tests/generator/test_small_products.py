"""Tests small linear layers and convolutions of one pixel that become sums of our kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.plan.small_products import MOST_MULTIPLICATIONS, MOST_ROWS, with_small_products
from kernel_assistant.records import OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.harness import Tensors, bindings, built_first, export
from tests.generator.test_cuda import H200


class Excitation(nn.Module):
    """Squeeze-and-excitation behind a convolution, as in EfficientNet."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        torch.manual_seed(channels)
        self.before = nn.Conv2d(8, channels, 3)
        self.squeeze, self.excite = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        scale = self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(scale)


class Head(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.body = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, 10, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


SMALL: dict[str, tuple[nn.Module, Tensors]] = {
    "excitation": (Excitation(36, 6), (_random(5, 8, 9, 7),)),
    "two layers": (Head(40), (_random(7, 40),)),
    "rows of two dimensions": (Head(33), (_random(2, 3, 33),)),
    "a sequence of one": (nn.Conv1d(20, 12, 1), (_random(4, 20, 1),)),
}
KEPT: dict[str, Callable[[], tuple[nn.Module, Tensors]]] = {
    "many rows": lambda: (nn.Linear(8, 4), (_random(MOST_ROWS + 1, 8),)),
    "many weights": lambda: (nn.Linear(1024, MOST_MULTIPLICATIONS // 4096 + 1), (_random(4, 1024),)),
    "half type": lambda: (nn.Linear(8, 4).bfloat16(), (_random(4, 8).bfloat16(),)),
    "groups": lambda: (nn.Conv2d(8, 4, 1, groups=2), (_random(4, 8, 1, 1),)),
    "padding": lambda: (nn.Conv2d(8, 4, 1, padding=1), (_random(4, 8, 1, 1),)),
    "pixels": lambda: (nn.Conv2d(8, 4, 1), (_random(4, 8, 2, 1),)),
    "filter": lambda: (nn.Conv2d(8, 4, 3, padding=1), (_random(4, 8, 1, 1),)),
    "rows that lie apart": lambda: (nn.Linear(8, 4), (_random(8, 4).t(),)),
}


def _calls(graph: OpGraph) -> int:
    """The number of products and convolutions."""
    return sum(node.op.partition(".")[0] in ("linear", "conv1d", "conv2d") for node in graph.nodes)


@pytest.mark.parametrize("name", SMALL)
def test_they_are_computed_by_kernels(name: str, tmp_path: Path) -> None:
    model, args = SMALL[name]
    graph = export(model, *args)
    built = ByParts(graph, tmp_path)
    assert _calls(with_small_products(graph)) == built.kinds.count("library") == int(name == "excitation")
    (got,) = built(bindings(graph, model, args))
    torch.testing.assert_close(got, model(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_as_they_are(name: str) -> None:
    model, args = KEPT[name]()
    graph = export(model, *args)
    assert with_small_products(graph) is graph


def test_products_of_parameters_are_computed_once_by_a_library() -> None:
    class Latents(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latents, self.layer = nn.Parameter(_random(4, 8)), nn.Linear(8, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layer(self.latents)

    graph = export(Latents(), _random(4, 6))
    assert with_small_products(graph) is graph


def test_those_that_pytorch_computes_are_left() -> None:
    graph = export(Head(40), _random(7, 40))
    first = next(node.name for node in graph.nodes if node.op == "linear")
    assert _calls(with_small_products(graph, frozenset({first}))) == 1
    assert _calls(with_small_products(graph)) == 0


def test_the_activation_is_computed_behind_the_sum() -> None:
    graph = export(*(SMALL["excitation"][0], *SMALL["excitation"][1]))
    operators = [[node.op for node in part.graph.nodes] for part in cut(graph, "cuda").parts]
    assert any("sum" in ops and "silu" in ops for ops in operators)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMALL)
def test_on_a_gpu(name: str, tmp_path: Path) -> None:
    model, args = SMALL[name]
    graph = export(model, *args)
    for made in built_first(graph, H200, tmp_path, 2):
        (got,) = made(bindings(graph, model, args))
        torch.testing.assert_close(got, model(*args), rtol=3e-3, atol=3e-3)
