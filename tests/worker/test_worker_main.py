"""The worker's state between tasks."""

from __future__ import annotations

import torch
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

from kernel_assistant.worker.main import Worker


def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_closing_a_task_forgets_what_was_compiled() -> None:
    torch.compile(twice, backend="eager")(torch.ones(3))
    assert _debug_get_cache_entry_list(twice.__code__)
    Worker().close_task({}, ())
    assert not _debug_get_cache_entry_list(twice.__code__)
