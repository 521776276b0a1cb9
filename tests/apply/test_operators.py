"""The torch operator of a plan, with few tensors and with more than PyTorch takes as arguments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kernel_assistant.worker.applied.operators import MOST_ARGUMENTS, register


def _sum(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [torch.stack(tensors).sum(0)]


@pytest.mark.parametrize("count", [3, MOST_ARGUMENTS, MOST_ARGUMENTS + 1, 400])
def test_any_number_of_tensors(count: int) -> None:
    specs = [{"dtype": "f32", "shape": ["B", "4"]} for _ in range(count)]
    name = f"sum_of_{count}"
    operator = register(name, "cpu", specs, [{"dtype": "f32", "shape": ["B", "4"]}], _sum)
    tensors = [torch.randn(5, 4) for _ in range(count)]
    want = torch.stack(tensors).sum(0)
    assert torch.equal(operator(*tensors), want)

    def program(*tensors: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = operator(*[tensor * 2 for tensor in tensors])
        return found + 1

    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), want * 2 + 1)
    overload = getattr(torch.ops.kernel_assistant, name).default
    given: Sequence[object] = tensors if count <= MOST_ARGUMENTS else (tensors,)
    torch.library.opcheck(overload, tuple(given), test_utils=("test_schema", "test_faketensor"))
    # The latest provider runs.
    register(name, "cpu", specs, [{"dtype": "f32", "shape": ["B", "4"]}], lambda *some: [some[0] * 0])
    assert not operator(*tensors).any()
