"""Modules that call their own parts through functions in attributes, as minGPT's block does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernel_assistant.worker.user_module.copying import deep_copy
from tests.worker.opened import module_text, open_text

TEXT = module_text(
    "return x + self.mlpf(x, scale=0.5)",
    "torch.randn(4, 6)",
    """self.mlp = mlp = nn.ModuleDict({"up": nn.Linear(6, 8), "down": nn.Linear(8, 6)})
self.mlpf = lambda x, *, scale=2.0: mlp.down(torch.relu(mlp.up(x))) * scale""",
)


class Foreign(nn.Module):
    """Its functions refer to a part of it, to another module, to what was never assigned, and to nothing."""

    def __init__(self, other: nn.Module, assigned: bool = False) -> None:
        super().__init__()
        self.own = own = nn.Linear(3, 3)
        self.call: Any = lambda x: own(x) + 0
        self.by_default: Any = lambda x, part=own: part(x) + 0
        self.by_keyword: Any = lambda x, *, part=own: part(x) + 0
        self.elsewhere: Any = lambda x: other(x) + 0
        self.plain = torch.relu
        if assigned:
            later = other
        self.late: Any = lambda: later


def _calls(model: Foreign) -> tuple[Any, ...]:
    return model.call, model.by_default, model.by_keyword


def test_functions_of_a_copy_call_its_own_parts() -> None:
    other = nn.Linear(3, 3)
    model = Foreign(other)
    copied = deep_copy(model)
    assert isinstance(copied, Foreign)
    with torch.no_grad():
        model.own.weight.zero_()
        other.weight.zero_()
    x = torch.ones(1, 3)
    for mine, theirs in zip(_calls(copied), _calls(model), strict=True):
        assert torch.equal(mine(x), copied.own(x)) and not torch.equal(mine(x), theirs(x))
    assert torch.equal(copied.elsewhere(x), other(x)) and copied.elsewhere is model.elsewhere
    assert copied.plain is torch.relu and copied.late is model.late


def test_weights_behind_a_function_are_the_modules_own(tmp_path: Path) -> None:
    task = open_text(tmp_path, TEXT)
    paths = {value["path"] for value in task.graph["inputs"] if value["kind"] != "input"}
    assert paths == {f"mlp.{layer}.{kind}" for layer in ("up", "down") for kind in ("weight", "bias")}
    args, kwargs = task.inputs(0, 1)
    (exact,) = task.call64(args, kwargs)
    assert task.reference_is_float64 and exact.dtype == torch.float64
    assert torch.allclose(exact.float(), task.call(args, kwargs)[0], atol=1e-5)
