"""The columns beside Apache TVM, without TVM: problems made smaller, failures as rows, and what is said if TVM is
missing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.harness import IsolatedProcess, RowFile
from bench.kernelbench import beside_tvm, columns, tvm
from bench.kernelbench.__main__ import main
from bench.kernelbench.beside_tvm import Case, failure, measured, tuned
from bench.kernelbench.columns import stage, summary, timed, within
from bench.kernelbench.reduced import TOO_LARGE, batch_constant, divided, fitted
from tests.kernelbench.stand_in import write_problem

MATMUL = """
N = 4096 * 2  # größer
half = N // 2


def get_inputs():
    return [torch.rand(N, half)]
"""
BATCH = MATMUL.replace("N, half", "batch_size, N") + "\nbatch_size = 12  # as in the paper\n"


def test_the_batch_of_a_problem_is_divided_in_its_text() -> None:
    matmul, batch = batch_constant(MATMUL), batch_constant(BATCH)
    assert matmul is not None and (matmul.name, matmul.value) == ("N", 8192)
    assert batch is not None and (batch.name, batch.value) == ("batch_size", 12)
    assert "N = (4096 * 2) // 4  # größer" in divided(MATMUL, 4)
    assert "batch_size = (12) // 8  # as in the paper" in divided(BATCH, 8) and "N = 4096 * 2" in divided(BATCH, 8)
    assert divided(BATCH, 1) == BATCH
    with pytest.raises(ValueError, match=TOO_LARGE):
        divided(BATCH, 16)
    with pytest.raises(ValueError, match=TOO_LARGE):
        divided(BATCH.replace("batch_size", "size").replace("12", "(12,)"), 2)


def test_a_problem_is_made_smaller_until_its_call_is_short(tmp_path: Path) -> None:
    write_problem(tmp_path, 1, "1_Linear_", "self.linear(x)")
    path = tmp_path / "KernelBench" / "level1" / "1_Linear_.py"
    whole = fitted(path, tmp_path / "copies", 1e9)
    assert whole.factor == 1 and whole.path.read_text() == path.read_text() != ""
    # Its sizes are no constants, so nothing can be divided.
    with pytest.raises(ValueError, match=TOO_LARGE):
        fitted(path, tmp_path / "copies", 0.0)
    path.write_text("batch_size = 64\n" + path.read_text().replace("rand(64", "rand(batch_size"))
    with pytest.raises(ValueError, match=TOO_LARGE):
        fitted(path, tmp_path / "copies", 0.0)
    # Its least copy has a batch of 1.
    assert "batch_size = (64) // 64" in (tmp_path / "copies" / path.name).read_text()


def test_a_failure_is_a_row_with_its_stage() -> None:
    with pytest.raises(RuntimeError) as caught, stage("import by Relax"):
        raise AssertionError("\nUnsupported function types ['scan.default']\nmore")
    row = failure(RuntimeError(f"RuntimeError: {caught.value}"))
    assert row == {
        "outcome": "failed",
        "reason": "import by Relax: AssertionError: Unsupported function types ['scan.default']",
    }
    assert failure(RuntimeError(f"ValueError: {TOO_LARGE}")) == {"outcome": "too large", "reason": TOO_LARGE}
    assert failure(RuntimeError("the process died"))["reason"] == "the process died"
    assert len(failure(RuntimeError("x" * 999))["reason"]) == beside_tvm.REASON
    with pytest.raises(TimeoutError, match="more than 0 s"):
        within(0.0, lambda: time.sleep(0.2))


def test_columns_are_timed_in_turn_and_a_slow_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "TIMED_SECONDS", 0.0)
    called = list[str]()
    calls = {name: (lambda name=name: called.append(name)) for name in ("eager", "tvm", "slow")}  # type: ignore[misc]
    times = timed(calls, {"eager": 0.1, "tvm": 0.1, "slow": 9.0})
    assert called == ["eager", "tvm"] + ["eager", "tvm", "tvm", "eager"] * 2 + ["eager", "tvm"]
    assert {name: one["rounds"] for name, one in times.items()} == {"eager": 5, "tvm": 5, "slow": 1}
    assert times["slow"] == {"ms": 9000.0, "quartiles": [9000.0, 9000.0], "rounds": 1}
    assert summary([0.001, 0.002, 0.003]) == {"ms": 2.0, "quartiles": [1.5, 2.5], "rounds": 3}


@pytest.mark.skipif(not tvm.lacking(), reason="TVM is installed")
def test_without_tvm_one_line_says_how_to_get_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_problem(tmp_path, 1, "1_Linear_", "self.linear(x)")
    words = ["tvm", "--root", str(tmp_path), "--levels", "1", "--out", str(tmp_path / "rows")]
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "pip install" in printed and "PYTHONPATH" in printed
    assert not RowFile(tmp_path / "rows.jsonl").read()


@pytest.mark.skipif(not tvm.lacking(), reason="TVM is installed")
@pytest.mark.builds
@pytest.mark.slow
def test_a_problem_without_tvm_keeps_the_other_columns(tmp_path: Path) -> None:
    write_problem(tmp_path, 1, "1_Linear_", "torch.sigmoid(self.linear(x))")
    case = Case(tmp_path / "KernelBench/level1/1_Linear_.py", None, tmp_path / "tuning", "cpu", "kernelbench")
    with IsolatedProcess(300.0) as process:
        with pytest.raises(RuntimeError, match="loading TVM: ModuleNotFoundError"):
            process.call(tuned, case, 1.0)
        row = process.call(measured, case, {"reason": "loading TVM"})
    assert (row["outcome"], row["reason"]) == ("failed", "loading TVM")
    assert set(row["times"]) == {"eager", "compile"}
    assert all(check["passed"] for check in row["checks"].values())
