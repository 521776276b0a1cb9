"""Checks that the residual calls of a plan (operators that stay PyTorch's) are operators of the task's graph, so that
the module itself makes the same calls (docs/residual.md).

Unlike the rest of the screen, this check protects against cheating: no later stage knows which calls the reference
makes.
"""

from __future__ import annotations

from kernel_assistant.records import BufferSpec, Diagnostic, Launch, Numerics, OpGraph, Plan, encode
from kernel_assistant.records.graph import TensorSpec
from kernel_assistant.records.residual import ResidualCall


def screen_residual(plan: Plan, graph: OpGraph, numerics: Numerics) -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for each problem with the plan's residual calls (operators that stay PyTorch's); () for a
    plan without such calls."""
    calls = [(launch, launch.call) for launch in plan.launches if launch.call is not None]
    if not calls:
        return ()
    problems: list[str] = []
    if numerics is Numerics.paper:
        names = ", ".join(call.text() for _, call in calls)
        problems.append(f"paper numerics take no residual PyTorch calls: {names}")
    if not any(launch.is_kernel for launch in plan.launches):
        problems.append("at least one kernel has to remain beside residual PyTorch calls")
    buffers = {spec.name: spec for spec in plan.buffers}
    given = {value.name for value in graph.inputs}
    for launch, call in calls:
        problems += _foreign_nodes(call, graph)
        problems += _odd_values(launch, call, graph, buffers, given)
    return tuple(Diagnostic(message=problem, file="plan.json") for problem in problems)


def _foreign_nodes(call: ResidualCall, graph: OpGraph) -> list[str]:
    """Returns a message for each node of the call that is not in the graph, or has other operands there."""
    # Compared as text, because in Python the operands 1, 1.0 and True are equal.
    known = {node.name: encode(node) for node in graph.nodes}
    return [
        f"residual call {call.text()}: {node.op} ({node.name}) is not what the module calls"
        for node in call.nodes
        if known.get(node.name) != encode(node)
    ]


def _odd_values(
    launch: Launch, call: ResidualCall, graph: OpGraph, buffers: dict[str, BufferSpec], given: set[str]
) -> list[str]:
    """Returns a message for each wrong argument of the call. An argument is wrong in three cases: it is no value of the
    graph with this dtype and shape; it is an input of the graph (`given`), but is not read from that input; or it is no
    input, but its buffer is an input of the graph that cannot contain it."""
    known: dict[str, TensorSpec] = {value.name: value.spec for value in graph.inputs}
    known |= {node.name: node.spec for node in graph.nodes}
    problems = []
    for name, buffer in launch.args:
        spec = call.specs[name]
        if name not in known or (known[name].dtype, known[name].shape) != (spec.dtype, spec.shape):
            problems.append(f"residual call {call.text()}: {name} is no such value of the module")
        elif name in given and (buffer != name or spec != known[name]):
            problems.append(f"residual call {call.text()}: {name} has to be the module's own")
        elif name not in given and buffer in given and not _is_reshape(spec, buffers[buffer]):
            problems.append(f"residual call {call.text()}: {name} is not what {buffer} holds")
    return problems


def _is_reshape(spec: TensorSpec, buffer: BufferSpec) -> bool:
    """Whether a value and its buffer are both contiguous, so that one is a reshape of the other. (The check that their
    numbers of elements are equal comes later, when the plan is bound.)"""
    return spec.strides is None and buffer.strides is None
