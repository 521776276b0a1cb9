"""The harness of measurements: what is there is not done again, failures are rows, a dead process is replaced."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench.harness import IsolatedProcess, Row, RowFile, markdown, measure_cases


class TwoWords(Exception):
    """It cannot be pickled."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def raises() -> None:
    raise TwoWords("some", "words")


def test_each_case_is_measured_once_and_a_failure_is_a_row(tmp_path: Path) -> None:
    out = RowFile(tmp_path / "rows.jsonl")
    out.describe({"machine": "this"})
    out.add({"case": "a", "outcome": "known"})

    def measure(case: int, context: str) -> Row:
        return {"outcome": context, "inverse": 1 / case}

    cases = [({"case": name}, number) for name, number in (("a", 1), ("b", 2), ("c", 0))]
    rows = measure_cases(cases, measure, out, [nullcontext("measured")] * 2)
    assert {row["case"]: row["outcome"] for row in rows} == {"a": "known", "b": "measured", "c": "failed"}
    assert "ZeroDivisionError" in next(row for row in rows if row["case"] == "c")["reason"]
    again = RowFile(out.path)
    assert measure_cases(cases, measure, again, []) == rows and again.about() == {"machine": "this"}


def test_a_process_that_dies_or_is_silent_is_replaced() -> None:
    with IsolatedProcess(20.0) as process:
        first = process.call(os.getpid)
        assert first == process.call(os.getpid) != os.getpid()
        with pytest.raises(RuntimeError, match="died"):
            process.call(os._exit, 3)
        again = process.call(os.getpid)
        assert again != first
        with pytest.raises(RuntimeError, match="TwoWords: some words"):
            process.call(raises)
        assert process.call(os.getpid) == again
        process.begin(os.chdir, "/")
        assert process.call(os.getcwd) == "/"
    with IsolatedProcess(0.1) as silent, pytest.raises(RuntimeError, match="no answer"):
        silent.call(time.sleep, 60)


def test_cells_do_not_break_a_table() -> None:
    assert markdown(("a", "b"), [(1, "x|y\nz")]) == ["| a | b |", "|---|---|", "| 1 | x/y z |"]
