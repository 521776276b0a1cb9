"""An honest result for which PyTorch itself rounds more than the candidate: sums that nearly cancel, in bfloat16."""

from __future__ import annotations

import pytest

from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Outcome, Tier
from tests.judge import kernels
from tests.worker.opened import module_text

#: Each logarithm is rounded to bfloat16 by PyTorch; their sum is near zero and another for all values.
ROUNDED = module_text(
    'return F.kl_div(torch.log(x), y, reduction="batchmean")',
    "*(torch.rand(64, 1024).softmax(-1).bfloat16() for _ in range(2))",
    arguments="x, y",
)
#: Zero for equal inputs, and zeros are among those that the full tier tries. What is summed is not zero.
EQUAL = module_text(
    "return F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1))",
    "torch.rand(64, 1000), torch.rand(64, 1000)",
    arguments="x, y",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "candidates", "tiers"),
    [
        pytest.param(EQUAL, 2, [Tier.full], id="an exact zero of PyTorch asks for no exact zero"),
        pytest.param(ROUNDED, 1, [Tier.full, Tier.quick, Tier.full], id="float64 decides while timed as well"),
    ],
)
def test_sums_that_nearly_cancel_are_correct(worker, cache, text, candidates, tiers):
    with kernels.environment(worker, cache, kernels.task(text, "Model")) as opened:
        some = [emit(opened.graph, one) for one in initial(opened.graph, "cpu", opened.device)[:candidates]]
        evaluations = [evaluation for tier in tiers for evaluation in opened.evaluate(some, tier)]
    assert {each.outcome for each in evaluations} == {Outcome.correct}, [each.message for each in evaluations]
