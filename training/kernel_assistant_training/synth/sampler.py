"""Makes random tasks: draws an input, applies steps (functions that add operators) one after another, and chooses
outputs and a batch size."""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

from kernel_assistant.records import OpGraph
from kernel_assistant_training.synth.builder import Builder, Tensor, Unfit
from kernel_assistant_training.synth.operations import (  # noqa: F401 - each registers its steps
    branches,
    broadcasting,
    elementwise,
    gathers,
    idioms,
    inner,
    losses,
    norms,
    pieces,
    reductions,
    rows,
    scans,
    several,
    shaping,
    strided,
    windows,
)
from kernel_assistant_training.synth.sizes import FREE, Shape
from kernel_assistant_training.synth.steps import STEPS, Step

LEVELS = (1, 2, 3, 4, 5)
#: Weight of each family.
FAMILIES = {
    "activation": 10,
    "function": 4,
    "arithmetic": 5,
    "comparison": 3,
    "cast": 3,
    "idiom": 5,
    "binary": 6,
    "gate": 5,
    "channel": 7,
    "scalar": 4,
    "mask": 3,
    "residual": 5,
    "softmax": 9,
    "layer_norm": 6,
    "rms_norm": 8,
    "rows": 8,
    "arg": 4,
    "group_norm": 5,
    "batch_norm": 3,
    "loss": 10,
    "total": 1.5,
    "windows": 40,
    "scan": 9,
    "layout": 8,
    "view": 2,
    "gather": 3,
    "strided": 7,
    "branch": 20,
    "inner": 16,
    "pieces": 12,
    "several": 8,
}
_RETURNED = next(one for one in STEPS["cast"] if one.name == "returned")
#: Probability that a float32 value is cast back to the task's half type in the next step.
BACK = 0.4
_WIDTHS = (
    (1024, 2048, 4096, 512, 256, 768, 8192, 128, 64, 1000, 16384, 3072, 1280, 5120, 32),
    (
        100,
        33,
        257,
        1023,
        5000,
        10000,
        777,
        2047,
        384,
        640,
        1536,
        32000,
        50257,
        65536,
        131072,
        96,
        11008,
        3,
        7,
        5,
        50257,
    ),
)
_FEATURES = (64, 128, 256, 512, 768, 1024, 96, 33, 2048, 80, 320)
#: Row lengths that vectors do not divide: numbers of classes, coordinates, colours, words.
_ODD = (3, 7, 5, 17, 21, 65, 77, 127, 333, 1001, 50257)
_LENGTHS = (128, 256, 512, 64, 197, 1024, 49, 77, 2048, 100, 33, 300)
_CHANNELS = (64, 32, 128, 16, 3, 256, 96, 24, 512, 48, 8, 12)
_SIDES = (32, 56, 28, 64, 14, 112, 7, 31, 33, 128, 224, 16, 24, 65)
#: Probability that a task also returns intermediate values, and that it then returns two of them.
MORE, TWO = 0.12, 0.2
#: The weight of favoured families is multiplied by this.
FAVOUR = 30
#: Probability that the batch is small whatever the size of an item.
SMALL_BATCH = 0.08
#: Most elements of one item of the batch.
_MOST = 1 << 22
#: Number of elements of the first input, as a range of powers of two.
_ELEMENTS = (14.0, 26.0)


def sample(random: Random, level: int) -> OpGraph:
    """Returns a random task of `level` steps (1 to 5), as a graph. Its values have the names that the worker's exporter
    would give."""
    return sampled(random, level)[0]


def sampled(
    random: Random,
    level: int,
    more: float = MORE,
    only: frozenset[str] = frozenset(),
    favoured: frozenset[str] = frozenset(),
) -> tuple[OpGraph, tuple[Step, ...]]:
    """Returns a random task of `level` steps, and the steps that made it. `more` is the probability that the task
    returns intermediate values. `only` names the families and steps to use, all if it is empty. Families in `favoured`
    have `FAVOUR` times their weight."""
    while True:
        make = Builder(random, random.choices(("f32", "bf16", "f16"), (70, 20, 10))[0])
        try:
            x, taken = _steps(make, level, only, favoured)
            outputs = _outputs(make, x, more)
            return make.finish(outputs, free_size(random, make.inputs[0].spec.shape)), taken
        except Unfit:
            continue


def _steps(
    make: Builder, level: int, only: frozenset[str], favoured: frozenset[str]
) -> tuple[Tensor, tuple[Step, ...]]:
    x, taken = _start(make, only)
    failures = 0
    while len(taken) < level:
        step = _drawn(make, x, taken, only, favoured)
        mark = make.mark()
        try:
            result = step.write(make, x)
            _fits(result, last=len(taken) + 1 == level)
        except Unfit:
            make.back(mark)
            failures += 1
            if failures > 60:
                raise
            continue
        x, taken = result, (*taken, step)
    return x, taken


def _drawn(make: Builder, x: Tensor, taken: tuple[Step, ...], only: frozenset[str], favoured: frozenset[str]) -> Step:
    """Returns a random step for the value `x`; `taken` are the steps so far. In a task of a half-precision dtype, a
    float32 value is often cast back to this dtype."""
    if x.dtype == "f32" != make.dtype and taken[-1].family != "cast" and make.random.random() < BACK:
        return _RETURNED
    families, weights, steps = _choices(only, favoured)
    (family,) = make.random.choices(families, weights)
    (step,) = make.random.choices(*steps[family])
    return step


@lru_cache
def _choices(
    only: frozenset[str], favoured: frozenset[str]
) -> tuple[list[str], list[float], dict[str, tuple[list[Step], list[float]]]]:
    """Returns the families, their weights, and family → its steps and their weights."""
    fitting = {family: [one for one in STEPS[family] if not only or {family, one.name} & only] for family in FAMILIES}
    there = {family: (steps, [one.weight for one in steps]) for family, steps in fitting.items() if steps}
    weights = [FAMILIES[family] * (FAVOUR if family in favoured else 1) for family in there]
    return list(there), weights, there


def _fits(x: Tensor, last: bool) -> None:
    """Raises Unfit for a value that is too large. Unless `last`, also raises Unfit for integers (such as positions) and
    scalars (such as totals), because later steps cannot read them."""
    if math.prod(size for size in x.shape if size < FREE) > 4 * _MOST or x.most > 1e12:
        raise Unfit
    if not last and not (x.floating and x.rank):
        raise Unfit


def _start(make: Builder, only: frozenset[str]) -> tuple[Tensor, tuple[Step, ...]]:
    random = make.random
    if random.random() < 0.04 and (not only or {_EMBEDDED.family, _EMBEDDED.name} & only):
        ids = make.input((FREE, random.choice(_LENGTHS)), "i64")
        return gathers.embedded(make, ids, random.choice((64, 128, 256, 512, 768, 1024))), (_EMBEDDED,)
    x = make.input(input_shape(random))
    make.extra.append(x)
    return x, ()


_EMBEDDED = Step("gather", "embedding", 0.0, lambda make, x: x)


def input_shape(random: Random) -> Shape:
    """Returns the shape of the first input: the free dimension B (the batch size), and the sizes of one item of the
    batch. The sizes are common in users' modules."""
    while True:
        shape = (FREE, *_item(random))
        if math.prod(shape[1:]) <= _MOST:
            return shape


def _item(random: Random) -> Shape:
    kind = random.choices(range(6), (29, 21, 8, 10, 25, 7))[0]
    if kind == 0:
        return (_width(random),)
    if kind == 1:
        return random.choice(_LENGTHS), random.choice(_FEATURES if random.random() < 0.88 else _ODD)
    if kind == 2:
        length = random.choice((64, 128, 197, 256, 512, 49, 77, 33))
        return random.choice((4, 8, 12, 16, 6)), length, random.choice((length, length, 64, 32, 80))
    if kind == 3:
        return random.choice(_CHANNELS), random.choice((128, 1000, 4096, 512, 16000, 333, 2048, 8192))
    side = random.choice(_SIDES)
    if kind == 4:
        return random.choice(_CHANNELS), side, side if random.random() < 0.75 else random.choice(_SIDES)
    side = random.choice((8, 16, 32, 15, 20))
    return random.choice((1, 2, 3, 4, 8, 16, 32)), side, side, side if random.random() < 0.7 else 24


def _width(random: Random) -> int:
    if random.random() < 0.1:
        return random.randint(2, 3000)
    return random.choice(_WIDTHS[random.random() < 0.35])


def _outputs(make: Builder, x: Tensor, more: float) -> list[Tensor]:
    """Returns the outputs of the task: the last value, the values in `make.results`, and with probability `more` one or
    two intermediate values."""
    outputs = [x, *(one for one in make.results if one.name != x.name)]
    if make.random.random() < more:
        others = [one for one in make.values if one.floating and one.strides is None and one not in outputs]
        outputs += make.random.sample(others, min(len(others), 1 + (make.random.random() < TWO)))
    return outputs


def free_size(random: Random, shape: tuple[str, ...]) -> int:
    """Returns a random size of the free dimension B with which a tensor of `shape` has a common number of elements."""
    item = math.prod(int(size) for size in shape if size.isdigit())
    wanted = 2.0 ** random.uniform(*_ELEMENTS) / item
    exact = max(2, min(int(wanted), 65536))
    kind = random.random()
    if kind < SMALL_BATCH:
        return random.randint(2, 8)
    if kind < 0.7:
        return 1 << max(1, round(math.log2(exact)))
    return exact if kind < 0.9 else max(2, round(exact / 10) * 10)
