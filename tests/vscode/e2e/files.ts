// What lies in the workspace of the tests.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const example = (name: string): string =>
    readFileSync(fileURLToPath(new URL(`../../../examples/${name}`, import.meta.url)), "utf8");

export const MODULE = "masked_cumsum.py";
export const CLASS = "MaskedCumsum";
export const original = example(MODULE);

export const KERNEL = "kernel.cu";
export const BARE = "bare.py";
export const RECORDED = "recorded.py";
export const PROGRAM = "run_recorded.py";
/** A class that says nowhere how it is called. */
const bare = (name: string): string => `import torch
from torch import nn


class ${name}(nn.Module):
    def __init__(self, features: int = 256) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.norm(x))
`;

const program = `import torch
from recorded import Recorded

module = Recorded().eval()
with torch.no_grad():
    for _ in range(3):
        module(torch.randn(8, 512, 256))
`;

export const files: Record<string, string> = {
    [MODULE]: original,
    [KERNEL]: "__global__ void twice(float* x) {\n\n}\n",
    [BARE]: bare("Bare"),
    [RECORDED]: bare("Recorded"),
    [PROGRAM]: program,
};

/** Runs the file on disk and the original on the same inputs: the largest difference, and calls of the kernels. */
export const COMPARE = `
import json, runpy, sys, torch
torch.manual_seed(0)
sys.path.insert(0, ".")
import masked_cumsum as applied
import masked_cumsum_kernels as kernels
original = runpy.run_path("original.py")
inputs = applied.get_inputs()
with torch.no_grad():
    ours, theirs = applied.MaskedCumsum().eval()(*inputs), original["MaskedCumsum"]().eval()(*inputs)
print(json.dumps({"difference": (ours - theirs).abs().max().item(), "largest": theirs.abs().max().item(),
                  "counters": kernels.counters()}))
`;
