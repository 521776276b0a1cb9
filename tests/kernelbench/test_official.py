"""Exported candidates in the hands of a checkout's own code, on the CPU: its verdict, and the four distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness import IsolatedProcess, Row, RowFile
from bench.kernelbench.__main__ import main
from bench.kernelbench.checkout import Asked, official
from bench.kernelbench.evaluated_table import summary
from bench.kernelbench.hidden_inputs import verified
from bench.kernelbench.problems import Problem, drawn_evenly
from tests.kernelbench.stand_in import PROBLEM, write_checkout, write_problem


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    write_checkout(folder)
    write_problem(folder, 1, "2_Gate_", "torch.relu(x) * torch.tanh(x)")
    write_problem(folder, 2, "1_Linear_Gate_", "torch.sigmoid(self.linear(x)) * x")
    write_problem(folder, 2, "2_Broken_", "x.no_such_method()")
    return folder


@pytest.fixture(scope="module")
def process() -> Iterator[IsolatedProcess]:
    with IsolatedProcess(200.0) as one:
        yield one


def asked(root: Path, candidate: str) -> Asked:
    problem = root / "KernelBench" / "level1" / "2_Gate_.py"
    return Asked(root, problem, candidate, root / "builds", "cpu", "host")


@pytest.mark.slow
def test_what_holds_for_the_problems_own_inputs_alone_is_found(root: Path, process: IsolatedProcess) -> None:
    """The inputs are positive, so a candidate without the ReLU is right until they are negated."""
    right = PROBLEM.format(result="torch.relu(x) * torch.tanh(x)").replace("Model", "ModelNew")
    careless = right.replace("torch.relu(x)", "x")
    for text, on_all in ((right, True), (careless, False)):
        assert process.call(official, asked(root, text))["correct"] is True
        row = process.call(verified, asked(root, text))
        assert (row["correct"], row["correct_at_looser_tolerance"]) == (on_all, on_all)
        assert list(row["needed_tolerance"]) == ["1.0", "3.0", "0.01", "-1.0"]
    assert row["needed_tolerance"]["3.0"] == 0.0 and row["needed_tolerance"]["-1.0"] > 0.1
    wrong = process.call(official, asked(root, right.replace("tanh", "sin")))
    assert not wrong["correct"] and "Output mismatch" in wrong["message"]
    for evaluate in (official, verified):
        broken = process.call(evaluate, asked(root, "import no_such_module\n"))
        assert broken["compiled"] is False and "no_such_module" in broken["message"]


@pytest.mark.slow
def test_a_distribution_without_finite_numbers_does_not_count(root: Path, process: IsolatedProcess) -> None:
    path = root / "level9.py"
    path.write_text(PROBLEM.format(result="torch.log(x + 1e-3)"))
    one = Asked(root, path, path.read_text().replace("Model", "ModelNew"), root, "cpu", "host")
    row = process.call(verified, one)
    assert row["correct"] and row["needed_tolerance"]["-1.0"] is None and row["needed_tolerance"]["3.0"] == 0.0


@pytest.mark.timed
@pytest.mark.slow
def test_candidates_are_searched_exported_and_evaluated_once(
    root: Path, own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--root", str(root), "--levels", "1,2", "--target", "cpu", "--cache", str(own_state / "home/cache")]
    common += ["--form", "package", "--budget", "3", "--count", "3", "--exports", str(own_state / "exports")]
    assert main(["official", *common, "--judges", "2", "--out", str(own_state / "official")]) == 0
    assert main(["official", *common, "--out", str(own_state / "official")]) == 0
    assert "0 cases to do, 3 done before" in capsys.readouterr().out
    rows = {row["problem"]: row for row in RowFile(own_state / "official.jsonl").read()}
    assert rows["2_Gate_"]["correct"] and rows["1_Linear_Gate_"]["correct"]
    assert rows["2_Broken_"]["outcome"] == "no_candidate" and "no_such_method" in rows["2_Broken_"]["reason"]
    written = (own_state / "exports/level1/2_Gate_/model_new.py").stat().st_mtime_ns
    assert main(["verified", *common, "--out", str(own_state / "verified")]) == 0
    assert (own_state / "exports/level1/2_Gate_/model_new.py").stat().st_mtime_ns == written
    assert {row["problem"]: row for row in RowFile(own_state / "verified.jsonl").read()}["2_Gate_"]["correct"]
    names = ["--official", str(own_state / "official.jsonl"), "--verified", str(own_state / "verified.jsonl")]
    assert main(["table", *names, "--out", str(own_state / "table.md")]) == 0
    assert (own_state / "table.md").read_text().count("| all | 3 | 2 | 2 (66.7%) |") == 2


def test_a_folder_without_kernelbenchs_code_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "KernelBench").symlink_to(root / "KernelBench")
    given = ["--root", str(tmp_path), "--levels", "1", "--target", "cpu", "--exports", "e", "--out", "o"]
    assert main(["official", *given]) == 2
    assert "give --root a checkout of KernelBench" in capsys.readouterr().err


def test_the_lot_is_even_over_the_levels() -> None:
    some = [Problem(level, Path(f"{number}_x.py")) for level in (1, 2, 3) for number in range(20 // level)]
    drawn = drawn_evenly(some, 12, 0)
    assert Counter(one.level for one in drawn[:6]) == {1: 2, 2: 2, 3: 2} and len(set(drawn)) == 12
    assert drawn == drawn_evenly(some, 12, 0) != drawn_evenly(some, 12, 1)
    assert drawn[:6] == drawn_evenly(some, 6, 0)
    assert len(drawn_evenly(some, 100, 0)) == len(some)


def evaluated(problem: str, correct: bool, found: str, speedup: float | None) -> Row:
    row: Row = {"level": 1, "problem": problem, "correct": correct, "loop": {"outcome": found}}
    row |= {"form": "inline" if speedup else None, "eager_ms": 4.0, "compile_ms": 2.0}
    return row | {"speedup_vs_eager": speedup, "speedup_vs_compile": speedup and speedup / 2}


def test_eager_counts_where_nothing_is_offered() -> None:
    slower, wrong = evaluated("2_b", True, "slower", 1.5), evaluated("3_c", False, "faster", None)
    rows = [evaluated("1_a", True, "faster", 8.0), slower, wrong]
    # 8, 1 and 1 times eager; 4, 0.5 and 0.5 times torch.compile.
    assert "| level 1 | 3 | 2 | 2 (66.7%) | 3.46 | 2.00 | 1.00 | 0 |" in summary("title", rows)
