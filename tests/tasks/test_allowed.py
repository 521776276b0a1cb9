"""Tests the check of a model's text: ordinary modules pass, and every known way out is refused before the text runs."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import torch
from torch import nn

from kernel_assistant_training.synth.composing import drawn
from kernel_assistant_training.tasks.allowed import NotAllowed, attributes, check

TEXT = """import math
import torch
import torch.nn.functional as F
from torch import nn
{top}

class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.register_buffer("table", torch.rand(width) + math.pi)
        {init}

    def gate(self, x):
        return F.softplus(x).clamp(min=0.5)

    def forward(self, x):
        {body}
        parts = [self.gate(one) for one in x.chunk(2, dim=-1)]
        return torch.cat(parts, -1) * self.table + self.norm(x) @ torch.eye(64)


def get_inputs():
    return [torch.randn(16, 64)]
"""


def _text(top: str = "", init: str = "", body: str = "") -> str:
    return TEXT.format(top=top, init=init or "pass", body=body or "pass")


def test_modules_as_people_write_them_are_allowed() -> None:
    check(_text())
    for _, text in islice(drawn(Random(1), Counter()), 200):
        check(text)
    examples = Path(__file__).parents[2] / "examples"
    for name in ("gated_rms_norm", "geglu_residual", "perona_malik", "switch_router", "text_embedding"):
        check((examples / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("top", "why"),
    [
        ("import os", "imports os"),
        ("from torch import os", "imports os"),
        ("from torch.utils import cpp_extension", "imports cpp_extension"),
        ("from . import math", "imports math"),
        ("import torch.utils", "imports torch.utils"),
        ("f = open", "uses open"),
        ("eval = 1", "binds eval"),
        ("f = __builtins__", "uses __builtins__"),
        ("f = torch.sys", "uses .sys"),
        ("f = torch.hub.load", "uses .load"),
        ("f = torch.storage", "uses .storage"),
        ("f = torch.ops.aten", "uses .aten"),
        ("f = (1).__class__", "uses .__class__"),
        ("f = (x for x in ()).gi_frame", "uses .gi_frame"),
        ("torch.equal = max", "assigns to .equal"),
        ("torch.Tensor.add, b = max, 1", "assigns to .add"),
        ("exec('1')", "uses exec"),
        ("f = getattr(torch, 'os')", "uses getattr"),
        ("f = type(torch)", "uses type"),
        ("while True: pass", "uses While"),
        ("with torch.no_grad(): pass", "uses With"),
        ("try: pass\nexcept Exception: pass", "uses Try"),
        ("f = lambda self: self.table", "self"),
        ("def f(self): return self.table", "self"),
        ("self = torch", "binds self"),
        ("def f(x=torch.empty(1)): return x", "default"),
        ("@torch.compile\ndef f(): pass", "decorator"),
        ("class A(torch.Tensor): pass", "nn.Module"),
        ("class A(nn.Module, metaclass=max): pass", "nn.Module"),
        ("class A(nn.Module):\n    f = [max]", "more than methods"),
        ("class A(nn.Module):\n    def __del__(self): pass", "binds __del__"),
        ("global x", "uses Global"),
        ("f = f'{torch}'", "uses JoinedStr"),
        ("'{0.f}'.format(1)", "uses .format"),
        ("f = torch.randn(3).numpy()", "uses .numpy"),
        ("torch.from_file('a', True, 4)", "uses .from_file"),
        ("f = (", "does not parse"),
        ("#" * 20_000, "too long"),
    ],
)
def test_a_way_out_is_refused(top: str, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        check(_text(top=top))


@pytest.mark.parametrize(
    ("init", "body", "why"),
    [
        ("self.forward = max", "", "assigns to .forward"),
        ("self.__class__ = max", "", "assigns to .__class__"),
        ("self.os = torch", "torch.os", "uses .os"),
        ("self.gi_frame = 1", "(one for one in x).gi_frame", "uses .gi_frame"),
        ("nn.Module.table = 1", "", "assigns to .table"),
        ("", "self = torch", "binds self"),
        ("", "x.table", "uses .table"),
        ("", "[0 for self in [torch]]", "binds self"),
    ],
)
def test_the_modules_own_names_are_behind_self_alone(init: str, body: str, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        check(_text(init=init, body=body))


def test_no_allowed_attribute_of_torch_leads_to_another_module() -> None:
    parts = [torch, nn, nn.functional, torch.functional, torch.linalg, torch.special, torch.fft]
    reached = [getattr(part, name) for part in parts for name in attributes() if hasattr(part, name)]
    assert len(reached) > 500
    assert all(one in parts for one in reached if isinstance(one, ModuleType))
