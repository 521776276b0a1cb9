"""Writes a graph as text and reads an equal graph back. The text is that of `OpGraph.text`, with the sizes of the free
dimensions and the paths of parameters added, and with quotes around strings that could be read as something else.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from kernel_assistant.generator.ir.named import NAMED_SIZE, read_named_number
from kernel_assistant.generator.ir.sizes import parse_size
from kernel_assistant.records import Node, OpGraph, TensorSpec
from kernel_assistant.records.graph import GraphInput, Operand

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|inf|nan)$")
_PLAIN = re.compile(r"%?[A-Za-z_][\w*+\- ()/]*$")
_WORDS: dict[str, Operand] = {"none": None, "true": True, "false": False}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[|\]|[^,\[\]"]+')


def write_graph(graph: OpGraph) -> list[str]:
    """Returns the graph as lines of text: `dims` if there are any, one line for each input and node, and the outputs.
    `read_graph` is the inverse.
    """
    lines = ["dims " + " ".join(f"{name}={size}" for name, size in graph.dims.items())] if graph.dims else []
    for value in graph.inputs:
        path = f" {value.path}" if value.path else ""
        lines.append(f"{value.kind} {value.name} {value.spec.text()}{path}")
    for node in graph.nodes:
        operands = [_write(operand) for operand in node.args]
        operands += [f"{key}={_write(node.kwargs[key])}" for key in sorted(node.kwargs)]
        lines.append(f"%{node.name} = {node.op}({', '.join(operands)}) {node.spec.text()}")
    lines.append("return " + ", ".join(f"%{name}" for name in graph.outputs))
    return lines


def _write(operand: Operand) -> str:
    if isinstance(operand, list):
        return "[" + ", ".join(_write(item) for item in operand) + "]"
    if isinstance(operand, bool):
        return "true" if operand else "false"
    if operand is None:
        return "none"
    return _word(operand) if isinstance(operand, str) else repr(operand)


@lru_cache(maxsize=1 << 12)
def _word(operand: str) -> str:
    """Returns a text operand, quoted if `read_graph` would take it for something else."""
    plain = _PLAIN.match(operand) and operand not in _WORDS and not _NUMBER.match(operand)
    return operand if plain and "=" not in operand else json.dumps(operand)


def read_graph(lines: list[str]) -> OpGraph:
    """Reads the lines of `write_graph`. Raises ValueError for a line of another form."""
    dims: dict[str, int] = {}
    inputs: list[GraphInput] = []
    nodes: list[Node] = []
    outputs: tuple[str, ...] = ()
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "dims":
            dims = {name: int(size) for name, size in (item.split("=") for item in rest.split())}
        elif word == "return":
            outputs = tuple(name.removeprefix("%") for name in rest.split(", "))
        elif word.startswith("%"):
            nodes.append(_read_node(word[1:], rest))
        else:
            name, spec, *path = rest.split(" ", 2)
            inputs.append(GraphInput(name=name, spec=_read_spec(spec), kind=word, path=path[0] if path else ""))
    return OpGraph(dims=dims, inputs=tuple(inputs), nodes=tuple(nodes), outputs=outputs)


@lru_cache(maxsize=1 << 12)
def _read_spec(text: str) -> TensorSpec:
    shape, _, strides = text.partition("]")
    dtype, _, sizes = shape.partition("[")
    layout = tuple(strides[1:].split(",")) if strides else None
    return TensorSpec(dtype=dtype, shape=_sizes(sizes), strides=layout)


def _sizes(text: str) -> tuple[str, ...]:
    """Splits a list of sizes at its commas outside parentheses, because a size may contain a call such as `D0(768)`."""
    if "(" not in text:
        return tuple(text.split(",")) if text else ()
    sizes, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            sizes.append(text[start:position])
            start = position + 1
    return (*sizes, text[start:])


def _read_node(name: str, text: str) -> Node:
    head, _, rest = text.removeprefix("= ").partition("(")
    operands, _, spec = rest.rpartition(") ")
    args: list[Operand] = []
    kwargs: dict[str, Operand] = {}
    items, _ = _read_items(_TOKEN.findall(operands), 0)
    for key, operand in items:
        if key:
            kwargs[key] = operand
        else:
            args.append(operand)
    return Node(name=name, op=head, args=tuple(args), kwargs=kwargs, spec=_read_spec(spec))


def _read_items(tokens: list[str], position: int) -> tuple[list[tuple[str, Operand]], int]:
    """Reads items from tokens[position] up to the closing bracket or the end. Returns the items, each with its keyword
    ("" without one), and the position of the token after them.
    """
    items: list[tuple[str, Operand]] = []
    key = ""
    while position < len(tokens):
        token = tokens[position].strip()
        position += 1
        if token == "]":
            return items, position
        if token == "[":
            inner, position = _read_items(tokens, position)
            items.append((key, [item for _, item in inner]))  # type: ignore[misc]
            key = ""
            continue
        if token.startswith('"'):
            items.append((key, json.loads(token)))
            key = ""
            continue
        name, equals, value = token.partition("=")
        if equals and not value.strip():
            key = name
        elif token:
            items.append((name, _read_word(value)) if equals else (key, _read_word(token)))
            key = ""
    return items, position


def _read_word(word: str) -> Operand:
    if word in _WORDS:
        return _WORDS[word]
    if (number := read_named_number(word)) is not None:
        return number
    if NAMED_SIZE.search(word) and isinstance(size := parse_size(word), int):
        return size
    if not _NUMBER.match(word):
        return word
    return int(word) if word.lstrip("+-").isdigit() else float(word)
