"""Several classes, with inputs declared in comments."""

from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A class without declared inputs."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.proj = nn.Linear(width, width)


# kernel-assistant: name=small inputs=(torch.randn(8, 32),) init=(32,)
# kernel-assistant: name=large inputs=(torch.randn(24, 32),) kwargs={"gain": torch.tensor(2.0)}
class NormGelu(Block):
    def forward(self, x, gain=None):
        y = F.gelu(self.proj(self.norm(x)))
        return y if gain is None else y * gain


class Plain(Block):
    # kernel-assistant: inputs=(torch.randn(4, 16),)
    # kernel-assistant: init_kwargs={"width":
    #     16}
    def forward(self, x):
        return self.norm(x)
