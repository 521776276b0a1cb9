"""`grid_sample`, `affine_grid` and EmbeddingBag: several in one library on the CPU, CUDA text on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernel_assistant.generator.search.search import initial
from kernel_assistant.generator.support import classify
from tests.generator.checks import check_on_cpu, check_on_gpu, check_read_back
from tests.generator.cuda_on_host import OnHost
from tests.generator.harness import H200, Function, Tensors, bindings, export, spread
from tests.generator.modules import Case, case

MODES = st.sampled_from(["bilinear", "nearest"])
PADDINGS = st.sampled_from(["zeros", "border", "reflection"])


def _theta(batch: int, rank: int) -> torch.Tensor:
    return torch.eye(rank, rank + 1).repeat(batch, 1, 1) + spread(batch, rank, rank + 1, scale=0.3)


def _on_the_cpu(function: Callable[..., Any], args: Tensors, folder: Path, *, calls: bool = False) -> None:
    assert bool(check_on_cpu(Function(function), args, folder).candidate.plan.residual) == calls


@settings(max_examples=2, phases=[Phase.generate])
@given(
    kinds=st.lists(st.tuples(MODES, PADDINGS, st.booleans()), min_size=6, max_size=6),
    sizes=st.lists(st.integers(1, 7), min_size=6, max_size=6),
    rank=st.integers(2, 3),
    channels=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_samples(
    kinds: list[tuple[str, str, bool]],
    sizes: list[int],
    rank: int,
    channels: int,
    dtype: torch.dtype,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """All at once: positions inside, outside, far outside and between the image and its edge."""

    def function(image: torch.Tensor, grid: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(F.grid_sample(image, grid, mode, padding, corners) for mode, padding, corners in kinds)

    image = spread(2, channels, *sizes[:rank]).to(dtype)
    grid = spread(2, *sizes[3 : 3 + rank], rank, scale=1.5).to(dtype)
    grid.view(-1)[::7] *= 40
    _on_the_cpu(function, (image, grid), tmp_path_factory.mktemp("samples"))


@pytest.mark.parametrize("rank", [2, 3])
def test_a_grid_that_is_not_written(rank: int, tmp_path: Path) -> None:
    """Warps by both conventions, with work before and behind, in one kernel each; and the grid itself."""

    def function(image: torch.Tensor, theta: torch.Tensor) -> tuple[torch.Tensor, ...]:
        grids = [F.affine_grid(theta, list(image.shape), align_corners=corners) for corners in (False, True)]
        warped = [F.grid_sample(image.tanh(), grid, align_corners=True).relu() for grid in grids]
        return (*warped, grids[0])

    _on_the_cpu(function, (spread(3, 2, *(9, 11, 5)[:rank]), _theta(3, rank)), tmp_path)
    alone = export(Function(lambda x, t: function(x, t)[0]), spread(3, 2, *[8] * rank), _theta(3, rank))
    assert classify(alone, "cpu") == classify(alone, "cuda") == "pointwise"


def test_samples_that_stay_pytorchs(tmp_path: Path) -> None:
    image, grid = spread(2, 3, 8, 9), spread(2, 4, 5, 2)
    cubic = Function(lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False))
    assert classify(export(cubic, image, grid), "cuda").startswith("operator grid_sampler: bicubic")
    _on_the_cpu(lambda x, g: cubic(x * 2, g) + 1, (image, grid), tmp_path, calls=True)
    many = export(Function(lambda x, g: F.grid_sample(x, g, align_corners=False)), spread(2, 17, 8, 9), grid)
    assert (
        classify(many, "cpu").startswith("operator grid_sampler: 17 channels") and classify(many, "cuda") == "pointwise"
    )


def _bags(rows: int, length: int) -> torch.Tensor:
    """Some bags have the row 3 only, or several times."""
    drawn = torch.randint(0, 20, (rows, length), generator=torch.Generator().manual_seed(length))
    drawn[:, ::2] = torch.where(torch.arange(rows)[:, None] % 3 == 1, 3, drawn[:, ::2])
    drawn[rows // 2] = 3
    return drawn


@settings(max_examples=2, phases=[Phase.generate])
@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(["sum", "mean", "max", "weighted"]), st.sampled_from([None, 3, -1])),
        min_size=5,
        max_size=5,
    ),
    length=st.integers(1, 9),
    width=st.sampled_from([1, 5, 16, 40]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_bags_of_equal_length(
    kinds: list[tuple[str, int | None]],
    length: int,
    width: int,
    dtype: torch.dtype,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def bag(
        ids: torch.Tensor, table: torch.Tensor, weights: torch.Tensor, mode: str, padding: int | None
    ) -> torch.Tensor:
        if mode == "weighted":
            return F.embedding_bag(ids, table, mode="sum", per_sample_weights=weights, padding_idx=padding)
        return F.embedding_bag(ids, table, mode=mode, padding_idx=padding).tanh()

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(bag(*args, mode, padding) for mode, padding in [*kinds, ("weighted", 3)])

    args = _bags(7, length), spread(20, width).to(dtype), spread(7, length).to(dtype)
    _on_the_cpu(function, args, tmp_path_factory.mktemp("bags"))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_other_lengths_stay_pytorchs(mode: str, tmp_path: Path) -> None:
    def function(ids: torch.Tensor, table: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(ids, table, starts, mode=mode) * 2

    args = _bags(6, 5).view(-1), spread(20, 8), torch.tensor([0, 4, 4, 17])  # the second has nothing
    _on_the_cpu(function, args, tmp_path, calls=True)
    alone = export(Function(lambda *args: F.embedding_bag(*args, mode=mode)), *args)
    assert classify(alone, "cpu").startswith("operator embedding_bag.padding_idx: bags of lengths")


CASES: dict[str, Case] = {
    "zeros": case(lambda x, g: F.grid_sample(x, g, align_corners=False), spread(2, 3, 7, 9), spread(2, 6, 37, 2)),
    "reflection": case(
        lambda x, g: F.grid_sample(x, g, "nearest", "reflection", False).relu(),
        *(spread(2, 2, 5, 6, 7), spread(2, 3, 4, 20, 3, scale=2.0)),
    ),
    "border": case(
        lambda x, g: F.grid_sample(x.tanh(), g, padding_mode="border", align_corners=True),
        *(spread(2, 20, 7, 9), spread(2, 6, 37, 2, scale=2.0)),
    ),
    "affine": case(
        lambda x, t: F.grid_sample(x, F.affine_grid(t, list(x.shape), align_corners=False), align_corners=False),
        *(spread(3, 2, 9, 40), _theta(3, 2)),
    ),
    "bags": case(lambda i, w: F.embedding_bag(i, w, mode="mean", padding_idx=3), _bags(9, 7), spread(20, 48)),
    "largest": case(lambda ids, table: F.embedding_bag(ids, table, mode="max"), _bags(9, 7), spread(20, 33)),
    "weighted": case(
        lambda ids, table, w: F.embedding_bag(ids, table, mode="sum", per_sample_weights=w),
        *(_bags(5, 6), spread(20, 64), spread(5, 6)),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_on_cuda_text(name: str, tmp_path: Path) -> None:
    model, args = CASES[name]
    graph = export(model, *args)
    schedules = initial(graph, "cuda", H200)
    check_read_back(graph, schedules)
    (result,) = OnHost(graph, schedules[0], tmp_path)(bindings(graph, model, args))
    torch.testing.assert_close(result, model(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_the_gpu(name: str, tmp_path: Path) -> None:
    check_on_gpu(*CASES[name], tmp_path, 1)
