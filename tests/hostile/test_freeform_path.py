"""Every exploit of the public table that a ModelNew file can contain, with the screen and without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kernel_assistant.environment.freeform import FreeformEnvironment, open_freeform, screen_candidate, task_of
from kernel_assistant.environment.freeform_candidate import ModelCandidate, load_candidate
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records import Evaluation, Outcome, Tier
from kernel_assistant.targets.base import DeviceFacts
from tests.common.tasks import unattended
from tests.hostile.freeform_attacks import DECLARED, FULL, HONEST, QUICK, REFERENCE

ALL = {**FULL, **QUICK}
#: One attack of each kind, for the gate. Each starts a program that imports torch.
OF_EACH_KIND = (
    *("torch.softmax", "ATen in C++", "modes disabled", "fallback", "lazy subclass"),  # PyTorch computes
    *("zeros", "another dtype", "other strides", "no output", "one row for all"),  # wrong results
    *("thread finishes later", "mutates its input", "weights kept from the first call"),  # work outside the call
    *("runner patched to do nothing", "clock patched", "forged answers"),  # a judge that lies
    *("reads the user's files", "segfaults", "never ends"),  # what the sandbox holds
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> ModelCandidate:
    path = tmp_path_factory.mktemp("freeform") / "solution.py"
    path.write_text(HONEST + REFERENCE)
    return load_candidate(path)


@pytest.fixture(scope="module")
def environment(
    honest: ModelCandidate, worker: WorkerClient, device: DeviceFacts, cache_dir: Path
) -> Iterator[FreeformEnvironment]:
    task = task_of(honest, None, "cpu", "kernelbench")
    shared = {"device": device, "worker": worker, "cache_dir": cache_dir}
    with open_freeform(task, nominal=True, **shared, **unattended()) as opened:
        yield opened


@pytest.mark.parametrize("tier", [Tier.quick, Tier.full])
def test_honest_file_is_correct(verdicts: dict[Tier, Evaluation], tier: Tier) -> None:
    assert verdicts[tier].outcome is Outcome.correct, verdicts[tier].message
    assert verdicts[tier].timing is not None and verdicts[tier].timing.speedup_vs_eager > 0


def _sampled(names: Iterable[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in OF_EACH_KIND else pytest.mark.programs) for name in names]


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_right_at_the_declared_sizes_is_reported_so(
    environment: FreeformEnvironment, honest: ModelCandidate, built: Path, name: str
) -> None:
    candidate = dataclasses.replace(honest, text=DECLARED[name])
    found = environment.measure(candidate, built, Tier.full, profile=False)
    assert (found.outcome, found.sizes) == (Outcome.correct, "declared"), found.message
    assert found.elsewhere and found.accuracy and found.accuracy.shapes_tried == 1


@pytest.mark.parametrize("name", _sampled(ALL))
def test_attack_is_not_correct(
    environment: FreeformEnvironment, honest: ModelCandidate, built: Path, verdicts: dict[Tier, Evaluation], name: str
) -> None:
    tier = Tier.full if name in FULL else Tier.quick
    text, outcomes = ALL[name]
    evaluation = environment.measure(dataclasses.replace(honest, text=text), built, tier)
    assert verdicts[tier].correct
    assert evaluation.outcome.value in outcomes, (evaluation.outcome, evaluation.message)


#: What only running shows: its Python is that of an honest file.
NOT_IN_THE_TEXT = (
    *("nothing written", "zeros", "its input", "half precision", "another dtype", "another shape", "other strides"),
    *("two outputs", "no output", "all memory", "never ends", "other parameters", "another layout", "one row for all"),
    # Native code that is a call of the extension: refused for the extension's text, which all of them share.
    *("ATen in C++", "ATen in C++ below the modes", "thread finishes later", "mutates its input", "segfaults"),
    "writes its parameter",
)


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_IN_THE_TEXT])
def test_screen_says_so_first(honest: ModelCandidate, name: str) -> None:
    text = ALL[name][0]
    python_only = text[text.index('names = ["softmax"') :]
    before = "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\nsource = ''\n"
    found = screen_candidate(dataclasses.replace(honest, text=before + python_only))
    clean = screen_candidate(dataclasses.replace(honest, text=before + HONEST[HONEST.index('names = ["softmax"') :]))
    assert found and not clean


def test_screen_reads_the_native_text(honest: ModelCandidate) -> None:
    messages = " ".join(problem.message for problem in screen_candidate(honest))
    assert "PyTorch computes in C++" in messages
    assert "around its dispatcher" in messages
    assert "threads of its own" in messages
