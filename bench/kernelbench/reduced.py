"""Problems made smaller: their sizes are made for an H100, of which two cores take seconds a call and gigabytes.

The constant of the batch is divided by a power of two, in a copy of the problem's file.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from pathlib import Path

from bench.kernelbench.memory import needed_bytes
from bench.kernelbench.problems import executed

#: The most bytes for the inputs, and for a judge of the problem.
MOST_INPUT_BYTES, MOST_BYTES = 1 << 29, 8 << 30
#: What the row of a problem says that stays too large.
TOO_LARGE = "too large for two cores"
#: The most by which the factor grows after a call, since the time may shrink faster than the batch.
MOST_STEP = 4


@dataclass(frozen=True)
class Constant:
    """A constant of the module: its name and value, and the range of its expression in the text, in bytes of UTF-8."""

    name: str
    value: int
    start: int
    end: int


@dataclass(frozen=True)
class Reduced:
    """A problem's copy. Its `constant` was divided by `factor`; `constant` is "" if there is none."""

    path: Path
    constant: str
    factor: int


def batch_constant(text: str) -> Constant | None:
    """`batch_size`, else the constant that is the first dimension of the first input; None if there is none."""
    tree = ast.parse(text)
    constants = {one.name: one for node in tree.body if (one := _constant(text, node))}
    if "batch_size" in constants:
        return constants["batch_size"]
    return next((constants[name] for name in _first_dimensions(tree) if name in constants), None)


def divided(text: str, factor: int) -> str:
    """The problem with its batch divided by `factor`. Raises ValueError if less than 1 is left."""
    if factor == 1:
        return text
    constant = batch_constant(text)
    if constant is None or constant.value < factor:
        raise ValueError(TOO_LARGE)
    data = text.encode()
    value = data[constant.start : constant.end].decode()
    return data[: constant.start].decode() + f"({value}) // {factor}" + data[constant.end :].decode()


def fitted(path: Path, folder: Path, most: float) -> Reduced:
    """A copy in `folder` with the least factor of those tried with which a call in eager mode takes at most `most`
    seconds and the limits of this file are kept. Runs the problem's code, so it belongs into a process of its own.
    Raises ValueError if no factor is large enough."""
    text, factor = path.read_text(encoding="utf-8"), 1
    constant = batch_constant(text)
    copy = folder / path.name
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        copy.write_text(divided(text, factor), encoding="utf-8")
        seconds = seconds_of_eager(copy, most) if needed_bytes(copy) <= MOST_BYTES else None
        if seconds is not None and seconds <= most:
            return Reduced(copy, constant.name if constant else "", factor)
        factor *= MOST_STEP if seconds is not None and seconds > MOST_STEP * most else 2


def seconds_of_eager(path: Path, most: float) -> float | None:
    """Seconds of the faster of two calls behind a first one, which alone counts if it takes many times `most`; None if
    the inputs are too large."""
    import torch

    names = executed(path)
    inputs = names["get_inputs"]()
    if sum(one.nbytes for one in inputs if isinstance(one, torch.Tensor)) > MOST_INPUT_BYTES:
        return None
    model = names["Model"](*names["get_init_inputs"]()).eval()
    seconds = list[float]()
    with torch.no_grad():
        while len(seconds) < 3:
            began = time.perf_counter()
            model(*inputs)
            seconds.append(time.perf_counter() - began)
            if seconds[0] > 3 * MOST_STEP * most:
                break
    return min(seconds[1:] or seconds)


def _constant(text: str, node: ast.stmt) -> Constant | None:
    """The integer that an assignment at the top of the text gives to one name."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return None
    value = node.value
    if any(not isinstance(part, ast.Constant | ast.BinOp | ast.operator) for part in ast.walk(value)):
        return None
    number = eval(compile(ast.Expression(value), "constant", "eval"), {"__builtins__": {}})
    if not isinstance(number, int) or value.end_lineno is None or value.end_col_offset is None:
        return None
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: value.lineno - 1])) + value.col_offset
    end = sum(map(len, lines[: value.end_lineno - 1])) + value.end_col_offset
    return Constant(node.targets[0].id, number, start, end)


def _first_dimensions(tree: ast.Module) -> list[str]:
    """Names that are the first argument of a call in `get_inputs`, in their order in the text."""
    made = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"), None)
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call)] if made else []
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return [call.args[0].id for call in calls if call.args and isinstance(call.args[0], ast.Name)]
