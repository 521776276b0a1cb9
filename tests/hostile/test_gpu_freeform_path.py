"""Every exploit of the public table that a ModelNew file with CUDA can contain, without the screen, and two honest
files.

The tests of compiling, loading and screening need no GPU.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from kernel_assistant.environment import freeform
from kernel_assistant.environment.freeform import FreeformEnvironment, screen_candidate, task_of
from kernel_assistant.environment.freeform_candidate import ModelCandidate, load_candidate
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Outcome, Tier
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from tests.common.tasks import unattended
from tests.hostile import gpu_freeform_attacks as attacks
from tests.hostile.freeform_attacks import REFERENCE

ALL = {
    "honest": attacks.HONEST,
    **{name: text for name, (text, _) in attacks.QUICK.items()},
    **attacks.HELD,
    "by value": attacks.MEMOISED_BY_VALUE,
}
TIERS = (Tier.quick, Tier.full)
nvcc_only = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


def loaded(folder: Path, text: str) -> ModelCandidate:
    path = folder / "solution.py"
    path.write_text(text + REFERENCE)
    return load_candidate(path)


@nvcc_only
def test_kernels_compile(tmp_path: Path) -> None:
    (tmp_path / "cuda.cu").write_text(attacks.CUDA)
    flags = ("-O3", "-std=c++17", "-cubin", "-arch=sm_90", "-Werror=all-warnings")
    command = [cuda.compiler(), *flags, "cuda.cu", "-o", "cuda.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.builds
@nvcc_only
@pytest.mark.slow
def test_binding_compiles(tmp_path: Path) -> None:
    """Compiles with the headers of torch and CUDA, in the form that `load_inline` writes."""
    bound = "".join(f'm.def("{name}", torch::wrap_pybind_function({name}), "");\n' for name in attacks.NAMES)
    (tmp_path / "main.cpp").write_text(f"{attacks.CPP}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{bound}}}\n")
    toolkit = Path(cuda.compiler()).resolve().parent.parent
    folders = [*cpp_extension.include_paths(), str(toolkit / "include"), sysconfig.get_paths()["include"]]
    command = [cpu.compiler(), "-std=c++20", "-fsyntax-only", "-DTORCH_EXTENSION_NAME=hostile_cuda_rows", "main.cpp"]
    command += [part for folder in folders for part in ("-isystem", folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ALL)
def test_file_is_a_candidate_for_cuda(tmp_path: Path, name: str) -> None:
    candidate = loaded(tmp_path, ALL[name])
    assert candidate.text.startswith(attacks.EXTENSION) and not candidate.uses_triton
    assert freeform.target_of(candidate, "auto") == "cuda"
    assert task_of(candidate, None, "cuda", "kernelbench").target == "cuda"


def test_screen_reads_the_native_text(tmp_path: Path) -> None:
    messages = " ".join(problem.message for problem in screen_candidate(loaded(tmp_path, attacks.HONEST)))
    assert "PyTorch computes in C++" in messages
    assert "around its dispatcher" in messages
    assert "threads of its own" in messages
    assert "streams, callbacks and contexts of its own" in messages


def test_triton_file_passes_the_screen(tmp_path: Path) -> None:
    candidate = loaded(tmp_path, attacks.TRITON)
    assert candidate.uses_triton and freeform.target_of(candidate, "auto") == "cuda"
    assert screen_candidate(candidate) == ()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> ModelCandidate:
    return loaded(tmp_path_factory.mktemp("freeform"), attacks.HONEST)


@pytest.fixture(scope="module")
def environment(
    honest: ModelCandidate, gpu_worker: WorkerClient, gpu: DeviceFacts, cache_dir: Path
) -> Iterator[FreeformEnvironment]:
    task = task_of(honest, None, "cuda", "kernelbench")
    shared = {"device": gpu, "worker": gpu_worker, "cache_dir": cache_dir}
    with freeform.open_freeform(task, **shared, **unattended()) as opened:
        yield opened


@pytest.mark.gpu
@pytest.mark.parametrize("tier", TIERS)
def test_honest_file_is_correct(verdicts: dict[Tier, Evaluation], tier: Tier) -> None:
    assert verdicts[tier].outcome is Outcome.correct, verdicts[tier].message
    assert verdicts[tier].timing is not None and verdicts[tier].timing.speedup_vs_eager > 0


@pytest.mark.gpu
@pytest.mark.parametrize("tier", TIERS)
def test_triton_file_is_correct(environment: FreeformEnvironment, tmp_path: Path, tier: Tier) -> None:
    evaluation = environment.evaluate(loaded(tmp_path, attacks.TRITON), tier)
    assert evaluation.outcome is Outcome.correct, (evaluation.message, evaluation.diagnostics)
    assert evaluation.timing is not None


@pytest.mark.gpu
@pytest.mark.parametrize("name", attacks.QUICK)
def test_attack_is_not_correct(
    environment: FreeformEnvironment, honest: ModelCandidate, built: Path, verdicts: dict[Tier, Evaluation], name: str
) -> None:
    text, outcomes = attacks.QUICK[name]
    evaluation = environment.measure(dataclasses.replace(honest, text=text), built, Tier.quick)
    assert verdicts[Tier.quick].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


@pytest.mark.gpu
@pytest.mark.parametrize("name", attacks.HELD)
def test_what_holds_the_device_is_refused_or_timed(
    environment: FreeformEnvironment, honest: ModelCandidate, built: Path, name: str
) -> None:
    evaluation = environment.measure(dataclasses.replace(honest, text=attacks.HELD[name]), built, Tier.quick)
    if evaluation.correct:
        assert evaluation.timing is not None and evaluation.timing.candidate_ms >= 0.9 * attacks.HELD_MS
    else:
        assert evaluation.outcome is Outcome.cheating, (evaluation.outcome, evaluation.message)


@pytest.mark.gpu
def test_values_never_repeat_while_timed(environment: FreeformEnvironment, honest: ModelCandidate, built: Path) -> None:
    evaluation = environment.measure(dataclasses.replace(honest, text=attacks.MEMOISED_BY_VALUE), built, Tier.full)
    assert evaluation.outcome is Outcome.correct, evaluation.message


@pytest.mark.gpu
def test_judge_survives_and_judges_on(
    environment: FreeformEnvironment, honest: ModelCandidate, built: Path, gpu_worker: WorkerClient
) -> None:
    pid = gpu_worker.process.pid
    text, outcomes = attacks.QUICK["faults on the device"]
    faulty = environment.measure(dataclasses.replace(honest, text=text), built, Tier.quick)
    after = environment.measure(honest, built, Tier.quick)
    assert faulty.outcome.value in outcomes and after.correct, after.message
    assert gpu_worker.process.pid == pid
