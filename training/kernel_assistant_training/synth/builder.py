"""Builds a graph step by step: values with shapes and strides, and operators in the form that the worker's exporter
writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand, references
from kernel_assistant_training.synth.layouts import elementwise_strides, is_contiguous
from kernel_assistant_training.synth.sizes import Shape, Strides, size_text

#: Operators with several results, from which `getitem` picks one.
SEVERAL = ("max.dim", "min.dim", "cummax", "cummin", "split.Tensor", "_native_batch_norm_legit_no_training")
#: Operators whose results are negative.
_NEGATIVE = ("log_softmax.int", "log_sigmoid")
HALVES = ("bf16", "f16")
FLOATS = ("f32", *HALVES)
#: Probability that a task's inputs are listed in another order than that in which they are first used.
SHUFFLED = 0.35


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph. `strides` is None if the value is contiguous; `most` is a rough upper bound of its
    magnitude. `positive`, `negative`: whether all elements are positive or negative. `raw`: whether the value has no
    rounding error because it is an input, so that discontinuous operators may read it."""

    name: str
    dtype: str
    shape: Shape
    strides: Strides = None
    most: float = 4.0
    positive: bool = False
    raw: bool = False
    negative: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def last(self) -> int:
        """Size of the last dimension; 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS


class Unfit(Exception):
    """Raised by a step (a function that adds operators) if it cannot be applied to the current value, or if the task
    cannot be finished."""


@dataclass
class Builder:
    """A graph under construction: its inputs, operators and values so far.

    `dtype` is the dtype of the task's floating tensors; `held` are parameters and buffers; `extra` are inputs that
    later steps may read too; `results` are values that the task returns besides the last value.
    """

    random: Random
    dtype: str
    inputs: list[GraphInput] = field(default_factory=list)
    held: list[GraphInput] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    extra: list[Tensor] = field(default_factory=list)
    results: list[Tensor] = field(default_factory=list)
    _calls: dict[tuple[object, ...], Tensor] = field(default_factory=dict)

    def input(self, shape: Shape, dtype: str = "") -> Tensor:
        """Adds an input of the task with the dtype `dtype` ("": the task's own); returns its value."""
        return self._given(self.inputs, "x", "input", shape, dtype)

    def param(self, shape: Shape, dtype: str = "") -> Tensor:
        return self._given(self.held, "p", "param", shape, dtype)

    def buffer(self, shape: Shape, dtype: str = "", positive: bool = False) -> Tensor:
        value = self._given(self.held, "b", "buffer", shape, dtype)
        return Tensor(value.name, value.dtype, value.shape, positive=positive)

    def _given(self, kept: list[GraphInput], letter: str, kind: str, shape: Shape, dtype: str) -> Tensor:
        name = f"{letter}{sum(value.name[0] == letter for value in kept)}"
        dtype = dtype or self.dtype
        kept.append(
            GraphInput(name=name, spec=spec_of(dtype, shape, None), kind=kind, path=name if kept is self.held else "")
        )
        return Tensor(name, dtype, shape, raw=True)

    def add(
        self,
        op: str,
        *args: object,
        shape: Shape | None = None,
        dtype: str = "",
        strides: Strides = None,
        most: float | None = None,
        positive: bool = False,
        more: dict[str, Operand] | None = None,
    ) -> Tensor:
        """Adds an operator; returns its result. By default the result is contiguous and has the shape and dtype of the
        first operand. `most` is a rough bound of the result's magnitude (None: that of the first operand), `positive`
        whether it is positive.

        Operands are tensors, numbers, None or lists of these; `more` has the keyword operands. Equal calls give the
        same value, as in an exported graph.
        """
        kwargs = more or {}
        first = next(_tensors(args))
        shape = first.shape if shape is None else shape
        dtype = dtype or first.dtype
        if strides is not None and is_contiguous(shape, strides):
            strides = None
        written = [_operand(arg) for arg in args]
        call = (op, repr(written), repr(kwargs))
        if call not in self._calls:
            name = f"n{len(self.nodes)}"
            negative = op in _NEGATIVE or (op == "neg" and first.positive)
            largest = first.most if most is None else most
            value = Tensor(name, dtype, shape, strides, largest, positive, negative=negative)
            self.nodes.append(
                Node(name=name, op=op, args=tuple(written), kwargs=kwargs, spec=spec_of(dtype, shape, strides))
            )
            if op not in SEVERAL:
                self.values.append(value)
            self._calls[call] = value
        return self._calls[call]

    def each(
        self,
        op: str,
        *args: object,
        dtype: str = "",
        most: float | None = None,
        positive: bool = False,
        more: dict[str, Operand] | None = None,
    ) -> Tensor:
        """Adds an elementwise operator; returns its result. Shapes broadcast, dtypes are promoted, and strides follow
        the operands. `most` and `positive` are as for `add`; by default `most` is the largest bound of the operands."""
        operands = list(_tensors(args))
        shape, strides = elementwise_strides([(one.shape, one.strides) for one in operands])
        return self.add(
            op,
            *args,
            shape=shape,
            dtype=dtype or promoted(operands),
            strides=strides,
            most=most if most is not None else max(one.most for one in operands),
            positive=positive,
            more=more,
        )

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Adds a cast of `x` to another dtype, with the same strides; returns its result."""
        return self.add("_to_copy", x, dtype=dtype, strides=x.strides, positive=x.positive, more={"dtype": dtype})

    def view(self, op: str, value: Tensor, *args: object, shape: Shape, strides: Strides = None) -> Tensor:
        """Adds an operator that rearranges `value` into another shape; returns its result, whose bounds are those of
        `value`."""
        return self.add(op, value, *args, shape=shape, strides=strides, most=value.most, positive=value.positive)

    def arange(self, start: int, end: int, dtype: str) -> Tensor:
        """Adds an operator that makes the integers from `start` to `end`, `end` excluded; returns its result."""
        call = ("arange", start, end, dtype)
        if call not in self._calls:
            value = Tensor(f"n{len(self.nodes)}", dtype, (end - start,), most=float(end), positive=start > 0)
            spec = spec_of(dtype, value.shape, None)
            self.nodes.append(
                Node(name=value.name, op="arange.start", args=(start, end), kwargs={"dtype": dtype}, spec=spec)
            )
            self._calls[call] = value
        return self._calls[call]

    def dense(self, value: Tensor) -> Tensor:
        """Returns `value` if it is contiguous, else the result of a copy (`.contiguous()`)."""
        return value if value.strides is None else self.view("clone", value, shape=value.shape)

    def mark(self) -> tuple[int, ...]:
        """Returns the current numbers of inputs, operators and values; `back` takes them to undo later additions."""
        return tuple(map(len, self._grown()))

    def back(self, mark: tuple[int, ...]) -> None:
        """Removes everything that was added since the call of `mark` that returned `mark`."""
        for grown, length in zip(self._grown(), mark, strict=True):
            if isinstance(grown, dict):
                while len(grown) > length:
                    grown.popitem()
            else:
                del grown[length:]

    def _grown(self) -> tuple[list[Any] | dict[Any, Any], ...]:
        return self.inputs, self.held, self.nodes, self.values, self.extra, self.results, self._calls

    def finish(self, outputs: list[Tensor], free: int) -> OpGraph:
        """Returns the finished graph, in which the free dimension B (the batch size) has the size `free`. Parameters,
        buffers and operators are named in order of first use, and unused ones are left out; inputs keep their order or
        are shuffled. Raises Unfit if an input is unused, or if an output is an input or a constant."""
        live = self._live(outputs)
        if any(value.name not in live for value in self.inputs):
            raise Unfit
        given = [*self.inputs]
        if self.random.random() < SHUFFLED:
            self.random.shuffle(given)
        names = {value.name: f"x{index}" for index, value in enumerate(given)}
        held = {value.name: value for value in self.held}
        kept: dict[str, list[GraphInput]] = {"p": [], "b": []}
        nodes: list[Node] = []

        def name_of(operand: str) -> str:
            name = operand[1:]
            if name not in names:
                group = kept[name[0]]
                names[name] = f"{name[0]}{len(group)}"
                group.append(GraphInput(name=names[name], spec=held[name].spec, kind=held[name].kind, path=names[name]))
            return f"%{names[name]}"

        def renamed(operand: Operand) -> Operand:
            if isinstance(operand, str):
                return name_of(operand) if operand.startswith("%") else operand
            if isinstance(operand, list):
                return [name_of(item) if isinstance(item, str) and item[0] == "%" else item for item in operand]
            return operand

        for node in self.nodes:
            if node.name in live:
                args = tuple(renamed(operand) for operand in node.args)
                kwargs = {key: renamed(operand) for key, operand in node.kwargs.items()}
                names[node.name] = f"n{len(nodes)}"
                nodes.append(Node(name=names[node.name], op=node.op, args=args, kwargs=kwargs, spec=node.spec))
        first = tuple(GraphInput(name=names[one.name], spec=one.spec, kind=one.kind) for one in given)
        inputs = (*first, *kept["p"], *kept["b"])
        return OpGraph(
            dims={"B": free}, inputs=inputs, nodes=tuple(nodes), outputs=tuple(names[output.name] for output in outputs)
        )

    def _live(self, outputs: list[Tensor]) -> set[str]:
        live = {output.name for output in outputs}
        reaches = {value.name for value in self.inputs}
        for node in self.nodes:
            if any(name in reaches for name in references(node)):
                reaches.add(node.name)
        if any(output.name[0] != "n" or output.name not in reaches for output in outputs):
            raise Unfit
        for node in reversed(self.nodes):
            if node.name in live:
                live.update(references(node))
        return live


def spec_of(dtype: str, shape: Shape, strides: Strides) -> TensorSpec:
    texts = None if strides is None else tuple(map(size_text, strides))
    return TensorSpec(dtype=dtype, shape=tuple(map(size_text, shape)), strides=texts)


def promoted(operands: list[Tensor]) -> str:
    """Returns the dtype of an elementwise result: the floating dtype of the operands (f32 if they have several), else
    the widest integer, else bool. Scalars count only if all operands are scalars."""
    dtypes = {one.dtype for one in operands if one.rank} or {one.dtype for one in operands}
    floats = dtypes & set(FLOATS)
    if floats:
        return floats.pop() if len(floats) == 1 else "f32"
    return next(dtype for dtype in ("i64", "i32", "b1") if dtype in dtypes)


def _tensors(args: tuple[object, ...]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list):
            yield from (item for item in arg if isinstance(item, Tensor))


def _operand(arg: object) -> Operand:
    if isinstance(arg, Tensor):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return [f"%{item.name}" if isinstance(item, Tensor) else item for item in arg]
    return arg  # type: ignore[return-value]
