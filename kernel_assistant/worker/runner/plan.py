"""Evaluates launch plans, which are plain dictionaries, for known sizes: buffer sizes, argument structs, launch
geometry. Standard library only.

The same file runs in the sandboxed runner, in the environment and (copied) beside a user's module. Every struct field
is eight bytes: a pointer or an int64, so a struct is an array of 64-bit words."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import Any

DTYPE_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b1": 1}

_BINARY: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Any] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}

#: Numbers that JSON lacks, as a graph writes them.
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_REAL = r"-?(\d[\d.]*(e[-+]?\d+)?|inf|nan)"
#: A complex number as Python writes it.
_COMPLEX = re.compile(rf"{_REAL}j|\({_REAL}[-+]{_REAL[2:]}j\)")


class PlanError(ValueError):
    """The plan does not fit the sizes, the binary or this machine's libraries, or is malformed."""


class LibraryError(PlanError):
    """cuBLASLt or cuDNN cannot do an operation of the plan."""


def number_of(text: str) -> float | complex | None:
    """Returns the number that an operand of a graph writes as text because JSON lacks it: `inf`, `-inf`, `nan` or a
    complex number. Returns None for every other text, such as a size, a tensor or a word."""
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    return complex(text) if _COMPLEX.fullmatch(text) else None


def evaluate(expression: str, dims: dict[str, int]) -> int:
    """Returns the value of an integer expression over `dims`, which maps names to sizes. Expressions have + - * // %,
    parentheses, cdiv, min and max. Raises PlanError."""
    try:
        return int(expression)
    except ValueError:
        pass
    try:
        return int(_evaluate(ast.parse(expression, mode="eval").body, dims))
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise PlanError(f"bad expression {expression!r}: {error}") from error


def _evaluate(node: ast.expr, dims: dict[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise PlanError(f"unknown dimension {node.id!r}")
        return dims[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return int(_BINARY[type(node.op)](_evaluate(node.left, dims), _evaluate(node.right, dims)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, dims)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return int(_CALLS[node.func.id](*[_evaluate(argument, dims) for argument in node.args]))
    raise PlanError(f"not an integer expression: {ast.dump(node)}")


def shape(spec: dict[str, Any], dims: dict[str, int]) -> tuple[int, ...]:
    """Returns the shape of a buffer at the sizes `dims`. Raises PlanError."""
    return tuple(evaluate(size, dims) for size in spec["shape"])


def strides(spec: dict[str, Any], dims: dict[str, int]) -> tuple[int, ...]:
    """Returns the strides of a buffer at the sizes `dims`, in elements; those of a contiguous tensor if the spec has
    none."""
    if spec.get("strides") is not None:
        return tuple(evaluate(stride, dims) for stride in spec["strides"])
    steps: list[int] = []
    step = 1
    for size in reversed(shape(spec, dims)):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


def byte_size(spec: dict[str, Any], dims: dict[str, int]) -> int:
    """Returns the number of bytes from the first to the last element of a buffer, 0 if it has no elements. `spec` is
    the buffer's dict in the plan: `name`, `dtype` (a key of DTYPE_BYTES), `shape` and, optionally, `strides`, both as
    lists of integer expressions in text form. `dims` maps the names in these expressions to sizes. Raises PlanError for
    a negative size or a bad expression."""
    sizes = shape(spec, dims)
    if any(size < 0 for size in sizes):
        raise PlanError(f"buffer {spec['name']} has a negative size {sizes}")
    if 0 in sizes:
        return 0
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides(spec, dims), strict=True))
    return span * DTYPE_BYTES[spec["dtype"]]


def buffers(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns all buffer specs of a plan in the order in which pointers are passed: inputs, outputs, scratch,
    packed."""
    return [*plan["inputs"], *plan["outputs"], *plan.get("scratch", ()), *plan.get("packed", ())]


class BoundLaunch:
    """One kernel launch with its expressions evaluated for the sizes `dims`. `words` are the 64-bit fields of the
    argument struct; `slots` lists the pointers among them as (index in `words`, index of a buffer). `names` maps
    buffers to their indices."""

    __slots__ = ("block", "grid", "shared", "slots", "symbol", "words")

    def __init__(self, launch: dict[str, Any], names: dict[str, int], dims: dict[str, int]) -> None:
        self.symbol: str = launch["symbol"]
        self.words: list[int] = []
        self.slots: list[tuple[int, int]] = []
        for position, (_, value) in enumerate(launch["args"]):
            if value in names:
                self.slots.append((position, names[value]))
                self.words.append(0)
            else:
                self.words.append(evaluate(value, dims))
        self.grid = tuple(evaluate(size, dims) for size in launch.get("grid", ("1", "1", "1")))
        self.block = tuple(evaluate(size, dims) for size in launch.get("block", ("1", "1", "1")))
        self.shared = evaluate(launch.get("shared", "0"), dims)


class BoundLibraryCall:
    """One library launch (cuBLASLt or cuDNN) for the sizes `dims`. `slots` lists its buffers in order as (index in the
    argument words, index of the buffer); the last word, after them, is the address of the workspace.

    `fields` are the names of its operands in the same order; `spans` maps each to its buffer's size in elements."""

    __slots__ = ("dtype", "fields", "library", "settings", "sizes", "slots", "spans", "symbol")

    def __init__(self, launch: dict[str, Any], specs: dict[str, dict[str, Any]], dims: dict[str, int]) -> None:
        self.symbol: str = launch["symbol"]
        self.library: str = launch["library"]
        self.settings: dict[str, str] = dict(launch["settings"])
        names = list(specs)
        buffers = [(field, value) for field, value in launch["args"] if value in specs]
        self.fields = [field for field, _ in buffers]
        self.slots = [(position, names.index(value)) for position, (_, value) in enumerate(buffers)]
        self.dtype: str = specs[buffers[0][1]]["dtype"]
        self.spans = {field: byte_size(specs[name], dims) // DTYPE_BYTES[self.dtype] for field, name in buffers}
        self.sizes = {field: evaluate(value, dims) for field, value in launch["args"] if value not in specs}

    @property
    def key(self) -> tuple[object, ...]:
        """Returns a key that is equal for two launches if the algorithm chosen for one also fits the other."""
        return (self.library, self.dtype, tuple(self.settings.items()), tuple(self.sizes.items()))


class BoundValue:
    """A value of the task's graph that a residual call reads or writes: the index of its buffer, and its shape and
    strides there."""

    __slots__ = ("buffer", "dtype", "name", "shape", "strides")

    def __init__(self, name: str, buffer: int, spec: dict[str, Any], dims: dict[str, int]) -> None:
        self.name, self.buffer = name, buffer
        self.dtype: str = spec["dtype"]
        self.shape, self.strides = shape(spec, dims), strides(spec, dims)


class BoundResidualCall:
    """One residual call (PyTorch's own operators) for the sizes `dims`. `nodes` are nodes of the task's graph,
    unchanged; `reads` are the values that they read from buffers, `results` those that they write to buffers."""

    __slots__ = ("dims", "nodes", "reads", "results", "symbol")

    def __init__(self, launch: dict[str, Any], names: dict[str, int], dims: dict[str, int]) -> None:
        self.symbol: str = launch["symbol"]
        self.nodes: list[dict[str, Any]] = launch["call"]["nodes"]
        self.dims = dims
        specs = launch["call"]["specs"]
        written = {node["name"] for node in self.nodes}
        values = [BoundValue(value, names[buffer], specs[value], dims) for value, buffer in launch["args"]]
        self.reads = [value for value in values if value.name not in written]
        self.results = [value for value in values if value.name in written]


Bound = BoundLaunch | BoundLibraryCall | BoundResidualCall


def bind_launches(plan: dict[str, Any], dims: dict[str, int], which: str = "launches") -> list[Bound]:
    """Returns the launches in the plan's list `which` ("launches" or "prepare"), with all expressions evaluated for
    `dims`. Raises PlanError."""
    missing = [name for name in plan["dims"] if name not in dims]
    if missing:
        raise PlanError(f"sizes missing for {', '.join(missing)}")
    specs = {spec["name"]: spec for spec in buffers(plan)}
    names = {name: index for index, name in enumerate(specs)}
    return [_bind_launch(launch, specs, names, dims) for launch in plan.get(which, ())]


def _bind_launch(
    launch: dict[str, Any], specs: dict[str, dict[str, Any]], names: dict[str, int], dims: dict[str, int]
) -> Bound:
    if launch.get("library"):
        return BoundLibraryCall(launch, specs, dims)
    if launch.get("call"):
        return BoundResidualCall(launch, names, dims)
    return BoundLaunch(launch, names, dims)
