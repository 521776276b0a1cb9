"""`python -m kernel_assistant_training COMMAND`: the stages of training, and what is done with their folders.

`--tensorboard` and `--no-tensorboard` are known by all (docs/training_metrics.md). Processes that these start do not
load this file again, and so not torch.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from kernel_assistant.errors import EXIT_USAGE
from kernel_assistant_training.endings import ended
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.tracking.events import SETTING

_COMMANDS = (
    "tokenizer",
    "pretrain",
    "sft",
    "ppo_single",
    "rft",
    "critic",
    "ppo_agent",
    "export",
    "synth",
    "label",
    "plot",
    "eval",
    "episodes",
    "pipeline",
)
#: Those that are not called like their module.
_MODULES = {
    "synth": "tasks.command",
    "label": "tasks.label",
    "plot": "tracking.plot",
    "eval": "evaluate",
    "episodes": "episodes.__main__",
    "pipeline": "pipeline.command",
}
_TENSORBOARD = {"--tensorboard": "1", "--no-tensorboard": "0"}


def main(words: list[str]) -> int:
    """The exit code."""
    if not words or words[0] not in _COMMANDS:
        sys.stderr.write(f"python -m kernel_assistant_training {'|'.join(_COMMANDS)} --help\n")
        return EXIT_USAGE
    for word, said in _TENSORBOARD.items():
        if word in words:
            os.environ[SETTING] = said
    rest = [word for word in words[1:] if word not in _TENSORBOARD]

    def stage() -> None:
        kind = words[0].replace("_", "-")
        if "--dry-run" in rest and kind in KINDS and kind != "synth":  # which has it itself
            from kernel_assistant_training.pipeline.plan import single

            sys.stdout.write(single(kind, [word for word in rest if word != "--dry-run"]) + "\n")
            return
        import_module(f"kernel_assistant_training.{_MODULES.get(words[0], words[0])}").main(rest)

    return ended(words[0], stage)


if __name__ == "__main__":
    # As in worker/boot.py: importing torch and transformers takes a fifth less.
    gc.set_threshold(100_000)
    raise SystemExit(main(sys.argv[1:]))
