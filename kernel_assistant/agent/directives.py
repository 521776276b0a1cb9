"""Reads the plan that a model writes as comments in its sources. Pure.

    // launch: rms(x=x0, w=p0, out=out0, rows=B) grid=B block=BLOCK shared=4*BLOCK
    // library: cublaslt.matmul(a=x0, b=p0, out=tmp, m=B, n=256, k=512, ...) transpose_b=true
    // scratch: sums f32[B, 4]; tmp f32[B, 256]
    // call: n0(x0, p0, n0=tmp)                   a node of the graph that stays PyTorch's (residual_line.py)
    // packed: w2 f32[512, 256]
    // prepare: pack(w=p0, out=w2) grid=512 block=256
    // set: BLOCK=256 VEC=4

Launches run in the order in which they are written. A bare name in brackets means `name=name`. Inputs, outputs, dtypes
and sizes are those of the graph. Each `set` line is replaced by one line of C++ constants, so that the numbers of the
other lines do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_assistant.agent.binding import bound, unbound
from kernel_assistant.agent.residual_line import residual_launch
from kernel_assistant.records import BufferSpec, Candidate, Launch, OpGraph, Plan
from kernel_assistant.records.canonical import Canonical
from kernel_assistant.worker.runner.plan import PlanError, evaluate

ORIGIN = "model"
UNITS = {"cpu": (".cpp",), "cuda": (".cu",)}
HEADERS = {"cpu": (".h",), "cuda": (".cuh", ".h")}
#: The optional constants in front are written by `candidate_from`, whose sources may be read again.
_DIRECTIVE = re.compile(
    r"^\s*(?:constexpr int [^;]*;\s*)?//\s*(launch|prepare|library|call|scratch|packed|set)\s*:\s*(.*?)\s*$"
)
_CALL = re.compile(r"^([\w.]+)\s*\(")
_BUFFER = re.compile(r"^(\w+)\s+(\w+)\s*\[(.*)\]$")
#: After this line, compilers and this module count lines from 1 again.
_FIRST = "#line 1"
_GEOMETRY = ("grid", "block", "shared")


class DirectiveError(Exception):
    """The plan in a source cannot be read, because of line `line` (counted from 1; 0 for the whole file) of `file`."""

    def __init__(self, message: str, file: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.file, self.line = file, line


@dataclass
class _ParsedDirectives:
    """What the directive lines of all sources contain; the plan is made from it."""

    launches: list[Launch] = field(default_factory=list)
    prepare: list[Launch] = field(default_factory=list)
    scratch: list[BufferSpec] = field(default_factory=list)
    packed: list[BufferSpec] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def candidate_from(files: dict[str, str], graph: OpGraph, target: str, task: Canonical | None = None) -> Candidate:
    """Returns the candidate in `files` (name → text; files that are no sources for `target` are ignored). With `task`,
    the canonical form of the graph, sources may use its names of sizes and constants. Raises DirectiveError."""
    own = {name: text for name, text in files.items() if name.endswith((*UNITS[target], *HEADERS[target]))}
    units = sorted(name for name in own if name.endswith(UNITS[target]))
    if not units:
        raise DirectiveError(f"there is no *{UNITS[target][0]} file to compile")
    if task is not None:
        own |= {name: unbound(own[name]) for name in units}
    read = _read(own, units, graph, target, task.sizes if task else {})
    if not read.launches:
        raise DirectiveError("no launch line: // launch: SYMBOL(FIELD=BUFFER, …)", units[0], 1)
    try:
        plan = _plan(read, graph, target)
        sources = {name: _with_constants(text) if name in units else text for name, text in own.items()}
        if task is not None:
            sources |= {name: bound(sources[name], task) for name in units}
        return Candidate(plan=plan, sources=sources, origin=ORIGIN)
    except ValueError as error:
        raise DirectiveError(str(error), units[0]) from error


def _read_constants(text: str) -> dict[str, int]:
    """Returns the pairs `NAME=INT` in a line; other words are ignored."""
    return {name: int(value) for name, value in re.findall(r"\b([A-Za-z_]\w*)=(-?\d+)\b", text)}


def _read(
    files: dict[str, str], units: list[str], graph: OpGraph, target: str, sizes: dict[str, int]
) -> _ParsedDirectives:
    lines = [
        (name, number, match[1], match[2])
        for name in units
        for number, line in _numbered(files[name])
        if (match := _DIRECTIVE.match(line))
    ]
    read = _ParsedDirectives(sizes=sizes)
    # Constants and buffers first: launches may be written above them.
    for wanted in (("set",), ("scratch", "packed"), ("launch", "prepare", "library", "call")):
        for name, number, kind, text in lines:
            if kind in wanted:
                try:
                    _add(read, kind, text, graph, target)
                except (ValueError, PlanError) as error:
                    raise DirectiveError(str(error), name, number) from error
    return read


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    number = 0
    for line in text.split("\n"):
        number = 0 if line == _FIRST else number + 1
        yield number, line


def _add(read: _ParsedDirectives, kind: str, text: str, graph: OpGraph, target: str) -> None:
    if kind == "set":
        read.constants |= _read_constants(text)
    elif kind in ("scratch", "packed"):
        getattr(read, kind).extend(_buffer(one.strip(), read, graph) for one in text.split(";") if one.strip())
    elif kind == "call":
        read.launches.append(_residual(text, read, graph))
    else:
        launch = _launch(text, kind == "library", read, graph, target)
        (read.prepare if kind == "prepare" else read.launches).append(launch)


def _buffer(text: str, read: _ParsedDirectives, graph: OpGraph) -> BufferSpec:
    match = _BUFFER.match(text)
    if match is None:
        raise ValueError(f"{text!r}: want NAME DTYPE[SIZE, …], such as sums f32[B, 4]")
    shape = tuple(_expression(size, read, graph) for size in _split(match[3]))
    return BufferSpec(name=match[1], dtype=match[2], shape=shape)


def _launch(text: str, library: bool, read: _ParsedDirectives, graph: OpGraph, target: str) -> Launch:
    symbol, arguments, rest = _call(text)
    args = tuple(_argument(one, read, graph) for one in _split(arguments))
    pairs = [word.partition("=") for word in re.split(r"\s+(?=\w+=)", rest.strip()) if word]
    settings = {name: value.strip() for name, _, value in pairs}
    if library:
        label = symbol.replace(".", "_") + f"_{len(read.launches)}"
        return Launch(symbol=label, args=args, library=symbol, settings=tuple(settings.items()))
    unknown = sorted(set(settings) - set(_GEOMETRY))
    if unknown:
        raise ValueError(f"{unknown[0]}= is not known here; want grid=, block=, shared= (constants go to // set:)")
    if settings and target == "cpu":
        raise ValueError("grid, block and shared are for CUDA; on the CPU a launch is one call")
    return Launch(
        symbol=symbol,
        args=args,
        grid=_three(settings.get("grid", "1"), read, graph),
        block=_three(settings.get("block", "1"), read, graph),
        shared=_expression(settings.get("shared", "0"), read, graph),
    )


def _residual(text: str, read: _ParsedDirectives, graph: OpGraph) -> Launch:
    node, arguments, _ = _call(text)
    parts = [one.partition("=") for one in _split(arguments)]
    pairs = [(value.strip(), (buffer or value).strip()) for value, _, buffer in parts]
    odd = [buffer for _, buffer in pairs if buffer not in _buffers(read, graph)]
    if odd:
        raise ValueError(f"{odd[0]!r} is no buffer; buffers: {', '.join(_buffers(read, graph))}")
    return residual_launch(node, pairs, graph)


def _call(text: str) -> tuple[str, str, str]:
    """Splits `SYMBOL(...) REST` into symbol, text in the brackets, and rest. Raises ValueError if the text does not
    look like this."""
    match = _CALL.match(text)
    depth = 0
    for position in range(match.end() - 1 if match else len(text), len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if match and depth == 0:
            return match[1], text[match.end() : position], text[position + 1 :]
    raise ValueError(f"{text!r}: want SYMBOL(FIELD=VALUE, …) and then grid=, block=, shared=")


def _argument(text: str, read: _ParsedDirectives, graph: OpGraph) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    value = value if equals else name
    if value in _buffers(read, graph):
        return name, value
    try:
        return name, _expression(value, read, graph)
    except PlanError:
        known = ", ".join(_buffers(read, graph))
        sizes = ", ".join((*graph.dims, *read.sizes))
        raise ValueError(f"{value!r} is no buffer and no size; buffers: {known}; sizes: {sizes}") from None


def _expression(text: str, read: _ParsedDirectives, graph: OpGraph) -> str:
    """Returns `text`, an integer expression over the graph's dimensions, with constants and named sizes replaced by
    numbers. Raises PlanError if it cannot be evaluated."""
    known = {**read.sizes, **read.constants}
    filled = re.sub(r"[A-Za-z_]\w*", lambda match: str(known.get(match[0], match[0])), text.strip())
    evaluate(filled, graph.dims)
    return filled


def _three(text: str, read: _ParsedDirectives, graph: OpGraph) -> tuple[str, str, str]:
    inner = text[1:-1] if text.startswith("(") and _call(f"sizes{text}")[2] == "" else text
    sizes = [_expression(size, read, graph) for size in _split(inner)]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"{text!r}: want one to three sizes")
    x, y, z = (*sizes, "1", "1")[:3]
    return x, y, z


def _split(text: str) -> list[str]:
    """Splits a text at the commas that are not inside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _buffers(read: _ParsedDirectives, graph: OpGraph) -> list[str]:
    own = [spec.name for spec in (*read.scratch, *read.packed)]
    return [*(value.name for value in graph.inputs), *output_names(graph), *own]


def output_names(graph: OpGraph) -> list[str]:
    return [f"out{number}" for number in range(len(graph.outputs))]


def _plan(read: _ParsedDirectives, graph: OpGraph, target: str) -> Plan:
    used = {value for launch in (*read.launches, *read.prepare) for _, value in launch.args}
    outputs = zip(graph.outputs, output_names(graph), strict=True)
    return Plan(
        target=target,
        dims=tuple(graph.dims),
        inputs=tuple(_of_graph(graph, value.name, value.name) for value in graph.inputs if value.name in used),
        outputs=tuple(_of_graph(graph, name, own) for name, own in outputs),
        launches=tuple(read.launches),
        prepare=tuple(read.prepare),
        scratch=tuple(read.scratch),
        packed=tuple(read.packed),
        residual=tuple(launch.call.call.name for launch in read.launches if launch.call),
        schedule=" ".join(f"{name}={value}" for name, value in read.constants.items()),
    )


def _of_graph(graph: OpGraph, value: str, name: str) -> BufferSpec:
    spec = graph.spec(value)
    return BufferSpec(name=name, dtype=spec.dtype, shape=spec.shape, strides=spec.strides)


def _with_constants(text: str) -> str:
    return "\n".join(_constant(line) for line in text.split("\n"))


def _constant(line: str) -> str:
    match = _DIRECTIVE.match(line)
    pairs = _read_constants(match[2]) if match and match[1] == "set" else {}
    if not pairs:
        return line
    constants = ", ".join(f"{name} = {value}" for name, value in pairs.items())
    return f"constexpr int {constants};  {line[line.index('//') :].rstrip()}"
