"""Makes training tasks without torch: random graphs, the sources of their modules, their split (training or held-out),
and conversations about them."""

from __future__ import annotations

from kernel_assistant_training.synth.conversations import pairs, prompt
from kernel_assistant_training.synth.memory import fitted
from kernel_assistant_training.synth.module_text import module_text
from kernel_assistant_training.synth.sampler import sample
from kernel_assistant_training.synth.split import split

__all__ = ["fitted", "module_text", "pairs", "prompt", "sample", "split"]
