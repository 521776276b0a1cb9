"""Tests what a plan may declare, and how the screen reacts to a plan that declares something else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.environment.screens.screen_residual import screen_residual
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.plan.partition import partition
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.generator.support import Family, classify
from kernel_assistant.records import Launch, Node, Numerics, Plan, TensorSpec, decode, encode
from kernel_assistant.records.residual import ResidualCall
from tests.generator.checks import check_read_back
from tests.generator.harness import DEVICES, Function, export


class Mixed(nn.Module):
    """A product, a sum over its rows, and attention over parts of another product."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = F.relu(self.one(x)).view(-1, 4, 3, 32).unbind(2)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return torch.softmax(self.two(mixed), -1) * x.view(-1, 4, 32)


GRAPH = export(Mixed(), torch.rand(6, 4, 32))
PLAN = emit(GRAPH, initial(GRAPH, "cpu", DEVICES["cpu"])[0]).plan
CALLS = [launch for launch in PLAN.launches if launch.call]


def _declared(change: Callable[[Launch, ResidualCall], Launch]) -> Plan:
    """The plan with a change to its first residual launch."""
    first = next(at for at, launch in enumerate(PLAN.launches) if launch.call)
    launch = PLAN.launches[first]
    assert launch.call is not None
    changed = (*PLAN.launches[:first], change(launch, launch.call), *PLAN.launches[first + 1 :])
    names = tuple(one.call.call.name for one in changed if one.call)
    return msgspec.structs.replace(PLAN, launches=changed, residual=names)


def _refusals(plan: Plan, numerics: Numerics = Numerics.kernelbench) -> str:
    return "; ".join(one.message for one in screen_residual(plan, GRAPH, numerics))


def _with_node(launch: Launch, call: ResidualCall, **changes: object) -> Launch:
    node = Node(**{**{name: getattr(call.call, name) for name in Node.__struct_fields__}, **changes})  # type: ignore[arg-type]
    nodes = tuple(node if one is call.call else one for one in call.nodes)
    return msgspec.structs.replace(launch, call=ResidualCall(nodes=nodes, specs=call.specs))


def _with_specs(launch: Launch, call: ResidualCall, name: str, spec: TensorSpec) -> Launch:
    return msgspec.structs.replace(launch, call=ResidualCall(nodes=call.nodes, specs={**call.specs, name: spec}))


def test_what_the_generator_declares_passes_and_comes_back() -> None:
    assert classify(GRAPH, "cpu") is Family.parts
    assert not screen_residual(PLAN, GRAPH, Numerics.kernelbench)
    called = [launch.call.call.op for launch in CALLS if launch.call]
    assert called == ["linear", "scaled_dot_product_attention", "linear"]
    assert decode(encode(PLAN), Plan) == PLAN
    first = initial(GRAPH, "cpu", DEVICES["cpu"])
    schedules = [*first, *neighbours(GRAPH, first[0], DEVICES["cpu"])]
    check_read_back(GRAPH, schedules)
    for schedule in schedules:
        candidate = emit(GRAPH, schedule)
        assert candidate.plan.residual == PLAN.residual
        assert not screen(candidate, GRAPH)


def test_nothing_but_calls_is_no_plan() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Flatten(), nn.Linear(8, 4))
    assert classify(export(model, torch.rand(3, 8)), "cpu").startswith("operator linear: nothing is left")


def test_a_cut_goes_through_views_and_constants() -> None:
    """Operators that lead to an operand are part of the call: no value is copied for it."""
    attend = Function(lambda x: F.scaled_dot_product_attention(x, x.flip(1), x[:, :, :8].repeat(1, 1, 2)).tanh())
    graph = export(attend, torch.rand(2, 5, 16))
    kinds = [(part.kind, {node.op for node in part.graph.nodes}) for part in partition(graph, "cpu").parts]
    assert kinds == [
        ("kernel", {"slice.Tensor", "repeat"}),
        ("residual", {"flip", "scaled_dot_product_attention"}),
        ("kernel", {"tanh"}),
    ]


def test_composite_operators_stay_whole() -> None:
    """A convolution keeps its bias, although kernels would compute the two separately."""
    graph = export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()), torch.rand(2, 3, 8, 8))
    (call, _) = partition(graph, "cpu").parts
    assert call.call is not None and call.call.nodes == graph.nodes[:1]
    assert call.inputs == ("x0", "p0", "p1")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"op": "matmul"}, "matmul (n0) is not what the module calls"),
        ({"name": "n77"}, "not what the module calls"),
        ({"args": ("%x0", "%p0")}, "not what the module calls"),
        ({"kwargs": {"bias": None}}, "not what the module calls"),
        ({"spec": TensorSpec(dtype="f32", shape=("1",))}, "not what the module calls"),
    ],
)
def test_another_call_than_the_modules_is_refused(changes: dict[str, object], said: str) -> None:
    def changed(launch: Launch, call: ResidualCall) -> Launch:
        if "name" in changes:
            specs = {"n77" if name == call.call.name else name: spec for name, spec in call.specs.items()}
            node = msgspec.structs.replace(call.call, name="n77")
            args = tuple(("n77" if name == call.call.name else name, value) for name, value in launch.args)
            return msgspec.structs.replace(launch, args=args, call=ResidualCall(nodes=(node,), specs=specs))
        return _with_node(launch, call, **changes)

    assert said in _refusals(_declared(changed))


def test_equal_numbers_of_other_types_are_other_operands() -> None:
    attend = Function(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True).tanh())
    graph = export(attend, torch.rand(2, 5, 16))
    plan = emit(graph, initial(graph, "cpu", DEVICES["cpu"])[0]).plan
    assert not screen_residual(plan, graph, Numerics.kernelbench)
    launch = plan.launches[0]
    assert launch.call is not None and launch.call.call.args[-1] is True
    changed = _with_node(launch, launch.call, args=(*launch.call.call.args[:-1], 1))
    plan = msgspec.structs.replace(plan, launches=(changed, *plan.launches[1:]))
    told = screen_residual(plan, graph, Numerics.strict)
    assert "not what the module calls" in told[0].message


def test_operands_and_results_are_the_modules() -> None:
    other = TensorSpec(dtype="f32", shape=("B", "4", "16"))
    assert "x0 is no such value" in _refusals(_declared(lambda launch, call: _with_specs(launch, call, "x0", other)))
    turned = TensorSpec(dtype="f32", shape=("B", "4", "32"), strides=("128", "1", "4"))
    refused = _refusals(_declared(lambda launch, call: _with_specs(launch, call, "x0", turned)))
    assert "has to be the module's own" in refused
    swapped = {"p0": "p2", "p2": "p0"}

    def swap(launch: Launch, call: ResidualCall) -> Launch:
        args = tuple((field, swapped.get(value, value)) for field, value in launch.args)
        return msgspec.structs.replace(launch, args=args)

    assert "p0 has to be the module's own" in _refusals(_declared(swap))


def test_everything_as_calls_is_refused() -> None:
    """Each node of the graph could be a call, but then the candidate would have no kernel."""
    only = msgspec.structs.replace(PLAN, launches=tuple(CALLS))
    assert "at least one kernel has to remain" in _refusals(only)


def test_a_module_in_one_call_is_no_record() -> None:
    specs = {value.name: value.spec for value in GRAPH.inputs} | {GRAPH.outputs[0]: GRAPH.spec(GRAPH.outputs[0])}
    with pytest.raises(ValueError, match="one operator, not linear, relu"):
        ResidualCall(nodes=GRAPH.nodes, specs=specs)


def _rewired(launch: Launch, field: str, buffer: str) -> Launch:
    args = tuple((name, buffer if name == field else value) for name, value in launch.args)
    return msgspec.structs.replace(launch, args=args)


def test_results_alias_nothing() -> None:
    launch = CALLS[0]
    assert launch.call is not None
    (result,) = launch.call.results
    for buffer, said in (("x0", "must be outputs or scratch"), ("p0", "must be outputs or scratch")):
        with pytest.raises(ValueError, match=said):
            _declared(lambda one, call, buffer=buffer: _rewired(one, result, buffer))  # type: ignore[misc]
    last, at = CALLS[-1], PLAN.launches.index(CALLS[-1])
    assert last.call is not None
    buffers = dict(last.args)
    read = next(buffers[name] for name in last.call.reads if buffers[name].startswith("given"))
    taken = dict(launch.args)[result]
    for buffer, said in ((read, "that nothing else of the call uses"), (taken, "used before it")):
        changed = _rewired(last, last.call.results[0], buffer)
        launches = (*PLAN.launches[:at], changed, *PLAN.launches[at + 1 :])
        with pytest.raises(ValueError, match=said):
            msgspec.structs.replace(PLAN, launches=launches)


def test_the_list_of_calls_is_the_truth() -> None:
    with pytest.raises(ValueError, match="residual names the nodes"):
        msgspec.structs.replace(PLAN, residual=())
    first = PLAN.launches[0]
    with pytest.raises(ValueError, match="a node is called twice"):
        msgspec.structs.replace(PLAN, launches=(first, *PLAN.launches), residual=(PLAN.residual[0], *PLAN.residual))
    with pytest.raises(ValueError, match="prepare takes kernels only"):
        msgspec.structs.replace(PLAN, prepare=(CALLS[0],))


def test_a_call_needs_what_it_reads() -> None:
    call = CALLS[0].call
    assert call is not None
    specs = {name: spec for name, spec in call.specs.items() if name != "p0"}
    with pytest.raises(ValueError, match="reads p0, which it is not given"):
        ResidualCall(nodes=call.nodes, specs=specs)
    with pytest.raises(ValueError, match="needs a result"):
        ResidualCall(nodes=call.nodes, specs={name: call.specs[name] for name in call.reads})
