"""Cuts a graph into parts that run in order. Each part is a loop nest (one kernel), a group of nodes for one library
call, or a call of PyTorch.

`cost.py` estimates the time of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from kernel_assistant.generator.algebra.simplify import simplified
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.graph_text import read_graph, write_graph
from kernel_assistant.generator.ir.labels import CANONICAL
from kernel_assistant.generator.ir.operators import COPY, operator
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.library.attention import with_attention_written
from kernel_assistant.generator.library.library import library_nodes
from kernel_assistant.generator.loops.checked import checked_nest
from kernel_assistant.generator.loops.recurrence import recurrent_layers
from kernel_assistant.generator.loops.templates import as_template
from kernel_assistant.generator.lower.depthwise import BY_CHANNELS
from kernel_assistant.generator.lower.expand import expand, in_steps
from kernel_assistant.generator.lower.reductions import REDUCTIONS, SCANS
from kernel_assistant.generator.lower.windows_lower import WINDOWS
from kernel_assistant.generator.plan.channels_last import AGAIN, COPY_BACK, Depthwise, is_channels_last
from kernel_assistant.generator.plan.constants import constants
from kernel_assistant.generator.plan.copies import with_copies, with_readable_operands, with_storage
from kernel_assistant.generator.plan.cost import RATES, least_seconds, part_seconds
from kernel_assistant.generator.plan.few_rows import with_few_rows
from kernel_assistant.generator.plan.flow import ORDERS, Flow, NodeGroup
from kernel_assistant.generator.plan.folding import with_folded_norms
from kernel_assistant.generator.plan.recurrent_layers import with_recurrences
from kernel_assistant.generator.plan.residual import as_call, nodes_that_stay, renamed
from kernel_assistant.generator.plan.short_attention import with_short_attention
from kernel_assistant.generator.plan.small_products import with_small_products
from kernel_assistant.generator.plan.split_products import has_split_products, in_tf32, with_split_products
from kernel_assistant.records import OpGraph
from kernel_assistant.records.graph import references
from kernel_assistant.records.residual import ResidualCall

#: An interval that grew this often without becoming a nest again is given up.
PATIENCE = 4
#: Most units of one part, and about how many nodes may be lowered to find the parts of one graph (a second or two).
LONGEST = 64
MOST_LOWERED = 100_000
#: The share of its time that a part costs which is computed once.
ONCE = 1e-6
#: The forms of the schedules of a product of split operands, of a convolution with channels first by choice, and of
#: either in TF32.
SPLIT_FORM, FIRST_FORM, TF32_FORM = "library/split", "library/first", "library/tf32"
#: The forms of convolutions of a graph whose depthwise ones are turned to channels last, by what computes these. Our
#: kernels are tried first: they need no plans of cuDNN, which take seconds, and take over the work around them.
DEPTHWISE_FORMS: dict[Depthwise, str] = {"kernel": "library/beside", "library": "library/depthwise"}


@dataclass(frozen=True, slots=True)
class LibraryUse:
    """Options for library calls. `split`: whether float32 products may be computed as sums of TF32 products of split
    operands (`split_products.py`); `channels_last`: whether convolutions change to channels last; `tf32`: whether TF32
    is used against PyTorch's flags; `depthwise`: what computes depthwise convolutions with channels last, "library" or
    "kernel", "" if they keep channels first."""

    split: bool = True
    channels_last: bool = True
    tf32: bool = False
    depthwise: Depthwise = ""


DEFAULT_USE = LibraryUse()


@dataclass(frozen=True, slots=True)
class SubGraph:
    """One part of a graph (what one kernel or call computes) as a graph of its own; the values that other parts compute
    are its inputs.

    `inputs`, `outputs`: names in the whole graph, in the order of `graph.inputs` and `graph.outputs`. `kind`: "kernel",
    "library" or "residual"; a residual part has its PyTorch call in `call`. `seconds`: a rough estimate of its time, to
    compare parts of one graph. `once`: whether the part runs only once, because it depends on parameters alone.
    """

    graph: OpGraph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str
    seconds: float = 0.0
    call: ResidualCall | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """The parts of a graph in the order in which they run.

    `same` maps the name of a reshape to the value that is read instead. `outputs` has the name of the value that is
    written for each output of the graph; a copy if the graph returns an input, or a value twice. `use` has the library
    options with which the graph was cut.
    """

    parts: tuple[SubGraph, ...]
    same: dict[str, str]
    outputs: tuple[str, ...]
    use: LibraryUse = DEFAULT_USE


def is_one_nest(graph: OpGraph, target: str) -> bool:
    """Whether a single loop nest, and so a single kernel, computes the graph, so that it is not cut into parts."""
    if library_nodes(expand(graph), target) or simplified(graph, target) is not graph:
        return False
    try:
        checked_nest(graph, target)
    except Unsupported:
        return False
    return True


def partition(graph: OpGraph, target: str) -> Partition:
    """Cuts a graph into parts for `target`, "cuda" or "cpu"; a graph that is one loop nest is a single part. Raises
    Unsupported if some node fits into no part."""
    if is_one_nest(graph, target):
        whole = SubGraph(graph, tuple(value.name for value in graph.inputs), graph.outputs, "kernel")
        return Partition((whole,), {}, graph.outputs)
    return cut(graph, target)


def cut(graph: OpGraph, target: str, recurrences: bool = True, use: LibraryUse = DEFAULT_USE) -> Partition:
    """Cuts a graph that is not a single loop nest into parts. Without `recurrences`, recurrent layers are left to
    PyTorch. `use` has options for library calls. Raises Unsupported if the graph cannot be cut."""
    lines = tuple(write_graph(graph))
    # Cutting takes seconds: where nothing is split, the parts are those that are known.
    known = use if use.split or use.tf32 else LibraryUse(channels_last=use.channels_last, depthwise=use.depthwise)
    result = _cut_text(lines, target, recurrences, known)
    if known != use and (isinstance(result, str) or any(has_split_products(part.graph) for part in result.parts)):
        result = _cut_text(lines, target, recurrences, use)
    if isinstance(result, str):
        raise Unsupported(result)
    return result


def cut_for(graph: OpGraph, schedule: Schedule) -> Partition:
    """Cuts the graph into the parts to which the schedules in `schedule` belong. The forms of these schedules, such as
    `library/split`, decide how it is cut. Raises Unsupported if the graph cannot be cut.
    """
    forms = schedule.forms()
    depthwise, *more = [use for use, form in DEPTHWISE_FORMS.items() if form in forms] or [""]
    if more:
        raise Unsupported("depthwise convolutions by a library and by our kernels")
    recurrences = not recurrent_layers(graph) or "recurrence" in forms
    return cut(
        graph,
        schedule.target,
        recurrences,
        LibraryUse(SPLIT_FORM in forms, FIRST_FORM not in forms, TF32_FORM in forms, depthwise),
    )


@lru_cache(maxsize=16)
def _cut_text(lines: tuple[str, ...], target: str, recurrences: bool, use: LibraryUse) -> Partition | str:
    if target not in RATES:
        return f"target {target!r}"
    original = read_graph(list(lines))
    graph = simplified(original, target)
    if graph is not original:
        result = _cut_text(tuple(write_graph(graph)), target, recurrences, use)
        if isinstance(result, Partition) and _calls_are_of(original, result):
            return result
        graph = original
    calls = frozenset[str]() if recurrences else recurrent_layers(graph)
    result = _cut_around(graph, target, use=use) if not calls else "recurrent layers stay PyTorch's calls"
    if isinstance(result, Partition):
        return result
    partial = _cut_with_calls(graph, graph, target, result, calls, use)
    if isinstance(partial, Partition):
        return partial
    try:
        written = with_attention_written(graph, target)
    except Unsupported:
        return partial
    if written is graph:
        return partial
    whole = _cut_around(written, target, use=use) if not calls else result
    whole = whole if isinstance(whole, Partition) else _cut_with_calls(graph, written, target, whole, calls, use)
    return whole if isinstance(whole, Partition) else partial


def _calls_are_of(original: OpGraph, partition: Partition) -> bool:
    """Whether all nodes that are left to PyTorch are nodes of the original graph. The judge rejects other calls."""
    return all(node in original.nodes for part in partition.parts if part.call for node in part.call.nodes)


def _cut_with_calls(
    original: OpGraph, graph: OpGraph, target: str, reason: str, calls: frozenset[str], use: LibraryUse
) -> Partition | str:
    """Cuts a graph of which some nodes are left to PyTorch. Returns the parts, or the reason why it cannot be cut.

    The nodes that are left to PyTorch must be in `original`, and at least one part must be a kernel. `reason`: why the
    graph cannot be cut without such nodes; `calls`: nodes to leave to PyTorch although the generator can write them.
    """
    stay = calls | nodes_that_stay(graph, lambda alone: _is_writable(tuple(write_graph(alone)), target))
    partial = _cut_around(graph, target, stay, original, use) if stay else reason
    if isinstance(partial, str) or any(map(_computes, partial.parts)):
        return partial
    lone = reason.startswith("operator ")
    return f"{reason}: nothing is left for a kernel beside PyTorch's own calls" if lone else reason


@lru_cache(maxsize=512)
def _is_writable(lines: tuple[str, ...], target: str) -> bool:
    graph = read_graph(list(lines))
    return is_one_nest(graph, target) or isinstance(_cut_around(graph, target), Partition)


def _computes(part: SubGraph) -> bool:
    return part.kind == "kernel" and any(operator(node) != COPY for node in part.graph.nodes)


def _cut_around(
    graph: OpGraph,
    target: str,
    stay: frozenset[str] = frozenset(),
    original: OpGraph | None = None,
    use: LibraryUse = DEFAULT_USE,
) -> Partition | str:
    """Returns the partition of `graph` with the least estimated time if PyTorch computes the nodes in `stay`, or the
    reason why the graph cannot be cut. `original` is the graph to which these nodes belong, None for `graph`.
    """
    original = original or graph
    folded = graph
    if target == "cuda":
        written = with_short_attention(with_recurrences(graph, stay), stay)
        folded = with_folded_norms(with_small_products(with_few_rows(written, stay), stay), stay)
    plain = with_storage(expand(folded, stay))
    variants = dict.fromkeys(
        tuple(write_graph(variant)) for variant in (plain, in_steps(plain, 1, stay), in_steps(plain, -1, stay))
    )
    partitions, reason = _cuts(original, variants, target, stay, use)
    if not partitions:
        # A scan runs along one dimension of memory, not along several that a view has joined.
        scans = {node.name for node in plain.nodes if operator(node) in SCANS} - stay
        copied = tuple(write_graph(with_copies(plain, scans)))
        partitions, _ = _cuts(original, {copied} - variants.keys(), target, stay, use)
    return min(partitions, key=lambda item: _sum(item.parts)) if partitions else reason


def _cuts(
    original: OpGraph, variants: Iterable[tuple[str, ...]], target: str, stay: frozenset[str], use: LibraryUse
) -> tuple[list[Partition], str]:
    """Returns (partitions, reason): the partitions of those `variants` (texts of equivalent graphs) that can be cut and
    are cheaper than those before, and why the first of the others is left out ("" if none is)."""
    partitions: list[Partition] = []
    reason = ""
    for variant in variants:
        try:
            most = min((_sum(one.parts) for one in partitions), default=math.inf)
            partitions.append(_cut_expanded(original, read_graph(list(variant)), target, stay, most, use))
        except Unsupported as error:
            reason = reason or str(error)
    return partitions, reason


def _sum(parts: Sequence[SubGraph]) -> float:
    return sum(part.seconds for part in parts)


def _cut_expanded(
    original: OpGraph, graph: OpGraph, target: str, stay: frozenset[str], most: float, use: LibraryUse
) -> Partition:
    """Returns the partition of the variant `graph` with the least estimated time. Raises Unsupported if there is none,
    or if it takes `most` seconds or more. Elementwise work before a norm is recomputed in the norm's second kernel only
    if its result then need not be written to memory."""
    cheapest = _cut_readable(original, graph, target, stay, most, use, True)
    if not any(name.endswith(AGAIN) for part in cheapest.parts for name in part.outputs):
        return cheapest
    return _cut_readable(original, graph, target, stay, most, use, False)


def _cut_readable(
    original: OpGraph,
    graph: OpGraph,
    target: str,
    stay: frozenset[str],
    most: float,
    use: LibraryUse,
    around_norms: bool,
) -> Partition:
    readable, groups = with_readable_operands(graph, target, stay, use.channels_last, around_norms, use.depthwise)
    if use.tf32:
        readable = in_tf32(readable, groups, stay)
    elif use.split:
        readable = with_split_products(readable, groups, stay)
    ours = tuple(group for group in groups if not stay & set(group))
    once = constants(readable, ours, stay)
    cheapest, failed = None, None
    tried: list[list[NodeGroup]] = []
    for order in ORDERS:
        flow = Flow(readable, ours, stay, order, once)
        if flow.units in tried:
            continue
        tried.append(flow.units)
        try:
            parts = _cheapest(flow, original, target, most)
        except Unsupported as error:
            if most == math.inf:
                raise
            failed = failed or error  # what was found before is cheaper, or the first failure is told
            continue
        cheapest, most = Partition(tuple(parts), flow.same, tuple(flow.wanted), use), _sum(parts)
    if cheapest is None:
        assert failed is not None
        raise failed
    return cheapest


def _cheapest(flow: Flow, original: OpGraph, target: str, most: float) -> list[SubGraph]:
    """Cuts the list of node groups into intervals with the least total time, by dynamic programming: the best cut up to
    an end is one interval and the best cut up to its beginning. Raises Unsupported if some node fits into no part, or
    if the total is `most` seconds or more.
    """
    count = len(flow.units)
    # Every beginning is tried with every length, and each try lowers all of its nodes.
    longest = max(8, min(LONGEST, math.isqrt(2 * MOST_LOWERED // max(count, 1))))
    best = [0.0, *[math.inf] * count]
    last: list[SubGraph | None] = [None] * (count + 1)
    begins = [0] * (count + 1)
    reasons: dict[int, str] = {}
    for begin in range(count):
        if best[begin] == math.inf:
            continue
        failed = 0
        for end in range(begin + 1, min(begin + longest, count) + 1):
            try:
                part = _part(flow, begin, end, original, target, min(best[end], most) - best[begin])
            except Unsupported as error:
                reasons.setdefault(begin, _with_operator(flow, begin, str(error)))
                failed += 1
                if failed == PATIENCE:
                    break
                continue
            if part is None:
                continue
            failed = 0
            if best[begin] + part.seconds < min(best[end], most):
                best[end], last[end], begins[end] = best[begin] + part.seconds, part, begin
            if part.kind != "kernel":
                break
    if best[count] == math.inf:
        stuck = max(end for end in range(count + 1) if best[end] < math.inf)
        raise Unsupported(reasons.get(stuck, "other parts are cheaper"))
    parts: list[SubGraph] = []
    while count:
        interval = last[count]
        assert interval is not None
        parts.append(interval)
        count = begins[count]
    return parts[::-1]


def _with_operator(flow: Flow, unit: int, reason: str) -> str:
    """Returns `reason`, why the node group with index `unit` cannot be a part, with the name of its operator added if
    it is not in the text."""
    name = operator(flow.nodes[flow.units[unit].nodes[0]])
    return reason if name in reason else f"operator {name}: {reason}"


def _reads_back(graph: OpGraph) -> bool:
    back = {node.name for node in graph.nodes if node.op == COPY_BACK}
    return any(name in back for node in graph.nodes for name in references(node))


def _pools_across(graph: OpGraph) -> bool:
    """Whether a part with a pooling reads images with channels last, but writes images in another memory order."""
    pools = any(operator(node) in WINDOWS for node in graph.nodes)
    read = any(is_channels_last(value.spec) for value in graph.inputs)
    images = [
        spec for spec in map(graph.spec, graph.outputs) if len(spec.shape) in (4, 5) and set(spec.shape[2:]) != {"1"}
    ]
    return pools and read and not all(map(is_channels_last, images))


def _norms_groups(graph: OpGraph) -> bool:
    """Whether a part would compute moments of a norm and also use them: these two steps have different best memory
    orders.
    """
    taken = {node.name for node in graph.nodes if operator(node) == "ka_group_moments"}
    results = {node.name for node in graph.nodes if operator(node) == "getitem" and set(references(node)) & taken}
    return any(operator(node) == "ka_by_moments" and set(references(node)) & results for node in graph.nodes)


def _reduces_windows(graph: OpGraph) -> bool:
    """Whether a part would compute a depthwise convolution and reduce its result to fewer elements: each thread
    would then compute many outputs of the convolution, one after another."""
    shapes = {node.spec.shape for node in graph.nodes if node.op.endswith(BY_CHANNELS)}
    reducing = [node for node in graph.nodes if operator(node) in REDUCTIONS or operator(node) in WINDOWS]
    return bool(shapes) and any(node.spec.shape not in shapes for node in reducing)


def _part(flow: Flow, begin: int, end: int, original: OpGraph, target: str, most: float) -> SubGraph | None:
    """Returns the node groups [begin, end) as one part; None if it is a kernel that certainly takes `most` seconds or
    more, by a lower bound. Raises Unsupported if they cannot be one part."""
    kinds = {unit.kind for unit in flow.units[begin:end]}
    if kinds != {"kernel"} and end - begin > 1:
        raise Unsupported("a call and other nodes")
    kind = kinds.pop()
    if len({flow.is_constant(unit) for unit in flow.units[begin:end]}) > 1:
        raise Unsupported("what is computed once, and other nodes")
    once = flow.is_constant(flow.units[begin])
    graph, inputs, outputs = flow.part(begin, end)
    if once and sum(len(graph.spec(name).shape) > 1 for name in outputs) > 1:
        raise Unsupported("weights of several layers, which need not be in one kernel")
    if _reads_back(graph):
        raise Unsupported("channels go first before anything else reads them")
    if _pools_across(graph):
        raise Unsupported("channels go first behind pooling")
    if _reduces_windows(graph):
        raise Unsupported("a depthwise convolution, and a reduction of it")
    if _norms_groups(graph):
        raise Unsupported("moments of groups, and what is made of them")
    if kind == "kernel" and not once and least_seconds(graph, target) >= most:
        return None
    seconds = _kernel_seconds(named_in_order(graph), target) if kind == "kernel" else part_seconds(graph, None, target)
    if isinstance(seconds, str):
        raise Unsupported(seconds)
    call = as_call(original, graph, inputs, outputs) if kind == "residual" else None
    return SubGraph(graph, inputs, outputs, kind, seconds * (ONCE if once else 1.0), call, once)


# Networks repeat their blocks, and most parts of one order of the nodes are parts of the others.
@lru_cache(maxsize=1 << 12)
def _kernel_seconds(lines: tuple[str, ...], target: str) -> float | str:
    """Returns the estimated seconds of the kernel that computes the graph with the text `lines`, or the reason why
    neither a loop nest nor a kernel template can compute it."""
    graph = read_graph(list(lines))
    if as_template(graph) is not None:
        return part_seconds(graph, None, target)
    try:
        return part_seconds(graph, checked_nest(graph, target), target)
    except Unsupported as error:
        return str(error)


def named_in_order(graph: OpGraph) -> tuple[str, ...]:
    """Returns the text of the graph with values named x0, x1, … and n0, n1, … in order, and without the kinds of
    inputs: parts that can share a kernel have the same text.
    """
    # Names that are not canonical stay, because kernels refuse them.
    names = {
        value.name: f"x{number}" if CANONICAL.fullmatch(value.name) else value.name
        for number, value in enumerate(graph.inputs)
    }
    names |= {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    inputs = tuple(replace(value, name=names[value.name], kind="input", path="") for value in graph.inputs)
    nodes = tuple(renamed(node, names) for node in graph.nodes)
    outputs = tuple(names[name] for name in graph.outputs)
    return tuple(write_graph(OpGraph(dims=graph.dims, inputs=inputs, nodes=nodes, outputs=outputs)))
