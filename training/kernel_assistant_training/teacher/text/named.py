"""Numbers of a task as text: by name where the task has one for them."""

from __future__ import annotations

from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.expr import Const
from kernel_assistant.generator.ir.sizes import Poly, Size, parse_size, size_value
from kernel_assistant.generator.print.render import literal
from kernel_assistant.records.canonical import MOST_ATTRIBUTE, Canonical
from kernel_assistant.records.graph import Node, OpGraph


class Named:
    """A task with its numbers, and their names. `prefix` stands before free dimensions in the source."""

    def __init__(self, task: Canonical, target: str) -> None:
        self.graph: OpGraph = task.concrete()
        self.target = target
        self.prefix = "a->" if target == "cpu" else "a."
        self._sizes = {number: name for name, number in task.sizes.items()}
        self._constants = {number: name for name, number in task.constants.items()}

    def shape(self, name: str) -> list[Size]:
        return [parse_size(size) for size in self.graph.spec(name).shape]

    def only_value(self, node: Node) -> str:
        """The name of the node's only value: the node's, or of its first result if no other is read. Raises
        Unsupported."""
        picks = [one for one in self.graph.nodes if one.op == "getitem" and one.args[0] == f"%{node.name}"]
        if len(picks) > 1 or any(one.args[1] != 0 for one in picks):
            raise Unsupported(f"further results of {node.op}")
        return picks[0].name if picks else node.name

    def size(self, size: Size | str, prefix: str | None = None) -> str:
        """A size as C text. With `prefix` "" it is for launch lines, where products have no spaces."""
        start = self.prefix if prefix is None else prefix
        found = parse_size(size) if isinstance(size, str) else size
        if isinstance(found, int):
            return self._sizes.get(found, str(found)) if found > 1 else str(found)
        times = "*" if start == "" else " * "
        parts = []
        for symbols, value in found.terms:
            if not all(name.isidentifier() for name in symbols):
                raise Unsupported(f"size {found!r}")
            number = [] if value == 1 and symbols else [self.size(value)]
            parts.append(times.join([start + name for name in symbols] + number))
        return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"

    def attribute(self, number: int) -> str:
        """An integer attribute of an operator. A large one may be a size, and then has its name."""
        return self.size(number) if number > MOST_ATTRIBUTE else str(number)

    def constant(self, const: Const) -> str:
        value = const.value
        if isinstance(value, Poly):
            return f"({const.ctype})({self.size(value)})"
        if isinstance(value, float) and value in self._constants:
            return self._constants[value]
        if isinstance(value, int) and not isinstance(value, bool) and value > MOST_ATTRIBUTE and value in self._sizes:
            return self._sizes[value]
        return literal(value, const.ctype)

    def product(self, sizes: list[Size], prefix: str | None = None) -> str:
        """The product of the sizes, each by its name; "1" if there are none."""
        texts = [self.size(size, prefix) for size in sizes if size != 1]
        return ("*" if prefix == "" else " * ").join(texts) or "1"

    def value(self, size: Size) -> int:
        """The size as a number, at the base sizes."""
        return size_value(size, self.graph.dims)
