"""Orders the nodes of a graph so that it can be cut into intervals of neighbouring nodes, the parts, each of which one
kernel or call computes. Finds which nodes read which values, and extracts the sub-graph of an interval.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.labels import CANONICAL
from kernel_assistant.generator.ir.operators import COPY, FREE, RESHAPES, operator
from kernel_assistant.generator.ir.sizes import parse_size, size_value
from kernel_assistant.generator.lower.lower import IGNORED
from kernel_assistant.generator.plan.channels_last_readers import is_elementwise
from kernel_assistant.generator.plan.cost import elements
from kernel_assistant.generator.plan.residual import renamed
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, references

#: Orders in which nodes are cut into parts; `Flow` explains them.
Order = Literal["depth first", "libraries early", "elementwise late"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are always in the same part: a single node, a node with the `getitem`s of its results, or the nodes
    of one library call.

    `kind` says what computes them: "kernel", "library" or "residual".
    """

    nodes: tuple[str, ...]
    kind: str = "kernel"


class Flow:
    """A graph whose composite operators are expanded, ready to be cut into parts (what one kernel or call computes).

    `groups`: the node names of each library call; `stay`: nodes that PyTorch computes; `once`: nodes that depend on
    parameters alone, which come first. `units`: the node groups in order; `same`: by the name of a reshape, the value
    that is read instead of it; `wanted`: for each output of the graph, the value that is written.

    `order`: "depth first" from the outputs; in "libraries early", library groups are then moved before kernels that
    they do not depend on, so that these kernels are next to the nodes that read both; in "elementwise late", after
    that, elementwise nodes are moved to directly before the first group that reads them.
    """

    def __init__(
        self,
        graph: OpGraph,
        groups: tuple[tuple[str, ...], ...],
        stay: frozenset[str] = frozenset(),
        order: Order = "depth first",
        once: frozenset[str] = frozenset(),
    ) -> None:
        self.stay, self.once = stay, once
        self.graph = _with_copies(graph)
        self.nodes = {node.name: node for node in self.graph.nodes if operator(node) not in IGNORED}
        self.place = {name: number for number, name in enumerate(self.nodes)}
        self.given = {value.name: value for value in self.graph.inputs}
        self._in_graph = {name: number for number, name in enumerate([*self.given, *self.nodes])}
        self.specs = {name: node.spec for name, node in self.nodes.items()}
        self.specs |= {name: value.spec for name, value in self.given.items()}
        in_groups = {name for group in groups for name in group}
        self.free = {name for name, node in self.nodes.items() if self._is_free(node) and name not in in_groups}
        self.same: dict[str, str] = {}
        self.wanted = wanted = self._outputs()
        self.unit_of: dict[str, NodeGroup] = {}
        for group in groups:
            unit = NodeGroup(tuple(sorted(group, key=self.place.__getitem__)), kind="library")
            self.unit_of.update((name, unit) for name in group)
        self._find_units()
        self.units: list[NodeGroup] = []
        self._order(wanted)
        if order != "depth first":
            self._hoist()
        if order == "elementwise late":
            self._sink()
        self.units.sort(key=lambda unit: not self.is_constant(unit))
        self._find_readers(wanted)

    def _is_free(self, node: Node) -> bool:
        name = operator(node)
        if name == "getitem":
            source = self.nodes.get(str(node.args[0])[1:])
            return source is not None and self._is_free(source)
        return name in FREE and node.name not in self.stay

    def _outputs(self) -> list[str]:
        """Returns the name of the value to write for each output of the graph. For an output that is a reshape of a
        node's value, that value is written, and `same` maps the output to it, unless it is an output already.
        """
        wanted: list[str] = []
        for name in self.graph.outputs:
            root = self.reshaped(name)
            if root != name and root in self.nodes and root not in self.graph.outputs and root not in wanted:
                self.same[name] = root
                wanted.append(root)
            else:
                wanted.append(name)
        return wanted

    def _find_units(self) -> None:
        results: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            if operator(node) == "getitem" and name not in self.free:
                results.setdefault(str(node.args[0])[1:], []).append(name)
        for name in self.nodes:
            if name not in self.unit_of:
                unit = NodeGroup((name, *results.get(name, ())), "residual" if name in self.stay else "kernel")
                self.unit_of.update((item, unit) for item in unit.nodes)

    def is_constant(self, unit: NodeGroup) -> bool:
        return self.once.issuperset(unit.nodes)

    def roots(self, name: str) -> list[str]:
        """Returns the names of the values in memory behind `name`: `name` itself, or, if it is a view, which costs
        nothing, the values that it shows."""
        if name not in self.free:
            return [name]
        return [root for item in references(self.nodes[name]) for root in self.roots(item)]

    def _order(self, wanted: list[str]) -> None:
        """Orders the nodes depth first from the outputs, so that neighbours depend on each other. Raises Unsupported if
        a group depends on its own results.
        """
        begun: set[NodeGroup] = set()
        done: set[NodeGroup] = set()
        stack: list[tuple[NodeGroup, bool]] = [(self.unit_of[name], False) for name in reversed(wanted)]
        while stack:
            unit, ready = stack.pop()
            if unit in done:
                continue
            if ready:
                done.add(unit)
                self.units.append(unit)
                continue
            if unit in begun:
                raise Unsupported(f"{' and '.join(unit.nodes)} in one group that waits for itself")
            begun.add(unit)
            stack.append((unit, True))
            read = dict.fromkeys(root for name in unit.nodes for root in self._read(name))
            stack += [(self.unit_of[root], False) for root in reversed(read) if root in self.nodes]

    def _hoist(self) -> None:
        """Moves each library group directly behind the previous one, unless it depends on a kernel between them."""
        units: list[NodeGroup] = []
        for unit in self.units:
            at = len(units)
            if unit.kind == "library":
                read = {self.unit_of[root] for name in unit.nodes for root in self._read(name) if root in self.nodes}
                while at and units[at - 1] not in read:
                    at -= 1
                while at < len(units) and at and units[at - 1].kind != "library":
                    at += 1
            units.insert(at, unit)
        self.units = units

    def _sink(self) -> None:
        """Moves each elementwise node directly before the first group that reads it."""
        readers: dict[NodeGroup, set[NodeGroup]] = defaultdict(set)
        for unit in self.units:
            for root in (root for name in unit.nodes for root in self._read(name) if root in self.nodes):
                readers[self.unit_of[root]].add(unit)
        behind: list[NodeGroup] = []  # the last one first
        for unit in reversed(self.units):
            at = len(behind)
            if readers[unit] and unit.kind == "kernel" and all(is_elementwise(self.nodes[name]) for name in unit.nodes):
                while behind[at - 1] not in readers[unit]:
                    at -= 1
            behind.insert(at, unit)
        self.units = behind[::-1]

    def _read(self, name: str) -> list[str]:
        """Returns the values that a node reads: inputs of the graph and results of nodes outside its own group. A node
        that computes nothing (a reshape, a slice) is replaced by the values that it reads.
        """
        own = self.unit_of[name].nodes
        return [root for item in references(self.nodes[name]) for root in self.roots(item) if root not in own]

    def _find_readers(self, wanted: list[str]) -> None:
        """Sets `number`, the index of each node group, and `last_reader`, by the name of a value the index of the last
        group that reads it; outputs of the graph (`wanted`) count as read after the last group.
        """
        self.last_reader: dict[str, int] = {}
        self.number = {unit: number for number, unit in enumerate(self.units)}
        for number, unit in enumerate(self.units):
            self.last_reader.update((root, number) for name in unit.nodes for root in self._read(name))
        self.last_reader.update((name, len(self.units)) for name in wanted)

    def part(self, begin: int, end: int) -> tuple[OpGraph, tuple[str, ...], tuple[str, ...]]:
        """Returns (graph, inputs, outputs): the node groups [begin, end) as a graph of their own, and the names that
        its inputs and outputs have in the whole graph."""
        own = {name for unit in self.units[begin:end] for name in unit.nodes}
        taken: dict[str, Node] = {}
        outside: dict[str, str] = {}
        for name in sorted(own, key=self.place.__getitem__):
            self._take(name, own, taken, outside)
        outside = {name: outside[name] for name in sorted(outside, key=self._in_graph.__getitem__)}
        outputs = tuple(name for name in taken if name in own and self.last_reader.get(name, -1) >= end)
        nodes = tuple(renamed(node, outside) for _, node in sorted(taken.items(), key=lambda item: self.place[item[0]]))
        inputs = tuple(
            GraphInput(
                name=inside, spec=self.layout(name), kind=self._kind(name, inside), path=self._path(name, inside)
            )
            for name, inside in outside.items()
        )
        specs = {name: self.layout(name) for name in outputs if name not in self.graph.outputs}
        nodes = tuple(
            Node(name=node.name, op=node.op, args=node.args, kwargs=node.kwargs, spec=specs.get(node.name, node.spec))
            for node in nodes
        )
        graph = OpGraph(dims=self.graph.dims, inputs=inputs, nodes=nodes, outputs=outputs)
        return graph, tuple(outside), outputs

    def _take(self, name: str, own: set[str], taken: dict[str, Node], outside: dict[str, str]) -> None:
        """Adds a node to the part's nodes `taken`, with the views that it reads. `outside` maps the values that other
        parts compute to their names in this part, and is extended.
        """
        for item in references(self.nodes[name]):
            if item in taken or item in outside or item in own:
                continue
            root = self.reshaped(item)
            if item in self.free and (root == item or root in own):
                self._take(item, own, taken, outside)
            elif item in self.given and self.given[item].kind != "input":
                outside[item] = item
            else:
                if root != item:
                    self.same[item] = root
                outside[item] = self._own_name(item, outside)
        taken[name] = self.nodes[name]

    def _own_name(self, name: str, outside: dict[str, str]) -> str:
        """Returns the name that a part gives to the value `name` of another part: `name` itself if it has the canonical
        form, otherwise the first free one of x0, x1, …
        """
        if CANONICAL.fullmatch(name):
            return name
        taken = {*outside.values(), *self.given}
        return next(free for number in count() if (free := f"x{number}") not in taken)

    def _kind(self, name: str, inside: str) -> str:
        return self.given[name].kind if name == inside and name in self.given else "input"

    def _path(self, name: str, inside: str) -> str:
        return self.given[name].path if name == inside and name in self.given else ""

    def reshaped(self, name: str) -> str:
        """Returns the name of the value in memory (an input or a node's result) of which `name` is a reshape, with the
        same elements in the same order; `name` itself if there is no such value.
        """
        root = name
        while root in self.free and operator(self.nodes[root]) in RESHAPES and not self._trains(root):
            root = str(self.nodes[root].args[0])[1:]
        one, other = self.specs[root], self.specs[name]
        if root in self.free or one.dtype != other.dtype or self._count(one) != self._count(other):
            return name
        return root if self._plain(root) and self._plain(name) else name

    def _count(self, spec: TensorSpec) -> int:
        return elements(spec, self.graph.dims)

    def _trains(self, name: str) -> bool:
        return "dropout" in self.nodes[name].op and len(self.nodes[name].args) > 2 and bool(self.nodes[name].args[2])

    def _plain(self, name: str) -> bool:
        return self.layout(name).strides is None

    def layout(self, name: str) -> TensorSpec:
        """Returns the shape, dtype and strides that a value has in memory: inputs and outputs as the graph states,
        other values as in PyTorch if they are dense there, otherwise contiguous.
        """
        spec = self.specs[name]
        if spec.strides is None or name in self.given or name in self.graph.outputs:
            return spec
        if _dense(spec, self.graph.dims):
            return spec
        return TensorSpec(dtype=spec.dtype, shape=spec.shape)


def _with_copies(graph: OpGraph) -> OpGraph:
    """Returns the graph with copies of outputs that it returns twice or that are its inputs."""
    given = {value.name for value in graph.inputs}
    nodes, outputs = list(graph.nodes), []
    for number, name in enumerate(graph.outputs):
        if name in given or name in outputs:
            spec = graph.spec(name)
            nodes.append(Node(name=f"{name}_{number}_{COPY}", op=COPY, args=(f"%{name}",), spec=spec))
            name = nodes[-1].name
        outputs.append(name)
    if tuple(outputs) == graph.outputs:
        return graph
    return OpGraph(dims=graph.dims, inputs=graph.inputs, nodes=tuple(nodes), outputs=tuple(outputs))


def _dense(spec: TensorSpec, dims: dict[str, int]) -> bool:
    """Whether the strides are those of a contiguous tensor whose dimensions were permuted."""
    sizes = [size_value(parse_size(size), dims) for size in spec.shape]
    steps = [size_value(parse_size(stride), dims) for stride in spec.strides or ()]
    expected = 1
    for step, size in sorted(pair for pair in zip(steps, sizes, strict=True) if pair[1] != 1):
        if step != expected:
            return False
        expected *= size
    return expected == max(elements(spec, dims), 1)
