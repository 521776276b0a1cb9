"""Functions of two integer tensors and of numbers, and values at which widths, signs and divisions differ."""

from __future__ import annotations

from collections.abc import Callable

import torch

Function1 = Callable[[torch.Tensor], torch.Tensor]
Function2 = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

DTYPES = {"u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}


def edges(dtype: torch.dtype) -> torch.Tensor:
    """The ends of the range, small numbers of both signs, and what multiplies beyond the range."""
    found = torch.iinfo(dtype)
    root = 1 << (found.bits // 2)
    near = [found.min, found.min + 1, found.max - 1, found.max, found.max // 3, -1, -2, -3, -7, root, root - 1, -root]
    numbers = sorted({number for number in (*near, 0, 1, 2, 3, 7, 10, 63) if found.min <= number <= found.max})
    return torch.tensor(numbers, dtype=dtype)


def pairs(dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of edges, and drawn numbers of every length behind them. The second tensor has no zeros."""
    ends, found = edges(dtype), torch.iinfo(dtype)
    random = torch.Generator().manual_seed(seed)
    shape = (2, 512)
    drawn = torch.randint(found.min, found.max, shape, generator=random) >> torch.randint(
        0, found.bits, shape, generator=random
    )
    left, right = torch.meshgrid(ends, ends, indexing="ij")
    a = torch.cat([left.flatten(), drawn[0].to(dtype)])
    b = torch.cat([right.flatten(), drawn[1].to(dtype)])
    return a, torch.where(b == 0, 1, b).to(dtype)


#: `div` towards zero is not here: eager dies of the smallest number by -1.
BINARY: dict[str, Function2] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "alpha": lambda a, b: torch.add(a, b, alpha=3),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=2),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=3),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "floor_divide": torch.floor_divide,
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shift left": lambda a, b: a << b,
    "shift right": lambda a, b: a >> b,
    "shift little": lambda a, b: (a << (b & 7)) >> 1,
    "pow": lambda a, b: a ** (b & 15),
    "pow of any": torch.pow,
    "heaviside": torch.heaviside,
    "greater": lambda a, b: a + a > b,
    "equal": lambda a, b: a * b == a,
    "where": lambda a, b: torch.where(a > b, a + b, -b),
    "true division": lambda a, b: a / b,
    "chain": lambda a, b: ((a + b) * a - b) // 3,
}

UNARY: dict[str, Function1] = {
    "neg": lambda a: -a,
    "abs": torch.abs,
    "not": lambda a: ~a,
    "square": torch.square,
    "cube": lambda a: a**3,
    "fourth": lambda a: a**4,
    "sign": torch.sign,
    "relu": torch.relu,
    "number": lambda a: a + 300,
    "negative number": lambda a: a * -77,
    "number first": lambda a: 100 - a,
    "large number": lambda a: a + (1 << 40),
    "compared": lambda a: a + 100 > 44,
    "compared with more": lambda a: a < 300,
    "compared with less": lambda a: a == -1,
    "compared with real": lambda a: a > 0.5,
    "masked": lambda a: a & 300,
    "divided": lambda a: a // 7,
    "divided by less": lambda a: a // -3,
    "remainder": lambda a: a % -7,
    "fmod": lambda a: torch.fmod(a, 5),
    "shifted": lambda a: a << 3,
    "shifted back": lambda a: a >> 2,
    "clamped": lambda a: torch.clamp(a, 3, 100),
    "with truth": lambda a: a + (a > 3),
    "times truth": lambda a: (a > 3) * a,
    "with true": lambda a: a + True,
    "half": lambda a: a * 0.5,
    "bfloat16": lambda a: a.to(torch.bfloat16) + 1,
    "beside bfloat16": lambda a: a + (a > 3).to(torch.bfloat16),
    "float16": lambda a: (a & 127).to(torch.float16) * a,
    "to uint8": lambda a: (a + 1).to(torch.uint8),
    "to int8": lambda a: (a + 1).to(torch.int8) * 2,
    "to int16": lambda a: (-a).to(torch.int16),
    "to int32": lambda a: (a * a).to(torch.int32),
    "to int64": lambda a: (a * a).to(torch.int64),
    "float": lambda a: (a - 1).float() / 3,
    "finite": torch.isfinite,
}

#: What reduces or scans the last dimension of a tensor.
REDUCTIONS: dict[str, Function1] = {
    "sum": lambda a: a.sum(-1),
    "sum as uint8": lambda a: a.sum(-1, dtype=torch.uint8),
    "sum as int16": lambda a: a.sum(-1, dtype=torch.int16),
    "sum as int32": lambda a: a.sum(-1, dtype=torch.int32) + 1,
    "sum of sums": lambda a: (a + a).sum(-1),
    "prod": lambda a: a.prod(-1),
    "prod as int8": lambda a: a.prod(-1, dtype=torch.int8),
}
CHOICES: dict[str, Function1] = {
    "amax": lambda a: (a + 3).amax(-1),
    "amin": lambda a: (a * 3).amin(-1),
    "any": lambda a: (a & 6).any(-1),
    "all": lambda a: (a & 6).all(-1),
    "any of equal": lambda a: (a == 3).any(-1),
    "argmax": lambda a: (a + a).argmax(-1),
    "argmin": lambda a: (-a).argmin(-1),
}

SCANS: dict[str, Function1] = {
    "cumsum": lambda a: a.cumsum(-1),
    "cumsum as uint8": lambda a: a.cumsum(-1, dtype=torch.uint8),
    "cumsum as int16": lambda a: a.cumsum(-1, dtype=torch.int16),
    "cumsum of sums": lambda a: (a + a).cumsum(-1, dtype=torch.int32) * 3,
    "cumprod": lambda a: a.cumprod(-1),
    "cumprod as int8": lambda a: a.cumprod(-1, dtype=torch.int8),
}

#: Values of two dtypes, of which one may have no dimensions: (dtype, dtype, whether the second has dimensions).
MIXED = (
    *(("u8", "i8", True), ("u8", "i16", True), ("i8", "i32", True), ("i16", "i64", True), ("i32", "u8", True)),
    *(("u8", "i64", False), ("i8", "i32", False), ("i32", "i64", False), ("u8", "i8", False)),
    *(("b1", "u8", True), ("b1", "i32", False), ("f32", "i64", True), ("f32", "i32", False), ("u8", "f32", False)),
    *(("bf16", "i32", True), ("f16", "i16", True), ("bf16", "i64", False), ("i64", "f64", True), ("i8", "b1", True)),
)
#: What does not need equal dtypes. Not `floor_divide`: eager rounds the steps of two half tensors one by one, but only
#: where it takes whole vectors, so that its results depend on the length.
BETWEEN: dict[str, Function2] = {
    name: BINARY[name]
    for name in ("add", "sub", "mul", "maximum", "greater", "equal", "where", "remainder", "fmod", "xor")
}
