"""Tests that every kind of fault changes exactly one position of a source."""

from __future__ import annotations

from random import Random

import pytest

from kernel_assistant_training.lessons.edits import in_code, in_head, one_of, swap
from kernel_assistant_training.lessons.faults import FAULTS, ON_CUDA, faulty
from tests.episodes.written import CPU, CUDA

TABLES = [*FAULTS.items(), *ON_CUDA.items()]
EVERY = [pytest.param(name, edit, id=f"{kind}-{name}") for kind, table in TABLES for name, edit in table.items()]


@pytest.mark.parametrize(("name", "edit"), EVERY)
def test_every_fault_has_a_place(name, edit):
    changed = edit(CUDA, Random(0))
    assert changed is not None and changed != CUDA
    assert edit("", Random(0)) is None
    # The rest of the source stays as it is: few lines differ, but where one syntax is taken for another.
    differing = set(CUDA.split("\n")) ^ set(changed.split("\n"))
    assert len(differing) <= (14 if name in ("other_syntax", "operands", "outputs") else 2)


def test_faults_are_a_function_of_the_random_numbers():
    first, second = ([faulty(CPU, "cpu", Random(seed)) for seed in range(40)] for _ in range(2))
    assert first == second
    assert len({found.fault for found in first}) > 8


def test_the_cpu_gets_no_fault_of_a_launch_geometry():
    names = {name for table in ON_CUDA.values() for name in table}
    assert not names & {faulty(CUDA, "cpu", Random(seed)).fault for seed in range(200)}
    assert names <= {faulty(CUDA, "cuda", Random(seed)).fault for seed in range(400)}


def test_nothing_to_break():
    assert faulty("// a comment\n", "cpu", Random(0)) is None


def test_edits_know_code_from_the_head():
    source = "// launch: k0(x0) grid=B\nint x0 = B;"
    assert in_code("B", "C")(source, Random(0)) == "// launch: k0(x0) grid=B\nint x0 = C;"
    assert in_head("B", "C")(source, Random(0)) == "// launch: k0(x0) grid=C\nint x0 = B;"
    assert in_code("nowhere", "")(source, Random(0)) is None
    either = one_of(in_code("nowhere", ""), in_code("x0", "y"))
    assert either(source, Random(0)) == "// launch: k0(x0) grid=B\nint y = B;"
    other = swap(r"\bka_{}\(", ("max", "min", "abs"))
    assert {other("f = ka_max(x);", Random(seed)) for seed in range(20)} == {"f = ka_min(x);", "f = ka_abs(x);"}


def test_mistakes_of_the_model_itself():
    """These mistakes were seen in the model's answers to held-out tasks."""

    def changed(name):
        return {FAULTS["model"][name](CUDA, Random(seed)) for seed in range(60)}

    assert any("out0 = a.out1 +" in text for text in changed("outputs"))
    assert any("ka_max(t5a, s4)" in text for text in changed("neighbour"))
    assert any("const float t6 = (t4);" in text for text in changed("lost_operator"))
    assert any("// scratch: between0 f32[B]" in text for text in changed("scratch_size"))
    assert all("/ D0" in text or text.count("[0]") > CUDA.count("[0]") for text in changed("channel"))
