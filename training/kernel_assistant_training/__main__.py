"""`python -m kernel_assistant_training COMMAND`: runs a stage of training, or a command that works on a stage's folder.

All commands take `--tensorboard` and `--no-tensorboard` (docs/training_metrics.md). The processes that a command starts
with `multiprocessing` do not import this file again, and so do not import torch.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from kernel_assistant.errors import EXIT_USAGE
from kernel_assistant_training.endings import ended
from kernel_assistant_training.options.commands import COMMANDS, run_command
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.tracking.events import SETTING

_TENSORBOARD = {"--tensorboard": "1", "--no-tensorboard": "0"}


def main(words: list[str]) -> int:
    """Runs the command `words[0]` with the remaining words as its arguments; returns the exit code."""
    if not words or words[0] not in COMMANDS:
        sys.stderr.write(f"python -m kernel_assistant_training {'|'.join(COMMANDS)} --help\n")
        return EXIT_USAGE
    for word, setting in _TENSORBOARD.items():
        if word in words:
            os.environ[SETTING] = setting
    rest = [word for word in words[1:] if word not in _TENSORBOARD]

    kind = words[0].replace("_", "-")
    planned = "--dry-run" in rest and kind in KINDS
    if planned:
        rest.remove("--dry-run")

    def stage() -> None:
        if planned and not {"-h", "--help"} & set(rest):
            from kernel_assistant_training.pipeline.plan import single

            sys.stdout.write(single(kind, rest) + "\n")
        else:
            run_command(words[0], rest)

    return ended(words[0], stage)


if __name__ == "__main__":
    # As in worker/boot.py: makes importing torch and transformers a fifth faster.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)  # at the end, scanning torch's objects for garbage takes half a second
    raise SystemExit(main(sys.argv[1:]))
