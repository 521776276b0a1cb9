"""PPO with one reply an episode: `python -m kernel_assistant_training ppo_single --base FOLDER --out RUN`."""

from __future__ import annotations

import sys

from kernel_assistant_training.options.stages import PpoSingleArguments
from kernel_assistant_training.ppo.arguments import options_of
from kernel_assistant_training.ppo.stage import run

STAGE = "ppo_single"


def main(options: PpoSingleArguments) -> None:
    """Runs the stage and prints the folder of the newest checkpoint."""
    sys.stdout.write(f"{run(options_of(STAGE, options))}\n")
