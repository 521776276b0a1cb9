"""Operators that the user's own code registers with torch.library, through worker, sandbox and runner."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Evaluation, KernelTask, Outcome, Tier
from kernel_assistant.worker.user_module.registering import registering
from tests.judge import kernels

INPUTS = """

def get_inputs():
    return [torch.randn(6, 9)]
"""
#: Beside the user's file, which imports it.
HELPER = """
import tempfile

import torch

tempfile.gettempdir()  # libraries ask for one when they are imported

@torch.library.custom_op("helpers_of_ours::halved", mutates_args=())
def halved(x: torch.Tensor, times: int = 1) -> torch.Tensor:
    return x * 0.5**times

@halved.register_fake
def _(x, times=1):
    return torch.empty_like(x)
"""
TWO_FILES = """
import torch
from torch import nn
from helpers_of_ours import halved

library = torch.library.Library("a_library_of_ours", "DEF")
library.define("split_off.some(Tensor x, int[] how, *, str mode='sum') -> (Tensor, Tensor)")

def split_off(x, how, *, mode="sum"):
    return x[:, : how[0]].clone(), getattr(x[:, how[0] :], mode)(-1) * how[1]

library.impl("split_off.some", split_off, "CompositeExplicitAutograd")

@torch.library.register_fake("a_library_of_ours::split_off.some")
def _(x, how, *, mode="sum"):
    return x.new_empty(x.shape[0], how[0]), x.new_empty(x.shape[:1])

class Both(nn.Module):
    def forward(self, x):
        kept, rest = torch.ops.a_library_of_ours.split_off(x.tanh(), [5, 3], mode="mean")
        return torch.softmax(halved(kept, 2), -1) + rest[:, None]
"""
#: Registers its operator when it is built, which another process does not do.
LATE = """
import torch
from torch import nn

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        twice = torch.library.custom_op("late_library::twice", mutates_args=(), schema="(Tensor x) -> Tensor")
        self.own = twice(lambda x: x * 2)
        self.own.register_fake(torch.empty_like)

    def forward(self, x):
        return self.own(x.tanh()).exp()
"""
CHANGES = """
import torch
from torch import nn

@torch.library.custom_op("changing_library::double", mutates_args=("x",))
def double(x: torch.Tensor) -> None:
    x.mul_(2)

class Changes(nn.Module):
    def forward(self, x):
        y = x.tanh()
        double(y)
        return y.exp()
"""


def _verified(worker: WorkerClient, folder: Path, text: str, name: str) -> Evaluation:
    path = folder / "of_ours.py"
    text += INPUTS
    path.write_text(text)
    task: KernelTask = msgspec.structs.replace(kernels.task(text, name), path=str(path), search_path=(str(folder),))
    with kernels.environment(worker, folder / "cache", task) as environment:
        candidate = emit(environment.graph, initial(environment.graph, "cpu", environment.device)[0])
        (evaluation,) = environment.evaluate([candidate], Tier.verify)
    return evaluation


def test_called_by_their_names_in_the_sandbox(worker: WorkerClient, tmp_path: Path) -> None:
    (tmp_path / "helpers_of_ours.py").write_text(HELPER)
    found = _verified(worker, tmp_path, TWO_FILES, "Both")
    assert found.outcome is Outcome.correct, found.message
    # The same worker imports the file again, which defines its library again.
    found = _verified(worker, tmp_path, TWO_FILES.replace("how[1]", "how[1] * 2"), "Both")
    assert found.outcome is Outcome.correct, found.message


def test_what_another_process_lacks_is_named(worker: WorkerClient, tmp_path: Path) -> None:
    found = _verified(worker, tmp_path, LATE, "Late")
    assert "late_library::twice: no such operator is registered" in found.message
    with pytest.raises(KernelAssistantError, match="changing_library::double changes an operand"):
        _verified(worker, tmp_path, CHANGES, "Changes")


def test_what_torch_compile_wrote_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of its own in inductor's cache, loaded as a part of torch."""
    user, helper, written = (
        ModuleType(name) for name in ("of_ours", "helpers_of_ours", "torch._inductor.runtime.compile_tasks.c1")
    )
    for module in (user, helper, written):
        path = tmp_path / f"{module.__name__.rpartition('.')[2]}.py"
        path.write_text(module.__name__)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sent = registering(["of_ours::operator"], user, "text")["sources"]
    assert sent["of_ours"] == (user.__file__, "text")
    assert sent["helpers_of_ours"] == (helper.__file__, "helpers_of_ours")
    assert not [name for name in sent if name.startswith("torch")]
