"""Two scans of one command side by side: of which seconds the figures are, and when they cannot be compared."""

from __future__ import annotations

import msgspec
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import decode, encode
from kernel_assistant.records.scan import Scan
from kernel_assistant.session.scanning.scan_compare import compare
from tests.session.test_program_gain import scan, scanned


def looped(seconds: float, rounds: int, *runs: float, **changes: object) -> Scan:
    """A scan of a program that takes a minute, whose loop takes `seconds`."""
    row = scanned("Norm", 1.0, inclusive_seconds=seconds, warm_seconds=seconds / 2, first_seconds=9.0)
    loop = {"loop": "Net", "rounds": rounds, "loop_seconds": seconds, "counted_runs": runs or (seconds,)}
    return msgspec.structs.replace(scan(row, seconds=60.0), **{**loop, **changes})


def test_the_figures_are_of_the_loop_and_the_whole_stands_beside_them() -> None:
    found = compare(looped(4.0, 9, 4.0, 4.2, 3.9), looped(2.0, 9, 2.0, 2.1, 1.9, applied=("net.py:Norm",)))
    assert (found.before_seconds, found.after_seconds, found.speedup) == (4.0, 2.0, 2.0)
    assert (found.before_wall_seconds, found.after_wall_seconds) == (60.0, 60.0)
    assert found.note == "medians of 3 and 3 runs; single runs give 1.86 to 2.21×"
    (norm,) = found.classes
    assert (norm.before_seconds, norm.after_seconds, norm.applied) == (2.0, 1.0, True)


def test_loops_of_different_length_are_not_compared() -> None:
    assert "the loop had 9 and 8 rounds" in compare(looped(4.0, 9), looped(2.0, 8)).note
    assert "one run is one sample" in compare(looped(4.0, 9), looped(2.0, 9)).note


def test_an_older_scan_counts_from_its_first_call_to_its_last() -> None:
    """Its document has none of the newer fields."""
    newer = {"startup_seconds", "loop_seconds", "loop", "rounds", "counted_runs"}
    row = {"warm_seconds", "main_seconds", "main_calls"}
    document = msgspec.json.decode(encode(looped(4.0, 9, calls_seconds=5.0)))
    document = {name: value for name, value in document.items() if name not in newer}
    document["classes"] = [{k: v for k, v in one.items() if k not in row} for one in document["classes"]]
    old = decode(msgspec.json.encode(document), Scan)
    assert old.counted_seconds == 5.0
    found = compare(old, old)
    assert found.before_seconds == 5.0 and "one run is one sample" in found.note
    # The first calls were part of the inclusive seconds.
    assert found.classes[0].before_seconds == 0.0


def test_scans_of_two_devices_are_not_compared() -> None:
    with pytest.raises(UsageError, match="scan 4 ran on a CPU, scan 4 on another"):
        compare(looped(4.0, 9), looped(4.0, 9, device="another"))
