"""Plans with several launches, as models write them: calls that stay PyTorch's, and the time of each launch."""

from __future__ import annotations

import pytest

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.records import Outcome
from tests.agent.models import EVALUATE, FINISH, calls, model, observations, write
from tests.judge import kernels
from tests.residual.modules import LINEAR

#: up and down stay PyTorch's; what is between them is ours.
BETWEEN = """// call: {up}(x0, p0, p1, {up}=h)
// scratch: h f32[B, 5, 96]; g f32[B, 5, 96]
// launch: between(h=h, w=p2, b=p3, out=g, rows=B*5)
// call: {down}(p4, p5, {norm}=g, {down}=out0)
#include "plan.h"
#include <math.h>
extern "C" void between(const between_args* a) {{
  for (int64_t r = 0; r < a->rows; r++) {{
    const float* x = a->h + 96 * r;
    double v[96], mean, square = 0;
    for (volatile int again = 0; again < 50; again++) {{
      mean = 0;
      for (int i = 0; i < 96; i++) mean += v[i] = 0.25 * x[i] * (1 + erf(x[i] * 0.70710678118654752));
    }}
    mean /= 96;
    for (int i = 0; i < 96; i++) square += (v[i] - mean) * (v[i] - mean);
    const double scale = 1 / sqrt(square / 96 + 1e-5);
    for (int i = 0; i < 96; i++) a->out[96 * r + i] = (float)((v[i] - mean) * scale) * a->w[i] + a->b[i];
  }}
}}
"""


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    worker = kernels.new_worker(cache / "worker.log")
    with kernels.environment(worker, cache, kernels.task(LINEAR, "Linear")) as environment:
        yield environment
    worker.close()


def named(graph):
    up, down = (node.name for node in graph.nodes if node.op.startswith("linear"))
    (norm,) = (node.name for node in graph.nodes if node.op.startswith("layer_norm"))
    return {"up": up, "down": down, "norm": norm}


@pytest.mark.slow
def test_a_model_leaves_products_to_pytorch_and_hears_where_the_time_goes(linear, tmp_path):
    names = named(linear.graph)
    lines = [calls(write(BETWEEN.format(**names)), EVALUATE), calls(FINISH)]
    policy = model(linear, tmp_path, lines)
    trajectory = run_episode(linear, policy, Budget(seconds=600), emit=lambda event: None, cancel=linear.cancel)
    (evaluation,) = trajectory.steps[0].evaluations
    assert evaluation.outcome is Outcome.correct, evaluation.message
    assert evaluation.residual == (f"linear ({names['up']})", f"linear ({names['down']})")
    first, second, third = evaluation.launches
    assert (first.name, second.name, third.name) == (f"{names['up']}_linear", "between", f"{names['down']}_linear")
    # The exact error function of 2880 elements, fifty times: most of the time, on any processor, busy or not.
    assert second.ms > 0
    said = observations(policy)[1]
    assert f"time by launch: {first.name} " in said and ", between " in said
    assert f"{evaluation.share_in_our_kernels:.0%} of the time in your kernels" in said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("n99(x0)", "'n99' is no node of the graph"),
        ("{up}(x0, p0, p1, {up}=nowhere)", "'nowhere' is no buffer"),
        ("{up}(x0, q7=h)", "'q7' is no value of the graph"),
        ("{up}(x0, {up}=h)", "{up} reads p0: name it among the values"),
        ("{down}(p4, p5, {down}=out0)", "{down} reads {norm}, which is computed"),
        ("{up}(x0, p0, p1)", "a residual call needs a result"),
    ],
)
def test_calls_that_do_not_fit_are_named(linear, line, why):
    names = named(linear.graph)
    source = f"// scratch: h f32[B, 5, 96]\n// call: {line.format(**names)}\n// launch: k(x0)\n"
    with pytest.raises(DirectiveError, match=why.format(**names)) as found:
        candidate_from({"kernel.cpp": source}, linear.graph, "cpu")
    assert found.value.line in (1, 2)
