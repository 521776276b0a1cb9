"""Operators that move elements. Each is a rule that gives the position in the source for a position in the result."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.literals import decoded
from kernel_assistant.generator.ir.sizes import Size, mul, parse_size, size_value
from kernel_assistant.records.graph import Node, Operand
from kernel_assistant_training.teacher.moving.pull import At, Puller, Rule
from kernel_assistant_training.teacher.text.expressions import ATOM, CHOICE, PRODUCT, SUM
from kernel_assistant_training.teacher.text.terms import ZERO, IndexTerm, Term, digits, flat, offset, wrapped


def argument(node: Node, place: int, name: str, default: Operand = None) -> Operand:
    return decoded(node.args[place] if place < len(node.args) else node.kwargs.get(name, default), node.op)


def name_of(operand: Operand) -> str:
    if not isinstance(operand, str) or not operand.startswith("%"):
        raise Unsupported(f"{operand!r} where a tensor is wanted")
    return operand[1:]


def numbers(operand: Operand) -> list[int]:
    found = [item for item in (operand if isinstance(operand, list) else [operand]) if isinstance(item, int)]
    if not found or (isinstance(operand, list) and len(found) != len(operand)):
        raise Unsupported(f"{operand!r} where numbers are wanted")
    return found


def _same(puller: Puller, node: Node, at: At) -> Term:
    return puller.value(name_of(node.args[0]), at)


def _dropout(puller: Puller, node: Node, at: At) -> Term:
    if argument(node, 2, "train", False):
        raise Unsupported("dropout while training")
    return _same(puller, node, at)


def _expand(puller: Puller, node: Node, at: At) -> Term:
    return puller.operand(node.args[0], at, [parse_size(size) for size in node.spec.shape])


VIEWS = frozenset("view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as view_copy".split())


def _view(puller: Puller, node: Node, at: At) -> Term:
    """Another shape for the same elements. If only views lie between, the input buffer is read with that shape
    directly."""
    shape, source = [parse_size(size) for size in node.spec.shape], name_of(node.args[0])
    while source in puller.nodes and puller.nodes[source].op.partition(".")[0] in VIEWS and source not in puller.holes:
        source = name_of(puller.nodes[source].args[0])
    if source in puller.inputs and puller.inputs[source].strides is None and shape and source not in puller.holes:
        return puller.load(source, at, shape)
    return puller.value(source, regrouped(puller, at, shape, puller.shape(source)))


def regrouped(puller: Puller, at: At, new: list[Size], old: list[Size]) -> At:
    """A position in a tensor of sizes `new` as the position of the same element in one of sizes `old`."""
    dims, found, i, j = puller.graph.dims, dict[int, IndexTerm](), 0, 0
    while i < len(old) or j < len(new):
        mine, theirs = [i] if i < len(old) else [], [j] if j < len(new) else []
        left: Size = old[i] if mine else 1
        right: Size = new[j] if theirs else 1
        i, j = i + len(mine), j + len(theirs)
        while left != right:
            if size_value(left, dims) < size_value(right, dims) and i < len(old):
                left, i = mul(left, old[i]), i + 1
                mine.append(i - 1)
            elif j < len(new):
                right, j = mul(right, new[j]), j + 1
                theirs.append(j - 1)
            else:
                raise Unsupported("a view whose sizes cannot be matched")
        place = flat(tuple(at[dim] for dim in theirs), tuple(puller.named.size(new[dim]) for dim in theirs))
        parts = digits(place, tuple(puller.named.size(old[dim]) for dim in mine))
        found.update(zip(mine, parts, strict=True))
    return tuple(found[dim] for dim in range(len(old)))


def _permute(puller: Puller, node: Node, at: At) -> Term:
    order = [place % len(at) for place in numbers(node.args[1])]
    return puller.value(name_of(node.args[0]), _placed(at, order))


def _placed(at: At, order: list[int]) -> At:
    found = list(at)
    for new, old in enumerate(order):
        found[old] = at[new]
    return tuple(found)


def _transpose(puller: Puller, node: Node, at: At) -> Term:
    order = list(range(len(at)))
    one, other = (0, -1) if node.op == "t" else (puller.dimension(node, item, len(at)) for item in node.args[1:3])
    order[one], order[other] = order[other], order[one]
    return puller.value(name_of(node.args[0]), _placed(at, order))


def replaced(at: At, dim: int, *places: IndexTerm) -> At:
    """The position with other indices in place of that along one dimension, or with none."""
    return (*at[:dim], *places, *at[dim + 1 :])


def _slice(puller: Puller, node: Node, at: At) -> Term:
    dim = puller.dimension(node, argument(node, 1, "dim", 0), len(at))
    start, step = argument(node, 2, "start", 0) or 0, argument(node, 4, "step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported(f"slice from {start!r} by {step!r}")
    source = name_of(node.args[0])
    place = at[dim]
    if step != 1 and place is not ZERO:
        place = IndexTerm(f"{wrapped(place.text, place.level, ATOM)} * {step}", PRODUCT, place.uses)
    return puller.value(source, replaced(at, dim, _moved(puller, place, start, puller.shape(source)[dim])))


def _moved(puller: Puller, place: IndexTerm, by: int, size: Size) -> IndexTerm:
    """The position plus `by`; a negative `by` counts from the end of the dimension."""
    if by >= 0:
        return offset(place, puller.named.attribute(by))
    if isinstance(size, int) and size + by <= 0:
        return place
    return offset(offset(place, puller.named.size(size)), f"-{puller.named.attribute(-by)}")


def _select(puller: Puller, node: Node, at: At) -> Term:
    source, index = name_of(node.args[0]), node.args[2]
    dim = puller.dimension(node, node.args[1], len(at) + 1)
    if not isinstance(index, int):
        raise Unsupported(f"select of {index!r}")
    return puller.value(source, (*at[:dim], _moved(puller, ZERO, index, puller.shape(source)[dim]), *at[dim:]))


def mirrored(puller: Puller, place: IndexTerm, size: Size) -> IndexTerm:
    return IndexTerm(f"{puller.named.size(size)} - 1 - {wrapped(place.text, place.level, PRODUCT)}", SUM, place.uses)


def _flip(puller: Puller, node: Node, at: At) -> Term:
    source = name_of(node.args[0])
    shape, places = puller.shape(source), list(at)
    for item in numbers(node.args[1]):
        dim = item % len(at)
        places[dim] = places[dim] if shape[dim] == 1 else mirrored(puller, at[dim], shape[dim])
    return puller.value(source, tuple(places))


def _roll(puller: Puller, node: Node, at: At) -> Term:
    source, shifts, dims = name_of(node.args[0]), numbers(node.args[1]), argument(node, 2, "dims")
    shape, places = puller.shape(source), list(at)
    if not dims:
        if len(at) != 1:
            raise Unsupported("a roll of all dimensions at once")
        dims = [0]
    for shift, item in zip(shifts, numbers(dims), strict=True):
        dim = item % len(at)
        size, place = puller.named.size(shape[dim]), places[dim]
        if isinstance(whole := shape[dim], int) and abs(shift) >= whole:
            raise Unsupported("a roll by more than the dimension")
        by = puller.named.attribute(abs(shift))
        if shift > 0:
            moved = offset(place, f"-{by}").text
            text = f"{place.text} < {by} ? {moved} + {size} : {moved}"
        else:
            moved = offset(place, by).text
            text = f"{moved} < {size} ? {moved} : {moved} - {size}"
        places[dim] = IndexTerm(text, CHOICE, place.uses) if shift and place is not ZERO else place
    return puller.value(source, tuple(places))


def _repeat(puller: Puller, node: Node, at: At) -> Term:
    source = name_of(node.args[0])
    shape = puller.shape(source)
    places = at[len(at) - len(shape) :]
    wide = [parse_size(size) for size in node.spec.shape[len(at) - len(shape) :]]
    return puller.value(
        source,
        tuple(
            place if size == full else ZERO if size == 1 else _remainder(puller, place, size)
            for place, size, full in zip(places, shape, wide, strict=True)
        ),
    )


def _remainder(puller: Puller, place: IndexTerm, size: Size) -> IndexTerm:
    return IndexTerm(f"{wrapped(place.text, place.level, ATOM)} % {puller.named.size(size)}", PRODUCT, place.uses)


def _repeat_interleave(puller: Puller, node: Node, at: At) -> Term:
    count, dim = node.args[1], argument(node, 2, "dim")
    if not node.op.endswith("self_int") or not isinstance(count, int) or dim is None:
        raise Unsupported(f"{node.op} by {count!r}")
    place = at[puller.dimension(node, dim, len(at))]
    own = IndexTerm(f"{wrapped(place.text, place.level, ATOM)} / {puller.named.attribute(count)}", PRODUCT, place.uses)
    return puller.value(name_of(node.args[0]), replaced(at, puller.dimension(node, dim, len(at)), own))


def _getitem(puller: Puller, node: Node, at: At) -> Term:
    """One result of split, chunk or unbind."""
    whole, place = puller.nodes[name_of(node.args[0])], node.args[1]
    operator, source = whole.op.partition(".")[0], name_of(whole.args[0])
    if not isinstance(place, int):
        raise Unsupported(f"result {place!r}")
    shape = puller.shape(source)
    if operator == "unbind":
        dim = puller.dimension(whole, argument(whole, 1, "dim", 0), len(shape))
        return puller.value(source, (*at[:dim], IndexTerm(str(place)), *at[dim:]))
    if operator not in ("split", "split_with_sizes", "chunk"):
        raise Unsupported(f"a result of {whole.op}")
    dim = puller.dimension(whole, argument(whole, 2, "dim", 0), len(shape))
    size, given = shape[dim], whole.args[1]
    if not isinstance(size, int):
        raise Unsupported("a split of a free dimension")
    if isinstance(given, list):
        start = " + ".join(map(puller.named.size, numbers(given)[:place]))
    else:
        (number,) = numbers(given)
        each = puller.named.size(-(-size // number) if operator == "chunk" else number)
        start = each if place == 1 else f"{each} * {place}"
    return puller.value(source, replaced(at, dim, offset(at[dim], start) if place else at[dim]))


MOVES: dict[str, Rule] = {
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "identity"), _same),
    **dict.fromkeys(("dropout", "feature_dropout"), _dropout),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    "permute": _permute,
    **dict.fromkeys(("transpose", "t", "swapaxes"), _transpose),
    **dict.fromkeys(("slice", "narrow"), _slice),
    "select": _select,
    "flip": _flip,
    "roll": _roll,
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "repeat_interleave": _repeat_interleave,
    "getitem": _getitem,
}
