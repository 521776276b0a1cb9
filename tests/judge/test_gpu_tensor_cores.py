"""On a GPU: convolutions of few channels, which PyTorch computes exactly and torch.compile on tensor cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Accuracy, Candidate, Numerics, Outcome, Tier
from kernel_assistant.source.build import build_task
from tests.judge import kernels
from tests.worker.opened import module_text

pytestmark = pytest.mark.gpu
CONVOLUTION = module_text(
    "return F.leaky_relu(self.conv(x) / 2)",
    "torch.rand(32, 8, 96, 96)",
    "self.conv = nn.Conv2d(8, 32, 3, groups=GROUPS)",
)
PRODUCT = module_text("return x @ y", "torch.rand(1024, 4096), torch.rand(4096, 1024)", arguments="x, y")


def first_candidate(environment: Environment, tf32: bool = False) -> Candidate:
    """The generator's first candidate for a GPU."""
    return emit(environment.graph, initial(environment.graph, "cuda", environment.device, tf32)[0])


def _judged(
    worker: WorkerClient, cache: Path, path: Path, text: str, numerics: Numerics = Numerics.kernelbench
) -> list[Accuracy]:
    """The accuracy of the generator's first candidate, which is correct, in both tiers."""
    path.write_text(text)
    task = build_task(str(path), target="cuda", numerics=numerics, text=text)
    with kernels.environment(worker, cache, task, nominal=False) as environment:
        candidate = first_candidate(environment, numerics is Numerics.paper)
        quick = environment.evaluate([candidate], Tier.quick)
        environment.baseline(compiled=True)
        evaluations = [*quick, *environment.evaluate([candidate], Tier.full)]
    assert {one.outcome for one in evaluations} == {Outcome.correct}, [one.message for one in evaluations]
    return [one.accuracy for one in evaluations if one.accuracy is not None]


@pytest.mark.parametrize(("groups", "least", "most"), [(1, 1e-5, 1e-2), (2, 0, 1e-5)])
def test_a_candidate_uses_tensor_cores_where_torch_compile_does(
    worker: WorkerClient, cache: Path, tmp_path: Path, groups: int, least: float, most: float
) -> None:
    quick, full = _judged(worker, cache, tmp_path / "model.py", CONVOLUTION.replace("GROUPS", str(groups)))
    for accuracy in (quick, full):
        assert least <= accuracy.relative_error <= most and accuracy.error_ratio <= 2


def test_numerics_paper_allow_what_pytorch_gives_with_tf32(worker: WorkerClient, cache: Path, tmp_path: Path) -> None:
    """Sums of 4,096 products of normal numbers are off by more than 1e-2, in PyTorch as in the candidate."""
    quick, full = _judged(worker, cache, tmp_path / "model.py", PRODUCT, Numerics.paper)
    assert min(quick.relative_error, full.relative_error) >= 1e-5
