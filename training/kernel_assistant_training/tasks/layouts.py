"""Draws the first input of a task: rank, sizes, dtype, and the expression that draws its elements."""

from __future__ import annotations

from random import Random

from kernel_assistant_training.tasks.candidates.arguments import Value

#: Sizes after the batch dimension, by rank.
_SIZES: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((64, 128, 200, 256, 512, 768, 1000, 1024, 2048, 3000, 4096),),
    3: ((32, 64, 96, 128, 197), (64, 128, 256, 384, 512, 1024)),
    4: ((4, 8, 16, 24, 32, 64), (8, 14, 16, 28, 32, 56), (8, 14, 16, 28, 32, 56)),
    5: ((4, 8, 16), (4, 8), (8, 14, 16), (8, 14, 16)),
}
_RANKS = {2: 0.3, 3: 0.35, 4: 0.3, 5: 0.05}
_DTYPES = {"float32": 0.8, "bfloat16": 0.12, "float16": 0.08}
#: The second gives values within (0, 1), which logarithms, roots and inverse functions need.
_DRAWS = ("torch.randn({shape}%s)", "torch.rand({shape}%s) * 0.9 + 0.05")
START_BATCH = 8


def value(random: Random, target: str, rank: int = 0) -> Value:
    """Returns a random first input of a task, with `rank` dimensions; with any number of dimensions if `rank` is 0. Its
    dtype is float32 on the CPU."""
    drawn = rank or random.choices(list(_RANKS), list(_RANKS.values()))[0]
    sizes = tuple(random.choice(choices) for choices in _SIZES[drawn])
    dtype = random.choices(list(_DTYPES), list(_DTYPES.values()))[0] if target == "cuda" else "float32"
    return Value((START_BATCH, *sizes), dtype)


def draw(of: Value, random: Random, positive: float = 0.35) -> str:
    tail = "" if of.dtype == "float32" else f", dtype=torch.{of.dtype}"
    return _DRAWS[random.random() < positive] % tail
