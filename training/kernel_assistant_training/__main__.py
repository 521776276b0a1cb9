"""`python -m kernel_assistant_training COMMAND`: the stages of training, and what is done with their folders.

`--tensorboard` and `--no-tensorboard` are known by all (docs/training_metrics.md). Processes that these start do not
load this file again, and so not torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from kernel_assistant.errors import EXIT_CANCELLED, EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, KernelAssistantError
from kernel_assistant_training.interrupts import Answering, Interrupted, raised
from kernel_assistant_training.pipeline.kinds import KINDS
from kernel_assistant_training.saving import is_full
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
    "episodes",
    "pipeline",
)
#: Those that are not called like their module.
_MODULES = {
    "synth": "tasks.command",
    "label": "tasks.label",
    "plot": "tracking.plot",
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
    try:
        with Answering(raised):
            kind = words[0].replace("_", "-")
            if "--dry-run" in rest and kind in KINDS and kind != "synth":  # which has it itself
                from kernel_assistant_training.pipeline.plan import single

                sys.stdout.write(single(kind, [word for word in rest if word != "--dry-run"]) + "\n")
                return EXIT_OK
            import_module(f"kernel_assistant_training.{_MODULES.get(words[0], words[0])}").main(rest)
    except KernelAssistantError as error:
        sys.stderr.write(f"{error.cause}\n{error.next_step}\n")
        return error.exit_code
    except OSError as error:
        if not is_full(error):
            raise
        sys.stderr.write(f"{words[0]}: {error}\nmake room, and start it again: it goes on where it was\n")
        return EXIT_INTERNAL
    except KeyboardInterrupt as error:
        sys.stderr.write(f"{words[0]} was ended by {str(error) or 'SIGINT'}: the same command goes on where it was\n")
        return error.exit_code if isinstance(error, Interrupted) else EXIT_CANCELLED
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
