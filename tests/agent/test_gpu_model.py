"""A scripted model on a GPU: launch geometry, constants, a vetted header, and the report about resources."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.environment.session import open_environment
from kernel_assistant.records import Outcome, StopReason
from kernel_assistant.targets.detect import detect
from tests.agent.models import EVALUATE, FINISH, calls, model, observations, write
from tests.judge import kernels

pytestmark = pytest.mark.gpu

NORM = """// launch: rms(x=x0, w=p0, o=out0) grid=B block=BLOCK
// set: BLOCK=256
#include "plan.h"
extern "C" __global__ void rms(const __grid_constant__ rms_args a) {
  __shared__ float part[BLOCK / 32];
  const int64_t row = (int64_t)blockIdx.x * 256;
  const float v = a.x[row + threadIdx.x];
  float sum = v * v;
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int w = 0; w < BLOCK / 32; w++) sum += part[w];
  a.o[row + threadIdx.x] = v * rsqrtf(sum / 256 + 1e-6f) * a.w[threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    worker = kernels.new_worker(folder / "worker.log")
    task = replace(kernels.task(), target="cuda")
    how = {"worker": worker, "sandbox_mode": "auto", "cache_dir": folder, "cancel": threading.Event()}
    with open_environment(task, device=detect("cuda"), emit=lambda event: None, **how) as opened:
        yield opened
    worker.close()


@pytest.mark.parametrize("compact", [False, True])
def test_a_model_writes_cuda(environment, tmp_path, compact):
    broken, wrong = NORM.replace("part[w]", "parts[w]"), NORM.replace("1e-6f", "1e-1f")
    if compact:
        lines = [f"```cuda\n{source}```\n" for source in (broken, wrong, NORM)]
        lines.append('<tool_call>{"name": "finish", "arguments": {}}</tool_call>')
    else:
        lines = [calls(write(source, "kernel.cu"), EVALUATE) for source in (broken, wrong, NORM)] + [calls(FINISH)]
    policy = model(environment, tmp_path / "workspace", lines, compact=compact)
    trajectory = run_episode(
        environment, policy, Budget(seconds=600), emit=lambda event: None, cancel=environment.cancel
    )
    told = [text for text in observations(policy) if not text.startswith("wrote")]
    assert trajectory.stop_reason in (StopReason.finished, StopReason.at_limit, StopReason.at_roofline)
    assert [one.outcome for step in trajectory.steps for one in step.evaluations] == [
        *(Outcome.compile_error, Outcome.incorrect, Outcome.correct)
    ]
    assert trajectory.final.correct
    assert "parts" in told[0] and ("L13" in told[0] or "kernel.cu:13" in told[0])
    assert "out0[" in told[1]
    assert (told[2].startswith("ok ") and " regs " in told[2]) if compact else "registers" in told[2]
