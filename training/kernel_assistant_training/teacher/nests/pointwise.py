"""Elementwise results of one shape, with any broadcasting, in one kernel."""

from __future__ import annotations

from random import Random

from kernel_assistant.generator.ir.expr import Expr, Load
from kernel_assistant.generator.loops.nest import Access
from kernel_assistant.records.graph import DTYPE_BYTES
from kernel_assistant_training.teacher.text.answer import Answer, Pieces, kernel
from kernel_assistant_training.teacher.text.expressions import ExpressionWriter, below, stored
from kernel_assistant_training.teacher.text.lowering import FLOATS, Lowered
from kernel_assistant_training.teacher.text.places import operand, plain, row_offset, row_pointer
from kernel_assistant_training.teacher.text.sizes import NoForm

INTEGERS = ("i64", "i32", "i16", "i8", "u8")
THREADS = (256, 128, 512, 1024)


def pointwise(lowered: Lowered, random: Random) -> list[Answer]:
    """Answers for an elementwise nest. Raises NoForm for others."""
    dtypes = {access.dtype for access in lowered.accesses if access.buffer}
    if dtypes - {*FLOATS, *INTEGERS, "b1"} or (dtypes & set(INTEGERS) and dtypes & set(FLOATS)):
        raise NoForm(f"elementwise over {sorted(dtypes)}")
    axes = [*lowered.nest.outer, *lowered.nest.inner]
    if any(access.linear(axes) != 1 or access.offset != 0 for access, _ in lowered.nest.stores):
        raise NoForm("results that are not contiguous")
    if not lowered.nest.loads:
        raise NoForm("nothing is read")
    if lowered.target == "cpu":
        return [Answer(_cpu(lowered).source(), ("pointwise",))]
    pieces = _cuda(lowered, "int64_t" if dtypes & set(INTEGERS) else "")
    return [
        Answer(_with_sets(pieces, threads, vec).source(), ("pointwise",))
        for threads, vec in _schedules(lowered, random)
    ]


def _with_sets(pieces: Pieces, threads: int, vec: int) -> Pieces:
    return Pieces((f"T={threads}", f"V={vec}"), (), pieces.launches, pieces.includes, pieces.code)


def _schedules(lowered: Lowered, random: Random) -> list[tuple[int, int]]:
    """(threads, elements a thread), best guess first. A vector of the narrowest tensor has 16 bytes."""
    axes = [*lowered.nest.outer, *lowered.nest.inner]
    whole = [access for access in lowered.accesses if access.buffer and access.linear(axes) == 1]
    widths = [DTYPE_BYTES[access.dtype] for access in whole if access.dtype != "b1"]
    vec = max(2, min(8, 16 // min(widths, default=4)))
    others = [
        (threads, width) for threads in THREADS for width in (vec, max(1, vec // 2)) if (threads, width) != (256, vec)
    ]
    random.shuffle(others)
    return [(256, vec), *others]


def _results(lowered: Lowered) -> list[tuple[Access, Expr]]:
    return [(access, stored(output.expr, access.dtype)) for access, output in lowered.nest.stores]


def _used(lowered: Lowered, result: Expr) -> list[tuple[Access, Load]]:
    """The accesses that a result reads, in the order of the graph's inputs."""
    found: dict[int, tuple[Access, Load]] = {}
    for expr in below([result]):
        if isinstance(expr, Load):
            access = plain(lowered.nest.loads[id(expr)])
            found.setdefault(id(access), (access, expr))
    order = lowered.buffers()
    return sorted(found.values(), key=lambda one: (order.index(one[0].buffer), one[0].name))


def _names(lowered: Lowered) -> dict[int, str]:
    """A name for each load: that of its access."""
    return {key: access.name for key, access in lowered.nest.loads.items()}


def _cuda(lowered: Lowered, ctype: str) -> Pieces:
    nest, sizes, writer = lowered.nest, lowered.sizes, ExpressionWriter(lowered)
    axes, names = [*nest.outer, *nest.inner], _names(lowered)
    body = []
    for store, expr in _results(lowered):
        used = _used(lowered, expr)
        function = writer.lambda_(expr, names, [(load.ctype, access.name) for access, load in used], False)
        operands = ", ".join([f"a.{store.buffer}", *(operand(access, axes, sizes) for access, _ in used)])
        body.append(f"ka::pointwise<V{', 0, int64_t' if ctype else ''}>(a.n, {function}, {operands});")
    n = sizes.launch(nest.size(axes))
    fields = [*lowered.buffers(), f"n={n}", *sizes.free]
    launch = f"k0({', '.join(fields)}) grid=cdiv({n},T*V) block=T"
    return Pieces((), (), (launch,), ("ka/pointwise.cuh",), kernel("cuda", "k0", body))


def _cpu(lowered: Lowered) -> Pieces:
    axes = [*lowered.nest.outer, *lowered.nest.inner]
    flat = all(access.linear(axes) in (0, 1) and access.offset == 0 for access in lowered.accesses)
    return _cpu_flat(lowered) if flat else _cpu_rows(lowered)


def _cpu_flat(lowered: Lowered) -> Pieces:
    """One loop over all elements, if each operand has all of them or one."""
    writer, names, results = ExpressionWriter(lowered), _names(lowered), _results(lowered)
    axes = [*lowered.nest.outer, *lowered.nest.inner]
    several = len(results) > 1
    singles: dict[str, None] = {}
    body = []
    for store, expr in results:
        pointers, parameters = [f"a->{store.buffer}"], []
        used = _used(lowered, expr)
        for access, load in used:
            if access.linear(axes) == 0:
                singles[f"const {load.ctype} {access.name} = ka_get(a->{access.buffer}[0]);"] = None
            else:
                pointers.append(f"a->{access.buffer}")
                parameters.append((load.ctype, access.name))
        function = writer.lambda_(expr, names, parameters, len(parameters) < len(used))
        pointers = [f"{pointer} + i" for pointer in pointers] if several else pointers
        call = "ka::map_row(n, " if several else "ka::pointwise(a->n, "
        body.append(f"{call}{function}, {', '.join(pointers)});")
    if several:
        body = ["ka::blocks(a->n, [=](int64_t i, int64_t n) {", *(f"  {_indented(line)}" for line in body), "});"]
    n = lowered.sizes.launch(lowered.nest.size(axes))
    launch = f"k0({', '.join([*lowered.buffers(), f'n={n}', *lowered.sizes.free])})"
    return Pieces((), (), (launch,), ("ka/pointwise.h",), kernel("cpu", "k0", [*singles, *body]))


def _cpu_rows(lowered: Lowered) -> Pieces:
    """A loop over rows along the innermost dimension. Operands move along it by one element, or are constant in a row
    and read before it."""
    nest, sizes, writer = lowered.nest, lowered.sizes, ExpressionWriter(lowered)
    names = _names(lowered)
    alias = sizes.alias(nest.size(nest.inner), "n")
    columns = sizes.code(nest.size(nest.inner))
    body: dict[str, None] = {}
    for store, expr in _results(lowered):
        pointers, parameters = [], []
        for access, load in _used(lowered, expr):
            step = access.linear(nest.inner)
            if step == 0:
                at = row_offset(access, nest.outer, sizes)
                body[f"const {load.ctype} {access.name} = ka_get(a->{access.buffer}[{at or 0}]);"] = None
            elif step == 1:
                pointers.append(row_pointer(access, nest.outer, sizes, "a->"))
                parameters.append((load.ctype, access.name))
            else:
                raise NoForm("an operand with gaps")
        if not pointers:
            raise NoForm("a row of equal values")
        captures = len(parameters) < len(_used(lowered, expr))
        function = writer.lambda_(expr, names, parameters, captures)
        to = row_pointer(store, nest.outer, sizes, "a->")
        body[f"ka::map_row({columns}, {function}, {', '.join([to, *pointers])});"] = None
    lines = [f"  {_indented(line)}" for line in body]
    code = [*([alias] if alias else []), f"ka::rows(a->rows, {columns}, [=](int64_t r) {{", *lines, "});"]
    rows = sizes.launch(nest.size(nest.outer))
    launch = f"k0({', '.join([*lowered.buffers(), f'rows={rows}', *sizes.free])})"
    return Pieces((), (), (launch,), ("ka/rows.h",), kernel("cpu", "k0", code))


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
