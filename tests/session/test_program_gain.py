"""Tests which classes of a scan are worth a job, and what their kernels gain for the whole program."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.errors import UsageError
from kernel_assistant.records import JobOutcome, OptimizeResult
from kernel_assistant.records.scan import Sample, Scan, ScannedClass, ScannedConfiguration
from kernel_assistant.session.scanning.budgets import LEAST_SECONDS, divided
from kernel_assistant.session.scanning.program_gain import ClassGain, ConfigurationGain, program_speedup, worth_most
from tests.common import results


def scanned(name: str, share: float, **fields: object) -> ScannedClass:
    """A class with recorded inputs that takes `share` seconds, all of which kernels could save."""
    names = dict.fromkeys(("name", "qualname", "folder"), name)
    seconds = dict.fromkeys(("share_seconds", "inclusive_seconds", "saved_seconds"), share)
    nothing = {"products_seconds": 0.0, "floor_seconds": 0.0, "unserved_seconds": {}}
    gains = {"speedup_at_floor": 2.0, "speedup_at_double": 1.5}
    where = {"module": "net", "path": "net.py", "line": 1, "installed": False, "calls": 3}
    return ScannedClass(**{**names, **seconds, **nothing, **gains, **where, **fields})


def scan(*classes: ScannedClass, seconds: float = 10.0) -> Scan:
    program = {"id": "4", "command": ("python", "net.py"), "folder": "/project", "main": "net.py", "runs": (seconds,)}
    machine = {"target": "cpu", "device": "a CPU", "clock": "wall", "python": "python", "torch": "2.13"}
    taken = dict.fromkeys(("wall_seconds", "modules_seconds", "calls_seconds"), seconds)
    nothing = dict.fromkeys(("notes", "applied", "search_path"), ()) | {"overhead_seconds": 0.0, "bandwidth": 0.0}
    end = {"created": 0.0, "exit_code": 0, "ended": ""}
    return Scan(**program, **machine, **taken, **nothing, **end, classes=classes)


def test_classes_without_inputs_or_without_hope_are_passed_over() -> None:
    rows = [
        scanned("Nested", 5.0, problem="it is nested in a function or a class", folder=""),
        scanned("Gate", 4.0),
        scanned("Matmul", 3.0, saved_seconds=0.0),
        scanned("Norm", 2.0),
        scanned("Rare", 1.0),
    ]
    assert [row.name for row in worth_most(scan(*rows), 2)] == ["Gate", "Norm"]
    assert [row.name for row in worth_most(scan(*rows), 9)] == ["Gate", "Norm", "Rare"]
    with pytest.raises(UsageError, match="scan 4 has no class that kernels could be written for"):
        worth_most(scan(rows[0], rows[2]), 3)


def gained(row: ScannedClass, *results: OptimizeResult | None) -> ClassGain:
    """The gains of a class whose configurations have these results, in the order of their numbers."""
    parts = zip(row.configurations, results, strict=True)
    return ClassGain(row, tuple(ConfigurationGain(n, one, str(n), result) for n, (one, result) in enumerate(parts, 1)))


def configurations(*seconds_and_calls: tuple[float, int]) -> tuple[ScannedConfiguration, ...]:
    return tuple(
        ScannedConfiguration(seconds=seconds, folder=f"c{index}", training=False, samples=(), calls=calls)
        for index, (seconds, calls) in enumerate(seconds_and_calls)
    )


def test_the_program_gains_what_its_applicable_classes_save() -> None:
    gate, norm = scanned("Gate", 4.0), scanned("Norm", 4.0, unserved_seconds={"training": 2.0})
    fast, twice = (results.result(best=results.best(speedup_vs_eager=times)) for times in (4.0, 2.0))
    gains = [gained(gate, fast), gained(norm, twice)]
    assert [gain.saved_seconds for gain in gains] == [3.0, 1.0]
    assert program_speedup(scan(gate, norm), gains) == pytest.approx(10 / 6)


def test_start_up_and_warm_up_are_no_part_of_the_program() -> None:
    gate = scanned("Gate", 4.0)
    gain = gained(gate, results.result(best=results.best(speedup_vs_eager=4.0)))
    loop = msgspec.structs.replace(scan(gate, seconds=60.0), calls_seconds=9.0, loop_seconds=6.0)
    assert program_speedup(loop, [gain]) == pytest.approx(6 / 3)


def test_each_configuration_saves_its_part_and_serves_its_calls() -> None:
    norm = scanned(
        "Norm", 4.0, inclusive_seconds=8.0, calls=26, main_seconds=4.0, main_calls=12, more=configurations((2.0, 8))
    )
    twice, none = results.result(best=results.best(speedup_vs_eager=2.0)), results.result()
    both = gained(norm, twice, twice)
    # Half of the own time is the first configuration's, a quarter the second's; the inputs of the rest were not kept.
    assert both.saved_seconds == pytest.approx(4.0 * (0.5 + 0.25) / 2) and both.served_calls == 20
    assert gained(norm, none, twice).saved_seconds == pytest.approx(0.5)
    assert [gained(norm, *pair).served_calls for pair in ((twice, none), (none, twice), (none, None))] == [12, 8, 0]


def test_kernels_of_one_size_serve_its_calls_alone() -> None:
    sizes = tuple(Sample(number=number, text="", exact=True, calls=calls) for number, calls in enumerate((9, 2)))
    norm = scanned("Norm", 4.0, calls=13, main_calls=11, samples=sizes)
    (part,) = gained(norm, results.result(best=results.best())).parts
    assert [dataclasses.replace(part, all_sizes=both).served_calls for both in (True, False)] == [11, 9]


def test_an_older_scan_knows_no_calls_of_its_configurations() -> None:
    old = scanned("Norm", 4.0, more=configurations((1.0, 0)))
    assert [one.seconds for one in old.configurations] == [3.0, 1.0]
    assert gained(old, None, None).served_calls == 0


def test_what_cannot_be_applied_saves_nothing() -> None:
    gate = scanned("Gate", 4.0)
    slow = results.result(best=results.best(speedup_vs_eager=3.0), outcome=JobOutcome.no_measurable_gain)
    nothing = [gained(gate, slow), gained(gate, results.result()), gained(gate, None)]
    assert [gain.saved_seconds for gain in nothing] == [0.0, 0.0, 0.0]
    assert program_speedup(scan(gate), nothing) == 1.0


@given(budget=st.floats(0.5, 3600), seconds=st.lists(st.floats(0, 1e3), min_size=1, max_size=9))
def test_a_budget_is_divided_by_time_and_kept(budget: float, seconds: list[float]) -> None:
    parts = divided(budget, seconds)
    assert sum(parts) == pytest.approx(budget)
    assert min(parts) >= min(LEAST_SECONDS, budget / len(seconds)) * (1 - 1e-9)
    order = sorted(range(len(seconds)), key=lambda index: seconds[index])
    assert [parts[index] for index in order] == pytest.approx(sorted(parts))
