"""Running sums, products and extremes along one dimension, either way, with elementwise work on both sides."""

from __future__ import annotations

import math
from random import Random

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.records.graph import Node, Operand, OpGraph, references
from kernel_assistant_training.teacher.families.around import FLOATS, Around, around, in_two, pieces
from kernel_assistant_training.teacher.moving.frame import HALVES, is_home, lambda_text, parameters
from kernel_assistant_training.teacher.moving.moves import numbers
from kernel_assistant_training.teacher.text.answer import Answer
from kernel_assistant_training.teacher.text.named import Named
from kernel_assistant_training.teacher.text.sizes import NoForm
from kernel_assistant_training.teacher.text.terms import Load

#: Columns from which a thread for each fills the device; rows from which several threads share a column.
MANY_COLUMNS, TALL = 65536, 64
#: With so few rows of at least this length, a block a row leaves most of the device idle.
FEW_ROWS, LONG = 128, 32768
#: Rows up to which a thread takes one.
SHORT = 64
OPERATORS = {"cumsum": "ka::sum", "cumprod": "ka::prod", "cummax": "ka::max", "cummin": "ka::min"}
#: Operators whose rows can be cut into chunks.
IN_CHUNKS = ("ka::sum", "ka::prod")


def answers(task: Canonical, target: str, random: Random) -> list[Answer]:
    scans = [node for node in task.graph.nodes if node.op.partition(".")[0] in OPERATORS]
    if len(scans) != 1:
        return []
    try:
        named = Named(task, target)
        (node,) = (one for one in named.graph.nodes if one.name == scans[0].name)
        turned = _turned(named.graph, node)
        back = turned is not None
        if turned is not None:
            named.graph = turned
        place = around(named, named.only_value(node), node.name)
        return _written(named, place, node, numbers(node.args[1])[0] % len(place.shape), back)
    except (Unsupported, NoForm):
        return []


def _turned(graph: OpGraph, scan: Node) -> OpGraph | None:
    """The graph without the flips around a scan that is written as flip, scan, flip along one dimension; the scan then
    has to run backwards. None if the graph does not have this form.
    """
    by_name = {node.name: node for node in graph.nodes}
    first = by_name.get(str(scan.args[0])[1:])
    behind = [node for node in graph.nodes if scan.name in references(node)]
    if first is None or first.op != "flip" or len(behind) != 1 or behind[0].op != "flip":
        return None
    rank = len(scan.spec.shape)
    dims = [{item % rank for item in numbers(node.args[1])} for node in (first, behind[0], scan)]
    if {scan.name, first.name} & set(graph.outputs) or not dims[0] == dims[1] == dims[2]:
        return None
    last = behind[0].name
    nodes = []
    for node in graph.nodes:
        if node.name in (first.name, last):
            continue
        args = tuple(_renamed(arg, f"%{last}", f"%{scan.name}") for arg in node.args)
        args = (first.args[0], *args[1:]) if node is scan else args
        nodes.append(Node(name=node.name, op=node.op, args=args, kwargs=node.kwargs, spec=node.spec))
    gone = {first.name, last}
    if any(gone & set(references(node)) for node in nodes):
        return None
    outputs = tuple(scan.name if name == last else name for name in graph.outputs)
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=outputs)


def _renamed(operand: Operand, old: str, new: str) -> Operand:
    if isinstance(operand, list):
        return [new if item == old else item for item in operand]
    return new if operand == old else operand


def _written(named: Named, place: Around, node: Node, dim: int, back: bool) -> list[Answer]:
    every = [*place.before_loads, *place.after_loads]
    if not place.before_loads:
        raise Unsupported("a scan of equal values")
    if any(load.dtype not in (*FLOATS, "b1") for load in every) or node.spec.dtype not in FLOATS:
        raise Unsupported("a scan of integers")
    operator = OPERATORS[node.op.partition(".")[0]] + (", false, true" if back else "")
    last = all(size == 1 for size in place.shape[dim + 1 :])
    whole = not place.after_loads and all(is_home(load, place.source, named) for load in every)
    if last and not (whole and _is_short(named, place, dim)):
        return _rows(named, place, dim, operator)
    if not whole:
        raise Unsupported("operands that are broadcast, or behind the scan")
    names, hole = parameters(every), place.hole
    function = lambda_text(place.before, [(load.ctype, names[id(load)]) for load in every], names)
    behind = lambda_text(place.after, [("float", hole.text)], {})
    pointers = ", ".join(named.prefix + name for name in ("out0", *(load.buffer for load in every)))
    operands = f"{function}, {behind}, {pointers}"
    if last:
        return _threads(named, place, dim, operator, operands, [(128, 1), (256, 1), (64, 1)])
    widest = 2 if _dtype(place) in HALVES else 1
    columns = [(128, 2 * widest), (256, widest), (128, widest), (64, widest)][:: 1 if widest == 2 else -1]
    found = _threads(named, place, dim, operator, operands, columns)
    if named.target == "cpu":
        return found
    tall = _tall(named, place, dim, operator, operands)
    return [*tall, *found] if _is_tall(named, place, dim) else [*found, *tall]


def _threads(
    named: Named, place: Around, dim: int, operator: str, operands: str, schedules: list[tuple[int, int]]
) -> list[Answer]:
    """Answers in which a thread has one column, or `V` of them; also for rows that are too short for a warp."""
    outer, inner = (named.product(part) for part in (place.shape[:dim], place.shape[dim + 1 :]))
    call = f"({outer}, {named.size(place.shape[dim])}, {inner}, {operands});"
    if named.target == "cpu":
        body = [f"ka::scan_columns<{operator}>{call}"]
        return [Answer(pieces(named, "", [], "", "ka/columns.h", body).source(), ("scan-columns",))]
    outer, inner = (named.product(part, "") for part in (place.shape[:dim], place.shape[dim + 1 :]))
    groups = [one for one in (outer, "" if inner == "1" else f"cdiv({inner},V)") if one not in ("", "1")]
    body = [f"ka::scan_columns<V, {operator}>{call}"]
    grid = f"grid=cdiv({'*'.join(groups)},T) block=T"
    made = [pieces(named, f"T={threads} V={v}", [], grid, "ka/columns.cuh", body) for threads, v in schedules]
    return [Answer(one.source(), ("scan-columns",)) for one in made]


def _is_short(named: Named, place: Around, dim: int) -> bool:
    """Whether rows are so short that a thread a row is better than a warp."""
    size = place.shape[dim]
    return named.target == "cuda" and isinstance(size, int) and size <= SHORT and dim > 0


def _is_tall(named: Named, place: Around, dim: int) -> bool:
    """Whether there are fewer columns than threads, and columns so long that several threads should share one; at the
    base sizes."""
    outer, inner = (math.prod(map(named.value, part)) for part in (place.shape[:dim], place.shape[dim + 1 :]))
    return outer * inner < MANY_COLUMNS and named.value(place.shape[dim]) >= TALL


def _tall(named: Named, place: Around, dim: int, operator: str, operands: str) -> list[Answer]:
    """Answers in which several threads share the scan of a column."""
    inner, outer_text, inner_text = (
        named.product(place.shape[dim + 1 :]),
        named.product(place.shape[:dim], ""),
        named.product(place.shape[dim + 1 :], ""),
    )
    body = [f"ka::scan_tall<X, Y, V, {operator}>({named.size(place.shape[dim])}, {inner}, {operands});"]
    tiles = f"cdiv({inner_text},X*V)"
    grid = f"grid={tiles if outer_text == '1' else f'{outer_text}*{tiles}'} block=X*Y"
    widest = 2 if _dtype(place) in HALVES else 1
    sets = [f"X=32 Y={down} V={widest}" for down in (32, 16, 8)]
    made = [pieces(named, one, [], grid, "ka/columns.cuh", body, threads="X * Y") for one in sets]
    return [Answer(one.source(), ("scan-tall",)) for one in made]


def _dtype(place: Around) -> str:
    return next(load.dtype for load in place.before_loads if load.dtype in FLOATS)


def _rows(named: Named, place: Around, dim: int, operator: str) -> list[Answer]:
    width, lines = named.size(place.shape[dim]), dict[str, None]()
    pointers = [f"{named.prefix}out0 + r * {width}"]
    functions = []
    for term, every, given in (
        (place.before, place.before_loads, []),
        (place.after, place.after_loads, [("float", place.hole.text)]),
    ):
        names, letter = parameters(every), place.source.at[dim].text
        along = [load for load in every if load.at and load.at[-1].text == letter]
        for load in every:
            if any(letter in one.uses for one in (load.at[:-1] if load in along else load.at)):
                raise Unsupported("a row that is read otherwise")
            if load in along:
                above = Load(load.buffer, load.dtype, load.ctype, load.at[:-1], load.sizes[:-1])
                index = _row(named, place, above, dim)
                pointers.append(named.prefix + load.buffer + ("" if index == "0" else f" + {index} * {load.sizes[-1]}"))
            else:
                index = _row(named, place, load, dim)
                lines[f"const {load.ctype} {names[id(load)]} = ka_get({named.prefix}{load.buffer}[{index}]);"] = None
        arguments = [*given, *((load.ctype, names[id(load)]) for load in along)]
        if not arguments:
            raise Unsupported("a scan of equal values")
        functions.append(lambda_text(term, arguments, names, captures=len(along) < len(every)))
    behind = [] if place.after is place.hole else functions[1:]
    operands = [width, ", ".join([functions[0], *behind]), *pointers]
    call = ", ".join(operands) + ");"
    rows = named.product(place.shape[:dim], "")
    if named.target == "cpu":
        inside = "\n".join([*lines, f"ka::scan_row<{operator}>({call}"]).split("\n")
        body = [f"ka::rows(a->rows, {width}, [=](int64_t r) {{", *(f"  {line}" for line in inside), "});"]
        return [Answer(pieces(named, "", [f"rows={rows}"], "", "ka/scan.h", body).source(), ("scan",))]
    body = ["const int64_t r = blockIdx.x;", *lines, f"ka::scan_row<T, V, N, {operator}>({call}"]
    found = _chunks(named, place, dim, operator, operands) if not lines and not behind else []
    for threads, vector, items in _schedules(place, dim):
        sets = f"T={threads} V={vector} N={items}"
        made = pieces(named, sets, [], f"grid={rows} block=T", "ka/scan.cuh", body)
        found.append(Answer(made.source(), ("scan",)))
    return found


def _chunks(named: Named, place: Around, dim: int, operator: str, operands: list[str]) -> list[Answer]:
    """Answers for few long rows: each is cut into pieces that are reduced first."""
    rows, size = math.prod(map(named.value, place.shape[:dim])), place.shape[dim]
    if rows > FEW_ROWS or named.value(size) < LONG or operator not in IN_CHUNKS:
        return []
    width, function, out, *pointers = operands
    head = f"const int64_t r = blockIdx.x / P;\nka::{{}}, {operator}>({width}, blockIdx.x % P, P, "
    inputs = ", ".join(pointers)
    first = head.format("chunk_total<T, V") + f"{function}, {named.prefix}u0 + r * P, {inputs});"
    second = head.format("scan_chunk<T, V, N") + f"{named.prefix}u0 + r * P, {function}, {out}, {inputs});"
    vector, grid = 8 if _dtype(place) in HALVES else 4, f"grid={named.product(place.shape[:dim], '')}*P block=T"
    one = pieces(named, "", [], grid, "ka/scan.cuh", [first], ("u0",))
    two = pieces(named, "", [], grid, "ka/scan.cuh", [second], ("u0", "out0"))
    scratch = f"u0 f64[{named.product(place.shape[:dim], '')}, P]"
    # Pieces of some tiles each, and blocks for every multiprocessor.
    best = 1 << (min(256, named.value(size) // 8192).bit_length() - 1)
    sets = [f"T=256 V={vector} N={16 // vector} P={parts}" for parts in (best, 2 * best, best // 2)]
    made = [in_two(one, two, each, scratch) for each in sets]
    return [Answer(each.source(), ("scan-chunks",)) for each in made]


def _row(named: Named, place: Around, load: Load, dim: int) -> str:
    """The row of an operand as text. The operand has all dimensions outside of the scan, or none."""
    texts = [one.text for one, size in zip(load.at, load.sizes, strict=True) if size != "1"]
    above = [one.text for one in place.source.at[:dim] if one.text != "0"]
    if not texts:
        return "0"
    if texts != above:
        raise Unsupported("rows that are broadcast")
    return "r"


def _schedules(place: Around, dim: int) -> list[tuple[int, int, int]]:
    """(threads, vector, vectors a thread); a row is one tile, or a few."""
    vector = 8 if _dtype(place) in HALVES else 4
    size = place.shape[dim]
    every = [(256, vector, 4), (128, vector, 4), (256, vector, 2), (512, vector, 2), (128, vector, 2), (64, vector, 2)]
    every += [(64, vector, 1), (32, vector, 1), (256, vector, 1)]
    if not isinstance(size, int):
        return every[:4]
    # On the H200, rows of half types want eight elements a thread, of float up to sixteen.
    wanted = min(size, 4096 if vector == 4 else 2048)
    ordered = sorted(every, key=lambda one: (abs(one[0] * one[1] * one[2] - wanted), one[0] != 256))
    return ordered[:5]
