"""Tests the table of free wins, and the report's comparison of the kernel with them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from kernel_assistant.cli.report import conclusion, free_wins_table, report
from kernel_assistant.records import FreeWin, OptimizeResult, decode
from kernel_assistant.session.reporting.words import of_free_win
from tests.common import results
from tests.session.episodes import win
from tests.session.test_free_wins import TEXT

#: The fields of one that changes results.
REFUSED: dict[str, Any] = {"passes": False, "error_vs_fp64": 1e-3, "error_ratio": 500.0, "note": "changes results"}


def result(*wins: FreeWin, kernel: float | None = None) -> OptimizeResult:
    best = None
    if kernel is not None:
        confidence = (0.97 * kernel, 1.03 * kernel)
        best = results.best(speedup_vs_compile=kernel, speedup_vs_compile_ci=confidence)
    return results.result(target="cuda", best=best, artifacts={"job": "7"}, free_wins=wins)


def test_without_any_there_is_no_table() -> None:
    assert free_wins_table(result()) == []
    assert not any("Free, without a kernel" in line for line in report(result()))


def test_the_table_stands_apart_from_the_kernel() -> None:
    left_out = FreeWin(name="max_autotune", write="later", note="not measured: no time")
    lines = report(result(win("channels_last", 1.2), left_out, kernel=1.5))
    at = next(index for index, line in enumerate(lines) if line.startswith("Free, without a kernel"))
    assert lines[at - 1] == "" and not any("channels last" in line for line in lines[:at])
    text = "\n".join(lines[at:])
    assert "1.20×" in text and "turn_on(channels_last)" in text
    assert "max autotune: not measured: no time" in text


@pytest.mark.parametrize(
    ("wins", "kernel", "words"),
    [
        ((win("tf32", 2.0),), 1.5, ["tf32 (2.00× torch.compile) needs no kernel and is no slower than the one found"]),
        ((win("tf32", 1.2),), 1.5, ["the kernel (1.50× torch.compile) is about 1.25× as fast as tf32 (1.20×"]),
        ((win("tf32", 1.2), win("together", 1.4)), 1.5, ["as fast as together"]),
        ((win("cuda_graphs", 1.3),), None, ["best without a kernel: cuda graphs"]),
        ((win("channels_last", 1.01),), 1.5, []),
        (
            (win("tf32", 2.0, **REFUSED), win("channels_last", 1.2)),
            1.5,
            ["as fast as channels last", "tf32 (changes results, 2.00× torch.compile) needs no kernel"],
        ),
        ((win("channels_last", 9.0, **REFUSED),), 1.5, []),
    ],
)
def test_the_kernel_is_set_beside_the_best(wins: tuple[FreeWin, ...], kernel: float | None, words: list[str]) -> None:
    lines = conclusion(result(*wins, kernel=kernel))
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_each_has_a_line_while_the_job_runs() -> None:
    assert of_free_win(win("channels_last", 1.2)) == "channels last 1.20× compile"
    assert of_free_win(win("compile", 1.2)) == "compile 2.40× eager"
    assert of_free_win(win("tf32", 2.0, **REFUSED)) == "tf32 2.00× compile, changes results"
    assert of_free_win(FreeWin(name="max_autotune", write="x", note="not measured: no time")).endswith(
        "not measured: no time"
    )


@pytest.mark.timed
@pytest.mark.slow
def test_optimize_measures_them_unless_told_not_to(run, home) -> None:
    path = home / "conv.py"
    path.write_text(TEXT)
    done = run("optimize", path, "--json", "--budget", "180s", "--python", sys.executable, code=0)
    wins = {win.name: win for win in decode(done.stdout, OptimizeResult).free_wins}
    assert {"compile", "channels_last", "freezing"} <= set(wins)
    assert wins["channels_last"].passes and wins["channels_last"].measured
    shown = run("show").stdout
    assert "Free, without a kernel" in shown and "torch.channels_last" in shown

    without = run("optimize", path, "--json", "--no-free-wins", "--budget", "2s", "--python", sys.executable)
    assert json.loads(without.stdout)["free_wins"] == []
