"""Operators that read at positions given by a tensor: embedding, index_select, gather, indexing, one_hot."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records.graph import Node
from kernel_assistant_training.teacher.moving.moves import argument, name_of
from kernel_assistant_training.teacher.moving.pull import At, Puller, Rule
from kernel_assistant_training.teacher.text.expressions import SUM
from kernel_assistant_training.teacher.text.terms import ZERO, Apply, IndexTerm, Name, Term, wrapped


def _embedding(puller: Puller, node: Node, at: At) -> Term:
    table, index = name_of(node.args[0]), name_of(node.args[1])
    rank = len(puller.shape(index))
    return puller.value(table, (_index(puller, index, at[:rank], table, 0), *at[rank:]))


def _index(puller: Puller, index: str, at: At, of: str, dim: int) -> IndexTerm:
    size = puller.shape(of)[dim]
    return ZERO if size == 1 else puller.index(f"%{index}", at, size, puller.source)


def _index_select(puller: Puller, node: Node, at: At) -> Term:
    value, index = name_of(node.args[0]), name_of(node.args[2])
    dim = puller.dimension(node, node.args[1], len(at))
    own = at[dim : dim + 1] if puller.shape(index) else ()
    return puller.value(value, (*at[:dim], _index(puller, index, own, value, dim), *at[dim + 1 :]))


def _tensor_index(puller: Puller, node: Node, at: At) -> Term:
    """`x[:, i, j]` with integer tensors for neighbouring dimensions."""
    value, items = name_of(node.args[0]), node.args[1]
    if not isinstance(items, list):
        raise Unsupported("index by no list")
    dims = [dim for dim, item in enumerate(items) if item is not None]
    if not dims or dims != list(range(dims[0], dims[-1] + 1)):
        raise Unsupported("index by tensors for dimensions that are not neighbours")
    names = [name_of(items[dim]) for dim in dims]
    rank = max(len(puller.shape(name)) for name in names)
    shared = at[dims[0] : dims[0] + rank]
    places = []
    for dim, name in zip(dims, names, strict=True):
        shape = puller.shape(name)
        own = tuple(
            ZERO if size == 1 else place for size, place in zip(shape, shared[rank - len(shape) :], strict=True)
        )
        places.append(_index(puller, name, own, value, dim))
    return puller.value(value, (*at[: dims[0]], *places, *at[dims[0] + rank :]))


def _gather(puller: Puller, node: Node, at: At) -> Term:
    value, place = name_of(node.args[0]), 1 if node.op.startswith("gather") else 2
    index = name_of(node.args[3 - place])
    dim = puller.dimension(node, argument(node, place, "dim"), len(at))
    own = tuple(ZERO if size == 1 else one for one, size in zip(at, puller.shape(index), strict=True))
    there = tuple(ZERO if size == 1 else one for one, size in zip(at, puller.shape(value), strict=True))
    return puller.value(value, (*there[:dim], _index(puller, index, own, value, dim), *there[dim + 1 :]))


def _one_hot(puller: Puller, node: Node, at: At) -> Term:
    term = puller.value(name_of(node.args[0]), at[:-1])
    place = Name("int64_t", wrapped(at[-1].text, at[-1].level, SUM))
    return Apply("int64_t", "({0} == {1} ? 1 : 0)", (term, place))


GATHERS: dict[str, Rule] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _tensor_index,
    "gather": _gather,
    "take_along_dim": _gather,
    "one_hot": _one_hot,
}
