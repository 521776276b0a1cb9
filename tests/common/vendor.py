"""An installed library, and a program that uses its class."""

from __future__ import annotations

from pathlib import Path

LAYERS = """import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5


class Unused(nn.Module):
    def forward(self, x):
        return x.exp() + 1
"""

PROGRAM = """import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "site-packages"))
import torch
from vendor.layers import Gate

if __name__ == "__main__":
    gate, x = Gate().eval(), torch.randn(256, 1024)
    with torch.no_grad():
        for _ in range(3):
            y = gate(x)
    assert torch.allclose(y, torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5, atol=1e-5)
    if kernels := sys.modules.get("kernels_for_vendor"):
        print(kernels.counters())
"""


def installed(project: Path) -> tuple[Path, Path]:
    """The library's file below `project`/site-packages, and the program `main.py` of the project."""
    library = project / "site-packages" / "vendor" / "layers.py"
    library.parent.mkdir(parents=True)
    (library.parent / "__init__.py").write_text("")
    library.write_text(LAYERS)
    program = project / "main.py"
    program.write_text(PROGRAM)
    return library, program
