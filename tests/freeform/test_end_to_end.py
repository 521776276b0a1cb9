"""A KernelBench-style file, from its path to figures, with a real build."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.records import Outcome, Stage, Tier
from tests.common.caches import known_cpu
from tests.freeform.judged import verify_path

SOLUTION = Path(__file__).with_name("solution.py")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with bandwidths that do not depend on other load, and without builds."""
    folder = tmp_path_factory.mktemp("cache")
    known_cpu(folder)
    return folder


@pytest.mark.builds
@pytest.mark.slow
def test_file_is_built_verified_and_kept(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    first = verify_path(SOLUTION, cache_dir=cache_dir, profile=False)
    assert first.outcome is Outcome.correct and first.stage is Stage.verify, first.message
    assert first.accuracy is not None and first.accuracy.shapes_tried > 1 and first.accuracy.inputs_tried > 5
    again = verify_path(SOLUTION, cache_dir=cache_dir, tier=Tier.quick)
    assert again.seconds["compile"] < first.seconds["compile"] / 10
    assert again.outcome is Outcome.correct and again.stage is Stage.profile, again.message
    assert again.timing is not None and again.timing.candidate_ms > 0


def test_broken_extension_is_a_compile_error(cache_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "solution.py"
    path.write_text(SOLUTION.read_text().replace("cpp_sources=cpp_source", "cpp_source=cpp_source"))
    evaluation = verify_path(path, cache_dir=cache_dir)
    assert evaluation.outcome is Outcome.compile_error
    assert any("cpp_source" in problem.message for problem in evaluation.diagnostics)


@pytest.mark.builds
@pytest.mark.slow
def test_file_of_another_reference_is_incorrect(cache_dir: Path, tmp_path: Path) -> None:
    text, other = SOLUTION.read_text(), tmp_path / "reference.py"
    reference = text[: text.index("cpp_source")] + text[text.index("def get_inputs") : text.index("if __name__")]
    other.write_text(reference.replace("F.gelu", "F.silu"))
    evaluation = verify_path(SOLUTION, str(other), cache_dir=cache_dir)
    assert evaluation.outcome is Outcome.incorrect and evaluation.stage is Stage.verify, evaluation.message
    assert evaluation.mismatch is not None and evaluation.mismatch.count > 0
    with pytest.raises(UsageError):
        verify_path(SOLUTION, str(tmp_path / "gone.py"), cache_dir=cache_dir)
