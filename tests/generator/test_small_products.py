"""Tests small linear layers and convolutions of one pixel that become sums of our kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.generator.plan.partition import cut
from kernel_assistant.generator.plan.small_products import MOST_ROWS, MOST_WEIGHTS, with_small_products
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import OpGraph
from tests.generator.by_parts import ByParts
from tests.generator.harness import H200, Function, Tensors, bindings, built_first, export


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
    """Two linear layers behind the mean of a sequence."""

    def __init__(self, width: int, before: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.mean(1)) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.before = before
        self.body = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, 10, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.before(x))


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


SMALL: dict[str, tuple[nn.Module, Tensors]] = {
    "excitation": (Excitation(36, 6), (_random(5, 8, 9, 7),)),
    "two layers": (Head(40), (_random(7, 50, 40),)),
    "rows of two dimensions": (Head(33), (_random(2, 40, 3, 33),)),
    "flattened": (Head(36, lambda x: F.adaptive_avg_pool2d(x, (2, 1)).flatten(1)), (_random(3, 18, 6, 5),)),
    "a sequence of one": (nn.Sequential(nn.AdaptiveMaxPool1d(1), nn.Conv1d(20, 12, 1)), (_random(4, 20, 9),)),
}


class Averaged(nn.Module):
    """A layer of the averages of images."""

    def __init__(self, layer: nn.Module, size: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.layer, self.size = layer, size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(x, self.size)
        return self.layer(x.flatten(1) if isinstance(self.layer, nn.Linear) else x)


IMAGES = _random(4, 8, 3, 3)
KEPT: dict[str, Callable[[], tuple[nn.Module, Tensors]]] = {
    "many rows": lambda: (Averaged(nn.Linear(8, 4)), (_random(MOST_ROWS + 1, 8, 3, 3),)),
    "many weights": lambda: (Averaged(nn.Linear(512, MOST_WEIGHTS // 512 + 1)), (_random(1, 512, 2, 2),)),
    "any number of rows": lambda: (nn.Linear(8, 4), (_random(4, 8),)),
    "averages of few elements": lambda: (Head(40), (_random(7, 2, 40),)),
    "more rows than averages": lambda: (
        Head(40, lambda x: x.mean((0, 1)).expand(x.shape[0], -1) * 2),
        (_random(7, 50, 40),),
    ),
    "one of two averages": lambda: (Head(40, lambda x: x.mean(1) + x[:, 0]), (_random(7, 50, 40),)),
    "half type": lambda: (Averaged(nn.Linear(8, 4)).bfloat16(), (IMAGES.bfloat16(),)),
    "groups": lambda: (Averaged(nn.Conv2d(8, 4, 1, groups=2)), (IMAGES,)),
    "padding": lambda: (Averaged(nn.Conv2d(8, 4, 1, padding=1)), (IMAGES,)),
    "pixels": lambda: (Averaged(nn.Conv2d(8, 4, 1), (2, 1)), (IMAGES,)),
    "filter": lambda: (Averaged(nn.Conv2d(8, 4, 3, padding=1)), (IMAGES,)),
    "one output": lambda: (Head(8, lambda x: F.linear(x.mean(1), VECTOR)[:, None] + x[:, 0]), (_random(4, 3, 8),)),
}
VECTOR = nn.Parameter(_random(8))


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


def test_sums_of_nothing_stay_as_they_are() -> None:
    graph = export(Function(lambda x, w, b: F.linear(x.mean(1), w, b) + 1), _random(4, 3, 0), _random(5, 0), _random(5))
    assert with_small_products(graph) is graph
    assert initial(graph, "cuda", H200)


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
    graph = export(Head(40), _random(7, 50, 40))
    *_, last = [node.name for node in graph.nodes if node.op == "linear"]
    assert _calls(with_small_products(graph, frozenset({last}))) == 1
    assert _calls(with_small_products(graph)) == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_each_product_counts_as_work_of_the_averages(rows: int) -> None:
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    mean = Function(lambda x: x.mean(1))
    graph = export(nn.Sequential(mean, *layers), _random(4, 64, rows, 64))
    assert _calls(with_small_products(graph)) == 4


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
