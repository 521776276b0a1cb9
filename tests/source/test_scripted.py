"""The modules that a file compiles with TorchScript, as far as its text shows them."""

from __future__ import annotations

import pytest

from kernel_assistant.source.scripted import scripted_above

FILE = """
import torch
from torch import nn

class Act(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.rest = nn.Sequential(nn.Linear(4, 4), Act())

    def forward(self, x):
        return self.rest(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)
"""
SCRIPTED = "\n\ndef load():\n    return torch.jit.script(Net().eval())\n"


@pytest.mark.parametrize(
    "ending",
    [
        SCRIPTED,
        "\n\nnet = Net().to('cpu')\nnet.load_state_dict({})\nnet = torch.jit.script(net)\nnet(torch.ones(4))\n",
        "\n\nfrom torch.jit import script\nfast = script(Net())\n",
    ],
)
def test_what_is_made_for_a_scripted_module_alone_is_known(ending: str) -> None:
    assert [scripted_above(FILE + ending, name) for name in ("Act", "Block", "Net")] == ["Net"] * 3


@pytest.mark.parametrize(
    ("ending", "named"),
    [
        ("", "Act"),
        (f"{SCRIPTED}\n\nother = Act()\n", "Act"),
        (f"{SCRIPTED}\n\nclass Other(nn.Module):\n    def __init__(self):\n        self.act = Act()\n", "Act"),
        ("\n\nnet = Net()\nwant = net(torch.ones(4))\ngot = torch.jit.script(net)(torch.ones(4))\n", "Act"),
        (f"{SCRIPTED}\n\nclass Alone(nn.Module):\n    def forward(self, x):\n        return x\n", "Alone"),
        ("\n\nrun = subprocess.script(Net())\n", "Act"),
        ("\n\n# torch.jit.script(Net())\n", "Net"),
    ],
)
def test_what_may_run_without_it_is_not(ending: str, named: str) -> None:
    assert scripted_above(FILE + ending, named) == ""
