"""The benchmark on files in KernelBench's form: judged by two judges, gone on with after a kill, its tables,
and what a job's row says of the modes of torch.compile beside the kernel.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from bench.harness import Row, RowFile
from bench.jobs import over_the_best_mode
from bench.kernelbench.__main__ import main
from bench.kernelbench.baselines import MODES, drawn_again, speedups_of_modes
from bench.kernelbench.judges import Judging, judge
from bench.kernelbench.memory import CONTEXTS, TIMES, Memory, needed_bytes
from bench.kernelbench.problems import Problem, chosen_problems, numbers_in, problems
from bench.kernelbench.tables import drift, page, results
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import DeviceOutOfMemory
from kernel_assistant.records.codec import to_builtins
from kernel_assistant.records.free_win import FreeWin
from kernel_assistant.targets.detect import detect
from tests.common.results import best, result
from tests.kernelbench.stand_in import write_problem


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problems")
    write_problem(folder, 1, "2_Gate_", "torch.sigmoid(x) * torch.tanh(x) + x * torch.exp(-x)")
    write_problem(folder, 2, "1_Broken_", "x.no_such_method()")
    write_problem(folder, 3, "1_Linear_Gate_", "torch.sigmoid(self.linear(x)) * x")
    return folder


@pytest.mark.timed
@pytest.mark.slow
def test_problems_are_judged_once_and_make_a_table(
    root: Path, own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--root", str(root), "--levels", "1,2", "--target", "cpu", "--cache", str(own_state / "home/cache")]
    modes, loop, table = (own_state / name for name in ("modes.jsonl", "loop.jsonl", "table.md"))
    # A killed run has left half a line.
    loop.write_text('{"level": 2, "prob')
    assert main(["loop", *common, "--judges", "2", "--budget", "3", "--out", str(loop)]) == 0
    assert main(["loop", *common, "--out", str(loop)]) == 0
    assert "0 cases to do, 2 done before" in capsys.readouterr().out
    rows = {row["problem"]: row for row in RowFile(loop).read()}
    assert rows["2_Gate_"]["speedup_vs_compile"] > 0
    assert rows["1_Broken_"]["outcome"] == "failed" and "no_such_method" in rows["1_Broken_"]["reason"]
    assert main(["baselines", *common, "--problems", "2", "--out", str(modes)]) == 0
    (gate,) = RowFile(modes).read()
    assert {mode for mode, one in gate["modes"].items() if one["ms"]} == {"compile"}
    assert main(["table", "--rows", str(loop), "--baselines", str(modes), "--out", str(table)]) == 0
    text = table.read_text()
    assert text.index("2_Gate_") < text.index("## Level 2") < text.index("1_Broken_")


@pytest.mark.timed
@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("own_state")
def test_all_modes_are_measured(root: Path, tmp_path: Path) -> None:
    modes = tmp_path / "modes.jsonl"
    common = ["--root", str(root), "--levels", "3", "--cache", str(tmp_path / "cache")]
    assert main(["baselines", *common, "--out", str(modes)]) == 0
    (linear,) = RowFile(modes).read()
    assert {mode for mode, one in linear["modes"].items() if one["ms"]} == set(MODES)


@pytest.mark.slow
def test_what_lacks_memory_beside_others_is_measured_again_alone(root: Path, own_state: Path) -> None:
    """The first measurement of each problem finds too little memory: the module in one, all candidates in another."""
    tried, running, together = Counter[int](), Counter[str](), list[int]()

    def measure(environment: Environment) -> Row:
        nodes = len(environment.graph.nodes)
        tried[nodes] += 1
        running["now"] += 1
        try:
            if tried[nodes] == 1 and len(tried) == 1:
                raise DeviceOutOfMemory("needs 9 GiB, 1 GiB are available", "smaller inputs")
            if tried[nodes] == 1:
                return {"outcome": "no_candidate", "messages": ["cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"]}
            together.append(running["now"])
            return {"outcome": "measured"}
        finally:
            running["now"] -= 1

    how = Judging(detect("cpu"), "fp32", "kernelbench", "auto", own_state / "home/cache")
    out = RowFile(own_state / "rows.jsonl")
    judge(problems(root, [1, 3]), how, measure, out, judges=2)
    assert [row["outcome"] for row in out.read()] == ["measured"] * 2
    assert sorted(tried.values()) == [2, 2] and together == [1, 1]


def test_a_problem_is_opened_once_there_is_memory_for_it(root: Path) -> None:
    (linear,) = problems(root, [3])
    held = 4 * (64 * 256 * 2 + 256 * 257)
    assert needed_bytes(linear.path) == TIMES * (held + 4 * 256 * 256)
    (broken,) = problems(root, [2])
    assert 0 < needed_bytes(broken.path) < needed_bytes(linear.path)
    memory, order = Memory(10 + 3 * CONTEXTS, workers=3), list[str]()

    def take(name: str, count: int) -> None:
        with memory.taken(count):
            order.append(name)

    with memory.taken(7):
        waiting = threading.Thread(target=take, args=("more than there is", 20))
        waiting.start()
        take("small", 3)
        assert order == ["small"]
    waiting.join()
    assert order == ["small", "more than there is"]


def test_problems_in_another_precision_have_files_of_their_own(root: Path, tmp_path: Path) -> None:
    chosen = problems(root, [1, 2], numbers_in("1-2"))
    assert [(one.level, one.name) for one in chosen] == [(1, "2_Gate_"), (2, "1_Broken_")]
    source = chosen[0].source("bf16", tmp_path)
    path, _, name = source.partition(":")
    assert name == "ModelInAnotherType" and "torch.bfloat16" in Path(path).read_text()
    of_levels = [(one.level, one.name) for one in chosen_problems(root, [1], "3:1 1:2 2:7-9")]
    assert of_levels == [(3, "1_Linear_Gate_"), (1, "2_Gate_")]
    assert chosen_problems(root, [1, 2], "1-2") == chosen
    with pytest.raises(FileNotFoundError, match="level 4"):
        problems(root, [4])


def test_a_share_is_drawn_by_lot() -> None:
    some = [Problem(1, Path(f"{number}_x.py")) for number in range(20)]
    assert len(drawn_again(some, 0.1, 0)) == 2
    assert drawn_again(some, 0.1, 0) == drawn_again(some, 0.1, 0) != drawn_again(some, 0.1, 1)
    assert len(drawn_again(some[:1], 0.1, 0)) == 1


def loop_row(problem: str, outcome: str, speedup: float = 0.0, low: float = 0.0) -> Row:
    row: Row = {"level": 1, "problem": problem, "precision": "fp32", "outcome": outcome, "seconds": 1.0}
    times = {"eager_ms": 4.0, "compile_ms": 2.0, "candidate_ms": 1.0}
    return row | times | {"speedup_vs_compile": speedup, "speedup_vs_compile_ci": [low, 3.0]} if speedup else row


def modes_row(problem: str, mode: float, high: float) -> Row:
    plain = {"ms": 2.0, "speedup_vs_eager": 2.0, "speedup_vs_eager_ci": [1.9, 2.1], "error_ratio": 1.0}
    graphs = {"ms": 2.0 / mode, "speedup_vs_compile": mode, "speedup_vs_compile_ci": [mode - 0.1, high]}
    known = {"level": 1, "problem": problem, "precision": "fp32", "outcome": "measured"}
    return known | {"modes": {"compile": plain, "reduce-overhead": graphs}}


def test_what_is_slower_than_the_best_mode_counts_as_eager() -> None:
    assert speedups_of_modes(modes_row("1_a", 1.5, 1.6)) == {
        "compile": (1.0, 1.0),
        "eager": (0.5, pytest.approx(1 / 1.9)),
        "reduce-overhead": (1.5, 1.6),
    }
    rows = [loop_row("1_a", "faster", 2.0, 1.9), loop_row("2_b", "faster", 2.0, 1.9), loop_row("3_c", "failed")]
    modes = [modes_row("1_a", 1.5, 1.6), modes_row("2_b", 1.5, 1.95), modes_row("3_c", 1.5, 1.6)]
    first, unsure, failed = results(rows, modes)
    # Faster than the best mode only where the unfavourable ends of both intervals say so.
    assert first.offered_against_best and first.over_best == pytest.approx(2.0 / 1.5)
    assert unsure.offered and not unsure.offered_against_best and unsure.over_best == pytest.approx(0.5 / 1.5)
    assert failed.over_compile == pytest.approx(0.5) and failed.ratio_to_best is None
    # 2, 2 and 0.5 times torch.compile.
    assert "| level 1 | 3 | 66.7% | 66.7% | 0 | 1.26 | 33.3% |" in page([first, unsure, failed])


def test_a_table_without_modes_says_so() -> None:
    text = page(results([loop_row("1_a", "same", 1.0, 0.9), {**loop_row("2_b", "failed"), "reason": "a | b"}]))
    assert "0.50 (without 1 that have no time)" in text and "not measured" in text and "a / b" in text


def test_what_was_measured_again_is_compared() -> None:
    before, now = [modes_row("1_a", 1.0, 1.1), modes_row("2_b", 1.0, 1.1)], [modes_row("2_b", 2.0, 2.1)]
    assert drift(before, now).splitlines() == [
        "compile: 1 measured again, 1.000 times as long as before (1.000 to 1.000)",
        "reduce-overhead: 1 measured again, 0.500 times as long as before (0.500 to 0.500)",
    ]


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
    over_compile = {"speedup_vs_compile": 2.0, "speedup_vs_compile_ci": (1.98, 2.02)}
    interval = (over_eager * 0.98, over_eager * 1.02)
    kernel = best(**over_compile, speedup_vs_eager=over_eager, speedup_vs_eager_ci=interval)
    figure = over_the_best_mode(to_builtins(result(best=kernel, free_wins=wins)))
    assert figure is not None
    assert figure["speedup"] == pytest.approx(speedup)
    assert figure["measurable"] is measurable


def test_without_a_mode_or_a_candidate_there_is_no_figure() -> None:
    win = FreeWin(name="cuda_graphs", write="x", note="not measured: no time")
    assert over_the_best_mode(to_builtins(result(best=best(), free_wins=(win,)))) is None
    assert over_the_best_mode(to_builtins(result(free_wins=(_mode("cuda_graphs", 1.1),)))) is None
