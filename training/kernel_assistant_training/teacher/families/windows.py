"""Pooling in one to three dimensions, with elementwise work on each input before and on each result after."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.sizes import Size
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import Node
from kernel_assistant_training.teacher.families.around import FLOATS, Around, around, pieces
from kernel_assistant_training.teacher.moving.frame import HALVES, is_home, lambda_text, parameters
from kernel_assistant_training.teacher.moving.moves import argument, name_of, numbers
from kernel_assistant_training.teacher.text.answer import Answer
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.sizes import NoForm
from kernel_assistant_training.teacher.text.terms import Apply, Load, Name, Term

#: Most positions of a window, whose loop the compiler unrolls.
LARGEST = 64


@dataclass(frozen=True)
class PoolingParameters:
    """The operator's lists, outermost dimension first; [] for lists that it leaves out. `divisor` is the divisor of a
    sum: "" for maxima, `count` for the number of positions inside the input. `shared` says whether neighbouring windows
    share lines, and whether all lines but one."""

    dims: int
    kernel: list[str]
    stride: list[str]
    padding: list[str]
    dilation: list[str]
    divisor: str
    shared: tuple[bool, bool] = (False, False)

    def result(self, total: Name) -> Term:
        return Apply("float", "{0} / {1}", (total, Name("float", self.divisor))) if self.divisor else total

    @property
    def type(self) -> str:
        """`ka::window<ka::list<3, 3>, ka::list<2, 2>>`, with the lists that the operator has."""
        lists = [self.kernel, self.stride, self.padding, self.dilation]
        while not lists[-1]:
            lists.pop()
        texts = [f"ka::list<{', '.join(one)}>" for one in lists]
        return f"ka::window<{', '.join(texts)}>"


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    pools = [node for node in task.graph.nodes if "_pool" in node.op]
    if len(pools) != 1:
        return []
    try:
        named = Named(task, target)
        (node,) = (one for one in named.graph.nodes if one.name == pools[0].name)
        pool = _pool(named, node)
        return _written(named, around(named, named.only_value(node), node.name, pool.result), pool)
    except (Unsupported, NoForm):
        return []


def _pool(named: Named, node: Node) -> PoolingParameters:
    name = node.op.partition(".")[0].removesuffix("_with_indices")
    dims = int(name[-2])
    before, behind = (named.shape(one)[-dims:] for one in (name_of(node.args[0]), node.name))
    inputs, outputs = _known(before), _known(behind)
    if name.startswith("adaptive"):
        if any(size % out for size, out in zip(inputs, outputs, strict=True)):
            raise Unsupported("windows of different sizes")
        sizes = [size // out for size, out in zip(inputs, outputs, strict=True)]
        kernel = [_quotient(named, size, out) for size, out in zip(inputs, outputs, strict=True)]
        found = PoolingParameters(dims, kernel, [], [], [], "" if "max" in name else f"ka::cells<{', '.join(kernel)}>")
    elif name.startswith(("max", "avg")):
        given = _numbers(node, dims, 4 if name.startswith("max") else 3)
        sizes, stride, padding = given[0], given[1] or given[0], given[2] or [0] * dims
        divisor = "" if name.startswith("max") else _divisor(node, sizes, stride, padding, inputs, outputs)
        shared = (stride[max(dims - 2, 0)] < sizes[max(dims - 2, 0)], stride[max(dims - 2, 0)] == 1)
        texts = [[str(number) for number in one] for one in given]
        found = PoolingParameters(dims, texts[0], texts[1], texts[2], texts[3], divisor, shared)
    else:
        raise Unsupported(f"operator {node.op}")
    if math.prod(sizes) > LARGEST:
        raise Unsupported("a window too large to be written out")
    return found


def _known(sizes: list[Size]) -> list[int]:
    found = [size for size in sizes if isinstance(size, int)]
    if len(found) != len(sizes):
        raise Unsupported("pooling over dimensions of free size")
    return found


def _quotient(named: Named, size: int, out: int) -> str:
    if size == out:
        return "1"
    return named.size(size) if out == 1 else f"{named.size(size)} / {named.size(out)}"


def _numbers(node: Node, dims: int, count: int) -> list[list[int]]:
    """Kernel, stride, padding and dilation; [] for those that are not given."""
    found: list[list[int]] = []
    for place, name in enumerate(("kernel_size", "stride", "padding", "dilation")):
        given = argument(node, place + 1, name) if place < count else None
        own = [] if given in (None, []) else numbers(given)
        found.append(own * (dims // len(own)) if own else [])
    return found


def _divisor(
    node: Node, kernel: list[int], stride: list[int], padding: list[int], inputs: list[int], outputs: list[int]
) -> str:
    override = argument(node, 6, "divisor_override")
    if isinstance(override, int):
        return str(override)
    ends = [(out - 1) * s + k - p for out, s, k, p in zip(outputs, stride, kernel, padding, strict=True)]
    behind = any(end > size + p for end, size, p in zip(ends, inputs, padding, strict=True))
    outside = any(padding) or any(end > size for end, size in zip(ends, inputs, strict=True))
    cells = f"ka::cells<{', '.join(map(str, kernel))}>"
    if not outside:
        return cells
    if not argument(node, 5, "count_include_pad", True):
        return "count"
    if behind:
        if any(padding):
            raise Unsupported("windows that leave the padding")
        return "count"
    return cells


def _written(named: Named, place: Around, pool: PoolingParameters) -> list[Answer]:
    if len(place.before_loads) != 1:
        raise Unsupported("a window over several tensors")
    (load,) = place.before_loads
    if not is_home(load, place.source, named) or any(one.dtype not in FLOATS for one in [load, *place.after_loads]):
        raise Unsupported("an input that is read elsewhere")
    prefix = named.prefix
    sizes, outs = ([named.size(size) for size in one] for one in (place.source_shape, place.shape))
    shapes = ", ".join(f"{{{', '.join(one)}}}" for one in (sizes, outs))
    names = parameters([load, *place.after_loads])
    before = lambda_text(place.before, [("float", names[id(load)])], names)
    arguments = [("float", place.hole.text), ("int", "count" if pool.divisor == "count" else "")]
    arguments += [("float", names[id(one)]) for one in place.after_loads]
    after = lambda_text(place.after, arguments, names)
    more = [_beside(named, place, one, pool) for one in place.after_loads]
    operator = "ka::sum" if pool.divisor else "ka::max"
    operands = ",\n    ".join([shapes, before, after, ", ".join([f"{prefix}out0", prefix + load.buffer, *more])])
    if named.target == "cpu":
        body = [f"{pool.type}::run<{operator}>({operands});"]
        return [Answer(pieces(named, "", [], "", "ka/window.h", body).source(), ("window",))]
    body = [f"{pool.type}::run<R, {operator}>({operands});"]
    found = []
    for threads, together in _schedules(pool, place.shape[-2] if pool.dims > 1 else 1, load.dtype in HALVES):
        sets, grid = f"T={threads} R={together}", f"grid=cdiv({named.product(place.shape, '')},T*R) block=T"
        made = pieces(named, sets, [], grid, "ka/window.cuh", body)
        found.append(Answer(made.source(), ("window",)))
    return found


def _beside(named: Named, place: Around, load: Load, pool: PoolingParameters) -> str:
    """An operand of the function behind the pooling: it has the result's layout, or one number for each channel."""
    if is_home(load, place.loops, named):
        return named.prefix + load.buffer
    channel = len(place.shape) - pool.dims - 1
    texts = [one.text for one, size in zip(load.at, load.sizes, strict=True) if size != "1"]
    if channel < 0 or texts != [place.loops.at[channel].text]:
        raise Unsupported("an operand that lies otherwise")
    return f"ka::channel({named.prefix}{load.buffer}, {named.size(place.shape[channel])})"


def _schedules(pool: PoolingParameters, lines: object, half: bool) -> list[tuple[int, int]]:
    """(threads, outputs below each other a thread). More outputs if windows share rows, and for half types (measured on
    an H200)."""
    if pool.dims == 1 or (isinstance(lines, int) and lines < 2):
        return [(256, 1), (128, 1), (512, 1)]
    shared, closest = pool.shared
    best, other = (4, 2) if half or (shared and closest) else (2, 4)
    return [(128, best), (256, best), (128, other), (256, 1), (512, best)]
