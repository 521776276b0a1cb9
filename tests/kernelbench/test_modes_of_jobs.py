"""What a job's row says of the modes of torch.compile beside the kernel."""

from __future__ import annotations

import pytest

from bench.jobs import over_the_best_mode
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.records.free_win import FreeWin
from tests.common.results import best, result


def _mode(name: str, speedup: float, passes: bool = True) -> FreeWin:
    interval = (speedup * 0.99, speedup * 1.01)
    note = "" if passes else "changes results"
    fields = {"ms": 1.0, "speedup_vs_compile": speedup, "speedup_vs_compile_ci": interval, "error_vs_fp64": 0.0}
    return FreeWin(name=name, write="x", note=note, passes=passes, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wins", "over_eager", "speedup", "measurable"),
    [
        ((_mode("cuda_graphs", 1.25), _mode("max_autotune", 1.6)), 9.0, 1.25, True),
        ((_mode("cuda_graphs", 1.25), _mode("max_autotune", 1.99)), 9.0, 2 / 1.99, False),
        ((_mode("cuda_graphs", 1.25), _mode("max_autotune", 4.0, passes=False)), 9.0, 1.6, True),
        ((_mode("cuda_graphs", 0.5),), 1.5, 1.5, True),
    ],
)
def test_the_fastest_mode_or_eager_counts(
    wins: tuple[FreeWin, ...], over_eager: float, speedup: float, measurable: bool
) -> None:
    kernel = best(
        speedup_vs_compile=2.0,
        speedup_vs_compile_ci=(1.98, 2.02),
        speedup_vs_eager=over_eager,
        speedup_vs_eager_ci=(over_eager * 0.98, over_eager * 1.02),
    )
    found = over_the_best_mode(to_builtins(result(best=kernel, free_wins=wins)))
    assert found is not None
    assert found["speedup"] == pytest.approx(speedup)
    assert found["measurable"] is measurable


def test_without_a_mode_or_a_candidate_there_is_no_figure() -> None:
    win = FreeWin(name="cuda_graphs", write="x", note="not measured: no time")
    assert over_the_best_mode(to_builtins(result(best=best(), free_wins=(win,)))) is None
    assert over_the_best_mode(to_builtins(result(free_wins=(_mode("cuda_graphs", 1.1),)))) is None
