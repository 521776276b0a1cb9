"""Tests which classes of a scan are worth a job, and what their kernels gain for the whole program."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import JobOutcome
from kernel_assistant.records.scan import Scan, ScannedClass
from kernel_assistant.session.scanning.program_gain import ClassGain, program_speedup, worth_most
from tests.common import results


def scanned(name: str, share: float, **fields: object) -> ScannedClass:
    """A class with recorded inputs that takes `share` seconds, all of which kernels could save."""
    plain = ScannedClass(
        name=name,
        qualname=name,
        module="net",
        path="net.py",
        line=1,
        installed=False,
        calls=3,
        share_seconds=share,
        inclusive_seconds=share,
        products_seconds=0.0,
        floor_seconds=0.0,
        unserved_seconds={},
        saved_seconds=share,
        speedup_at_floor=2.0,
        speedup_at_double=1.5,
        folder=name,
    )
    return msgspec.structs.replace(plain, **fields)


def scan(*classes: ScannedClass, seconds: float = 10.0) -> Scan:
    return Scan(
        id="4",
        command=("python", "net.py"),
        folder="/project",
        created=0.0,
        exit_code=0,
        target="cpu",
        device="a CPU",
        clock="wall",
        python="python",
        torch="2.13",
        main="net.py",
        ended="",
        wall_seconds=seconds,
        overhead_seconds=0.0,
        modules_seconds=seconds,
        calls_seconds=seconds,
        runs=(seconds,),
        bandwidth=0.0,
        notes=(),
        applied=(),
        search_path=(),
        classes=classes,
    )


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


def test_the_program_gains_what_its_applicable_classes_save() -> None:
    gate, norm = scanned("Gate", 4.0), scanned("Norm", 4.0, unserved_seconds={"training": 2.0})
    fast = results.result(best=results.best(speedup_vs_eager=4.0))
    gains = [ClassGain(gate, "1", fast), ClassGain(norm, "2", results.result(best=results.best(speedup_vs_eager=2.0)))]
    assert [gain.saved_seconds for gain in gains] == [3.0, 1.0]
    assert program_speedup(scan(gate, norm), gains) == pytest.approx(10 / 6)


def test_what_cannot_be_applied_saves_nothing() -> None:
    gate = scanned("Gate", 4.0)
    slow = results.result(best=results.best(speedup_vs_eager=3.0), outcome=JobOutcome.no_measurable_gain)
    nothing = [ClassGain(gate, "1", slow), ClassGain(gate, "2", results.result()), ClassGain(gate, "3", failure="no")]
    assert [gain.saved_seconds for gain in nothing] == [0.0, 0.0, 0.0]
    assert program_speedup(scan(gate), nothing) == 1.0
