"""`compare`: a scanned program without and with its kernels. No test says which is faster."""

from __future__ import annotations

import json
import sys
from itertools import product
from math import comb
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.apply import apply_result
from kernel_assistant.cli.edits.compare import compare_program
from kernel_assistant.errors import Cancelled, UsageError
from kernel_assistant.session.scanning.program_times import CONFIDENCE, measure_program, median_interval
from tests.session.test_program_gain import scan, scanned

PROGRAM = """
import os, sys
import torch
from model import Gate

if __name__ == "__main__":
    module, x = Gate().eval(), torch.randn(5, 64)
    with torch.no_grad():
        for _ in range(4):
            module(x)
        module(x.double())
    print("noise")
    sys.exit(3)
"""


@pytest.fixture
def program(model: Path):
    """The scan of a program that calls the class of the user's file."""
    model.with_name("main.py").write_text(PROGRAM)
    command = (sys.executable, "main.py")
    return msgspec.structs.replace(scan(scanned("Gate", 1.0)), command=command, folder=str(model.parent))


def difference(program) -> str:
    return measure_program(program, 1, lambda *_: None).difference


def test_a_program_runs_without_and_with_its_kernels(program, model, result, capfd):
    apply_result(result, model)
    assert compare_program(program, 1, as_json=True) == 0
    printed, said = capfd.readouterr()
    found = json.loads(printed)
    (gate,) = found["classes"]
    assert (gate["class"], gate["kernel"], gate["fallbacks"]) == ("Gate", 4, {"dtype": 1})
    assert (found["loop"], found["rounds"], found["difference"]) == ("Gate", 4, "")
    for name in ("without_seconds", "with_seconds", "without_wall_seconds", "with_wall_seconds"):
        assert len(found[name]) == 1 and found[name][0] > 0
    assert found["speedup"]["median"] == found["without_seconds"][0] / found["with_seconds"][0]
    assert "pair 1: " in said and "noise" not in printed + said


@pytest.mark.programs
def test_the_table_and_what_cannot_be_compared(program, model, result, capfd):
    with pytest.raises(UsageError, match="called no class with applied kernels"):
        difference(program)
    apply_result(result, model)
    compare_program(program, 2, as_json=False)
    printed = capfd.readouterr().out
    for said in ("a round of Gate", "whole program", "medians of 2 pairs, intervals of 50%: too few"):
        assert said in printed
    main, switch = model.with_name("main.py"), "os.environ['KERNEL_ASSISTANT_KERNELS']"
    # The program does another work where the kernels are switched off.
    main.write_text(PROGRAM.replace("range(4)", f"range(1 if {switch} else 4)"))
    assert difference(program) == "the program called modules 2 to 5 times"
    main.write_text(PROGRAM.replace("sys.exit(3)", f"sys.exit(len({switch}))"))
    assert difference(program).endswith("exit codes: 0, 3")
    main.write_text(PROGRAM.replace("sys.exit(3)", "raise KeyboardInterrupt"))
    with pytest.raises(Cancelled):
        difference(program)
    main.write_text(PROGRAM)
    runtime = model.parent / "model_kernels" / "_runtime.txt"
    runtime.write_text(runtime.read_text().replace('"KERNEL_ASSISTANT_KERNELS"', '"NOTHING"'))
    with pytest.raises(UsageError, match="model_kernels cannot be switched off"):
        difference(program)


@given(values=st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_an_interval_has_the_confidence_that_it_claims(values):
    found = median_interval(values)
    assert found.low <= found.median <= found.high and {found.low, found.high} <= set(values)
    assert (found.confidence >= CONFIDENCE) == (len(values) >= 6)


@pytest.mark.parametrize("n", range(1, 11))
def test_the_confidence_is_that_of_coins(n):
    """How often the true median lies between the k-th values from both ends, over all ways to lie above or below it."""
    found = median_interval(list(range(n)))
    k = int(found.low) + 1
    covered = sum(k <= sum(above) <= n - k for above in product((0, 1), repeat=n))
    assert found.confidence == pytest.approx(covered / 2**n)
    wider = sum(comb(n, i) for i in range(k + 1, n - k))
    assert wider / 2**n < CONFIDENCE
