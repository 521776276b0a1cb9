"""Replies of a model behind an endpoint that writes one kernel, in two forms without the tool calls of OpenAI.

The kernel is for `MODULE`, and several times as fast as eager PyTorch, so that it is offered on a busy machine too. Run
as `python -m tests.agent.forms` this serves the replies of all forms, one after another: it prints its URL and the text
of the module, and ends with its input.
"""

from __future__ import annotations

import sys

from tests.agent.models import EVALUATE, FINISH, qwen, write
from tests.common.modules import CHAIN
from tests.policy.endpoint import Answer, says, served

MODULE = CHAIN.replace("torch.randn(32, 512)", "torch.randn(512, 512)")
KERNEL = """// launch: chain(x=x0, out=out0, n=B*512)
#include "plan.h"
extern "C" void chain(const chain_args* a) {
  const float* __restrict__ x = a->x;
  float* __restrict__ y = a->out;
  #pragma omp parallel for simd
  for (int64_t i = 0; i < a->n; ++i) {
    float v = x[i];
    #pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) {
      v = v * 1.25f - 0.5f;
      v = (v > 0.0f ? v : 0.0f) - 0.125f;
    }
    y[i] = v;
  }
}
"""
#: Form → replies, to be sent one after another.
FORMS: dict[str, list[Answer]] = {
    "Qwen3-Coder": [says({"content": qwen(*call)}) for call in (write(KERNEL), EVALUATE, FINISH)],
    "fenced block": [
        says({"content": "Here is the "}, {"content": f"kernel:\n```cpp\n{KERNEL}```\n"}),
        *[says({"content": "I am done."})] * 4,
    ],
}
#: Form → why the conversation ends: a model that calls no tool cannot say that it has finished.
ENDINGS = {"Qwen3-Coder": "finished", "fenced block": "no_progress"}


def main() -> None:
    with served() as endpoint:
        endpoint.answers += [answer for replies in FORMS.values() for answer in replies]
        sys.stdout.write(f"{endpoint.url}\n{MODULE}")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
