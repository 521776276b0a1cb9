"""Finds outputs that are indices of chosen values: argmax, the second result of max, topk, sort, …

While the module runs, the operators that choose are watched. An output is a *choice* if it is the tensor of indices
that such an operator returned, or another shape of it, unchanged. A tensor that is computed from indices is no choice;
it is compared like any other output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from ..opening.open_task import OpenTask
    from ..user_module.inputs import Args, Kwargs

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Chooser:
    """An operator such as argmax or topk, which returns indices of values that it chooses along one dimension. `result`
    is the position of the indices among its results, None if they are the only one; `dim` is the dimension if the call
    gives none (None: all values as one row).

    `first`: of equal values, the operator promises to choose the first (cummax and cummin: the last). `distinct`: no
    element is chosen twice. `upto`: element k chooses among the first k + 1 only. `by_value`: the value that is chosen
    does not depend on rounding elsewhere (not for `mode`)."""

    result: int | None = 1
    dim: int | None = -1
    first: bool = False
    distinct: bool = False
    upto: bool = False
    by_value: bool = True


CHOOSERS = {
    **dict.fromkeys(("argmax", "argmin"), Chooser(result=None, dim=None, first=True)),
    **dict.fromkeys(("max.dim", "min.dim"), Chooser(first=True)),
    **dict.fromkeys(("cummax", "cummin"), Chooser(first=True, upto=True)),
    **dict.fromkeys(("median.dim", "nanmedian.dim"), Chooser()),
    "kthvalue": Chooser(),
    "mode": Chooser(by_value=False),
    "topk": Chooser(distinct=True),
    "sort": Chooser(distinct=True),
    "sort.stable": Chooser(first=True, distinct=True),
}


@dataclass(frozen=True)
class Picked:
    """One call of an operator that chooses: the values from which it chose, the dimension (None: all of them as one
    row), and the indices that it returned. `versions` tell whether values or indices have been changed in place
    since."""

    chooser: Chooser
    values: torch.Tensor
    dim: int | None
    index: torch.Tensor
    versions: tuple[int, int]

    @property
    def unchanged(self) -> bool:
        return (self.values._version, self.index._version) == self.versions


@dataclass(frozen=True)
class Choice:
    """An output that holds indices which an operator such as argmax chose. `values` and `exact` are the values among
    which it chooses, as rows along `dim`: in PyTorch's dtype and in float64. `index` and `exact_index` are the indices
    that it chose from each; the output has the elements of `index` in the same order."""

    chooser: Chooser
    dim: int
    values: torch.Tensor
    exact: torch.Tensor
    index: torch.Tensor
    exact_index: torch.Tensor

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for one in (self.values, self.exact, self.index, self.exact_index))


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, notes each call of an operator that returns chosen indices (those in CHOOSERS) in `picked`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.picked: list[Picked] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2] + (f".{func._overloadname}" if func._overloadname else "")
        chooser = CHOOSERS.get(name.removesuffix(".default"))
        if chooser is not None and func.namespace == "aten":
            self._note(chooser, func, args, kwargs or {}, results)
        return results

    def _note(self, chooser: Chooser, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> None:
        positional = [one.name for one in func._schema.arguments if not one.kwarg_only]
        given = dict(zip(positional, args, strict=False)) | kwargs
        index = results if chooser.result is None else results[chooser.result]
        values = args[0]
        versions = (values._version, index._version)
        self.picked.append(Picked(chooser, values, given.get("dim", chooser.dim), index, versions))


def chooses(graph: dict[str, Any]) -> bool:
    """Whether an output of the graph may hold indices that an operator such as argmax chose: only then is the module
    watched."""
    if not any(str(node["op"]).partition(".")[0] in _NAMES for node in graph["nodes"]):
        return False
    specs = {value["name"]: value["spec"] for value in [*graph["inputs"], *graph["nodes"]]}
    return any((specs.get(name) or {}).get("dtype") == "i64" for name in graph["outputs"])


_NAMES = frozenset(name.partition(".")[0] for name in (*CHOOSERS, "argsort", "msort"))


@contextmanager
def _watched(graph: dict[str, Any]) -> Iterator[list[Picked]]:
    if not chooses(graph):
        yield []
        return
    with _Watching() as watching:
        yield watching.picked


def watched(graph: dict[str, Any], run: Callable[[], Tensors]) -> tuple[list[torch.Tensor], list[Picked | None]]:
    """Returns the outputs of `run`, which runs the module, and for each output the call of an operator such as argmax
    that chose its indices, or None."""
    with _watched(graph) as picked:
        outputs = list(run())
    return outputs, [_source(output, picked) for output in outputs]


def _source(output: torch.Tensor, picked: list[Picked]) -> Picked | None:
    """Returns the call whose indices are this output: the output has the same memory in the same order, and neither was
    written to since. Returns None if there is none."""
    for one in picked:
        if (
            output.dtype == torch.int64
            and output.data_ptr() == one.index.data_ptr()
            and output.numel() == one.index.numel()
            and output.is_contiguous()
            and one.index.is_contiguous()
            and one.unchanged
        ):
            return one
    return None


def paired(reference: list[Picked | None], exact: list[Picked | None]) -> list[Choice | None]:
    """Returns the `Choice` of each output, made from the run in PyTorch's dtype and the run in float64; None for an
    output that is not a tensor of chosen indices in both runs."""
    return [None if a is None or b is None else _choice(a, b) for a, b in zip(reference, exact, strict=True)]


def _choice(one: Picked, exact: Picked) -> Choice | None:
    alike = one.chooser is exact.chooser and one.dim == exact.dim and one.values.shape == exact.values.shape
    if not alike or one.index.numel() == 0 or one.values.dim() == 0:
        return None
    dim = one.dim
    tensors = (one.values, exact.values, one.index, exact.index)
    if dim is None:
        return Choice(one.chooser, 0, *(tensor.reshape(-1) for tensor in tensors))
    dim %= one.values.dim()
    indices = [index if index.dim() == one.values.dim() else index.unsqueeze(dim) for index in tensors[2:]]
    return Choice(one.chooser, dim, *tensors[:2], *indices)


def choices_of(task: OpenTask, args: Args, kwargs: Kwargs) -> list[Choice | None]:
    """Returns the `Choice` of each output for these inputs, or None for an output that does not hold chosen indices.
    Empty if no output can hold such indices, or if the module cannot run in float64 now."""
    if not chooses(task.graph):
        return []
    _, reference = watched(task.graph, lambda: task.call(args, kwargs))
    outputs, exact = watched(task.graph, lambda: task.exact(args, kwargs) or ())
    return paired(reference, exact) if outputs else []


__all__ = ["Choice", "Chooser", "choices_of", "chooses", "paired", "watched"]
