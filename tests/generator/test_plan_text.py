"""The text of a candidate with the names of the canonical graph: it is read back as the same plan, compiles to the same
machine code, and does not depend on sizes."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.generator.emit import SOURCE, canonical_text, emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule, make
from kernel_assistant.generator.search.search import initial, neighbours
from kernel_assistant.records import BufferSpec, Candidate, Launch, OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.worker.runner.plan import evaluate
from tests.generator.composites import COMPOSITES
from tests.generator.graphs import graphs
from tests.generator.harness import DEVICES, Function, compile_candidate, export, graph_of
from tests.generator.library_modules import convolutions, products
from tests.generator.modules import CASES

#: Compiled twice each: of every kind one.
COMPILED = [
    *(("cpu", "rows: softmax even"), ("cpu", "pointwise: activations")),
    *(("cuda", "rows: layer norm"), ("cuda", "pointwise: half")),
]


def read_back(graph: OpGraph, schedule: Schedule) -> Candidate:
    task = canonical(graph)
    return candidate_from({SOURCE[schedule.target]: canonical_text(task, schedule)}, graph, schedule.target, task)


def values(plan: Any, dims: dict[str, int]) -> list[Any]:
    """What a plan does at these sizes."""

    def value(text: str) -> int | str:
        return text if text.isidentifier() else evaluate(text, dims)

    def launch(one: Launch) -> tuple[Any, ...]:
        args = [(name, value(text)) for name, text in one.args]
        geometry = [evaluate(text, dims) for text in (*one.grid, *one.block, one.shared)]
        return (one.library or one.symbol, args, geometry, one.settings, one.call and one.call.nodes)

    def buffer(one: BufferSpec) -> tuple[Any, ...]:
        return (one.name, one.dtype, [evaluate(size, dims) for size in one.shape])

    return [
        [launch(one) for one in plan.launches if not one.call],
        [one.call.nodes for one in plan.launches if one.call],
        [launch(one) for one in plan.prepare],
        [buffer(one) for one in (*plan.scratch, *plan.packed, *plan.inputs, *plan.outputs)],
    ]


def check_plan(graph: OpGraph, schedule: Schedule) -> None:
    """The text with names is read back as the plan that the generator writes."""
    assert values(read_back(graph, schedule).plan, graph.dims) == values(emit(graph, schedule).plan, graph.dims)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_the_text_is_read_back_as_the_same_plan(name: str, target: str) -> None:
    graph = graph_of(CASES[name])
    for schedule in initial(graph, target, DEVICES[target])[:2]:
        check_plan(graph, schedule)


def test_plans_with_library_launches_and_several_parts_are_read_back() -> None:
    known = {name: (model, args) for name, (model, *_, args) in {**products(), **convolutions(), **COMPOSITES}.items()}
    read = dict.fromkeys(DEVICES, 0)
    for model, args in known.values():
        graph = export(model, *args)  # once for both targets: it is most of the time
        for target, device in DEVICES.items():
            try:
                schedule = initial(graph, target, device)[0]
            except Unsupported:
                continue
            read[target] += 1
            check_plan(graph, schedule)
    assert min(read.values()) > len(known) / 3


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), target=st.sampled_from(["cpu", "cuda"]), pick=st.integers(0, 99))
def test_texts_of_random_graphs_are_read_back(graph: OpGraph, target: str, pick: int) -> None:
    schedules = initial(graph, target, DEVICES[target])
    around = [schedules[0], *neighbours(graph, schedules[0], DEVICES[target])]
    schedule = around[pick % len(around)]
    check_plan(graph, schedule)


@pytest.mark.parametrize(("target", "name"), COMPILED)
def test_the_machine_code_is_that_of_numbers(target: str, name: str, tmp_path: Path) -> None:
    graph = graph_of(CASES[name])
    schedule = initial(graph, target, DEVICES[target])[0]
    plain, named = emit(graph, schedule), read_back(graph, schedule)
    headers = {file: text for file, text in plain.sources.items() if file != SOURCE[target]}
    named = msgspec.structs.replace(named, sources={**headers, **named.sources})
    codes = []
    for number, candidate in enumerate((plain, named)):
        folder = tmp_path / str(number)
        folder.mkdir()
        codes.append(compile_candidate(candidate, folder).read_bytes())
    assert codes[0] == codes[1]


def test_a_product_of_sizes_divides_as_one_number(tmp_path: Path) -> None:
    graph = export(Function(lambda x: x.flatten(1).roll(5, -1) * 2), torch.zeros(4, 48, 20, 24))
    for target in ("cpu", "cuda"):
        schedule = initial(graph, target, DEVICES[target])[0]
        numbers = re.findall(r"[/%] \(?[\d*]+\)?", emit(graph, schedule).sources[SOURCE[target]])
        named = canonical_text(canonical(graph), schedule)
        sizes = canonical(graph).sizes
        for name, size in sizes.items():
            named = re.sub(rf"\b{name}\b", str(size), named)
        known = re.findall(r"[/%] \(?[\d*]+\)?", named)
        texts = [[one[2:].strip("()") for one in some] for some in (known, numbers)]
        assert numbers and list(map(eval, texts[0])) == list(map(eval, texts[1]))


def test_a_tile_that_is_a_product_of_sizes_divides_as_one_number() -> None:
    graph = export(Function(lambda x: torch.nn.functional.max_pool3d(x, (40, 1, 1), 1)), torch.zeros(2, 3, 48, 19, 23))
    texts = [canonical_text(canonical(graph), one) for one in initial(graph, "cpu", DEVICES["cpu"])]
    assert any("/ (D" in text for text in texts) and not any(re.search(r"/ D\d\*", text) for text in texts)


def test_grouped_heads_have_a_text() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    graph = export(Function(attention), torch.zeros(2, 32, 128, 64), *[torch.zeros(2, 8, 128, 64)] * 2)
    check_plan(graph, initial(graph, "cuda", DEVICES["cuda"])[0])


def _norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],)).cumsum(-1)[:, 3:]


def _picture(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.nn.functional.max_pool2d(x, 2).flatten(1), x.mean((2, 3))], 1).softmax(-1)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("function", "small", "large"), [(_norm, (8, 2048), (8, 3072)), (_picture, (4, 24, 32, 32), (4, 28, 32, 32))]
)
def test_sizes_that_are_decided_alike_have_one_text(
    function: Any, small: tuple[int, ...], large: tuple[int, ...], target: str
) -> None:
    some = [canonical(export(Function(function), torch.zeros(shape))) for shape in (small, large)]
    assert some[0].text() == some[1].text() and some[0].sizes != some[1].sizes
    texts = []
    for schedule in initial(some[0].concrete(), target, DEVICES[target]):
        # Some have room for the smaller size only.
        with suppress(Unsupported):
            texts.append([canonical_text(one, schedule) for one in some])
    assert texts and all(one == other for one, other in texts)


def test_numbers_of_the_schedule_stay_numbers() -> None:
    graph = export(Function(lambda x: x * 0.125 + 256.5), torch.zeros(8, 256))
    text = canonical_text(canonical(graph), make("cuda", "pointwise", block=256, vec=4))
    assert "block=256" in text and "C0" in text and "256.5" not in text


def test_lines_of_a_plan_have_no_types_and_divide_as_python_does() -> None:
    """Elements that C needs 64 bits for, and a quotient of sizes in the grid."""
    graph = export(Function(lambda x: x.view(x.shape[0], 64, -1).transpose(1, 2) + 1), torch.zeros(4, 1024, 6144))
    for schedule in initial(graph, "cuda", DEVICES["cuda"]):
        check_plan(graph, schedule)
