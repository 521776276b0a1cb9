"""A real host with real jobs, but the policy submits one hand-written kernel. Run as `python scripted_host.py`."""

from __future__ import annotations

import signal
import sys

from kernel_assistant.config import resolve
from kernel_assistant.policy.base import PolicyAction
from kernel_assistant.records import Candidate, Launch, Plan
from kernel_assistant.records.candidate import BufferSpec
from kernel_assistant.session.host import serve
from kernel_assistant.session.kinds import job, job_policies

SOURCE = """
#include "plan.h"
extern "C" void chain(const chain_args* a) {
  const float* __restrict__ x = a->x0;
  float* __restrict__ y = a->out0;
  for (int64_t i = 0; i < a->n; ++i) {
    float v = x[i];
    for (int k = 0; k < 12; ++k) {
      v = v * 1.25f - 0.5f;
      v = (v > 0.0f ? v : 0.0f) - 0.125f;
    }
    y[i] = v;
  }
}
"""


class Scripted:
    name = "scripted"

    def supports(self, graph, target):
        return None if target == "cpu" else "written for the CPU"

    def step(self, view):
        if view.steps:
            return PolicyAction("nothing more", finished=True)
        x0, out0 = (BufferSpec(name=name, dtype="f32", shape=("B", "512")) for name in ("x0", "out0"))
        launch = Launch(symbol="chain", args=(("x0", "x0"), ("out0", "out0"), ("n", "B*512")))
        plan = Plan(target="cpu", dims=("B",), inputs=(x0,), outputs=(out0,), launches=(launch,), schedule="by hand")
        return PolicyAction("the only idea", (Candidate(plan=plan, sources={"chain.cpp": SOURCE}, origin="scripted"),))


if __name__ == "__main__":
    job_policies.generator = Scripted
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(serve(resolve()[0], job.run_job, job.lane_of))
