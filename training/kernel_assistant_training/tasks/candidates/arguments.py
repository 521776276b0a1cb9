"""Chooses the value of an operator's argument by rules for the argument's name, for an input of a given shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


class CannotBuild(Exception):
    """Raised if no call of an operator can be written, for instance because there is no rule for a required argument.
    The message says why; equal messages are counted.
    """


@dataclass(frozen=True)
class Value:
    """A tensor that an operator reads. Dimension 0 is the batch; dimension 1 has the channels, unless there is only one
    dimension."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def last(self) -> int:
        return self.shape[-1]

    @property
    def channels(self) -> int:
        return self.shape[1] if self.rank > 1 else 1


@dataclass(frozen=True)
class Extra:
    """A further tensor input of an operator. Its shape is (batch, *shape), or `shape` alone if `whole`. `draw` is the
    source of an expression that draws the input, with `{shape}` for its shape."""

    shape: tuple[int, ...]
    draw: str
    whole: bool = False


def same(value: Value, draw: str = "") -> Extra:
    """Returns a further input with the same shape and dtype as the value; `draw` replaces the expression that draws
    it."""
    tail = "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"
    return Extra(value.shape[1:], draw or f"torch.randn({{shape}}{tail})")


Rule = Callable[[Value, Random], object]


def _one_of(*choices: object) -> Rule:
    return lambda value, random: random.choice(choices)


def _groups(value: Value, random: Random) -> int:
    return random.choice([count for count in (2, 4, 8, 16, 3, 5) if value.channels % count == 0] or [1])


#: Required arguments of constructors and functions, by name.
RULES: dict[str, Rule] = {
    "num_features": lambda value, random: value.channels,
    "num_channels": lambda value, random: value.channels,
    "in_channels": lambda value, random: value.channels,
    "out_channels": _one_of(8, 16, 24, 32, 64),
    "in_features": lambda value, random: value.last,
    "in1_features": lambda value, random: value.last,
    "in2_features": lambda value, random: value.last,
    "input_size": lambda value, random: value.last,
    "out_features": _one_of(64, 96, 128, 256, 512),
    "hidden_size": lambda value, random: value.last,
    "hidden_dim": lambda value, random: value.last,
    "embed_dim": lambda value, random: value.last,
    "input_dim": lambda value, random: value.last,
    "d_model": lambda value, random: value.last,
    "output_dim": _one_of(64, 128, 256),
    "normalized_shape": lambda value, random: (value.last,),
    "normalized_size": lambda value, random: value.last,
    "dim": lambda value, random: random.choice([-1, 1]) if value.rank > 1 else 0,
    "channels": lambda value, random: value.channels,
    "num_groups": _groups,
    "kernel_size": _one_of(2, 3, 5),
    "output_size": _one_of(1, 2, 4),
    "padding": _one_of(1, 2, 3),
    "pad": _one_of((1, 1), (0, 2), (3, 3)),
    "threshold": _one_of(0.1, 0.3),
    "value": _one_of(0.0, 0.5),
    "upscale_factor": _one_of(2),
    "downscale_factor": _one_of(2),
    "scale_factor": _one_of(2, 3),
    "groups": _groups,
    "norm_type": _one_of(1.0, 2.0),
    "eps": _one_of(1e-6, 1e-5),
    "p": _one_of(1.0, 2.0, 3.0),
    "reduce": _one_of("sum", "amax"),
    "rounding_mode": _one_of("floor", "trunc"),
}
#: Optional arguments, which are only sometimes passed, so that an operator gives several tasks.
OPTIONAL: dict[str, Rule] = {
    "negative_slope": _one_of(0.02, 0.1, 0.2, 0.3),
    "alpha": _one_of(0.5, 0.7, 1.3, 2.0),
    "beta": _one_of(0.5, 1.5, 2.0),
    "lambd": _one_of(0.2, 0.7, 1.0),
    "eps": _one_of(1e-6, 1e-5, 1e-4),
    "min_val": _one_of(-2.0, -0.5),
    "max_val": _one_of(0.7, 3.0),
    "stride": _one_of(1, 2, 3),
    "padding": _one_of(0, 1),
    "dilation": _one_of(1, 2),
    "bias": _one_of(True, False),
    "affine": _one_of(True, False),
    "elementwise_affine": _one_of(True, False),
    "keepdim": _one_of(True, False),
    "unbiased": _one_of(True, False),
    "approximate": _one_of("none", "tanh"),
    "reduction": _one_of("mean", "sum", "none"),
    "ceil_mode": _one_of(True, False),
    "count_include_pad": _one_of(True, False),
    "offset": _one_of(0, 1),
    "diagonal": _one_of(-1, 0, 2),
    "min": _one_of(-1.0, -0.5, 0.1),
    "max": _one_of(0.5, 0.8, 2.0),
}
#: Optional arguments that are always passed where possible: without them torch warns, or reduces everything.
GIVEN = ("dim", "scale_factor")
#: Further tensor arguments of `forward`, by name.
TENSORS = (
    "input2 target other negative positive var x2 y key values end tensor1 tensor2 exponent source max min variance "
    "hidden_states input_tensor residual gate up q2 log_input anchor"
).split()
_MASKS = ("mask", "condition")
_INDICES = ("index", "indices")


def argument(name: str, value: Value, random: Random) -> object:
    """Returns a value for the required argument `name` of an operator that reads `value`. Raises CannotBuild if there
    is no rule for this name."""
    rule = RULES.get(name)
    if rule is None:
        raise CannotBuild(f"no rule for argument {name}")
    return rule(value, random)


def tensor(name: str, value: Value, random: Random) -> Extra:
    """Returns the further tensor input for the argument `name` of an operator that reads `value`. Raises CannotBuild if
    there is no rule for this name."""
    if name in _MASKS:
        return same(value, "torch.rand({shape}) > 0.5")
    if name in _INDICES:
        return same(value, f"torch.randint(0, {min(value.shape[1:], default=1)}, ({{shape}},))")
    if name == "target":
        return same(value, "torch.rand({shape})")
    if name in ("running_mean", "running_var"):
        return Extra((value.channels,), "torch.rand({shape}) + 0.5", whole=True)
    if name in TENSORS:
        return same(value)
    raise CannotBuild(f"no rule for tensor {name}")
