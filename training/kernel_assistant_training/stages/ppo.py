"""PPO: `python -m kernel_assistant_training ppo_agent --base FOLDER --out RUN`; `ppo_single` has one reply an episode.

For `ppo_agent`, FOLDER is a checkpoint of the stage `critic`, so that the value head is trained before the first
iteration.
"""

from __future__ import annotations

import sys

from kernel_assistant_training.options.stages import PpoAgentArguments, PpoSingleArguments
from kernel_assistant_training.ppo.arguments import options_of
from kernel_assistant_training.ppo.stage import run


def main(options: PpoAgentArguments) -> None:
    """Runs the stage and prints the folder of the newest checkpoint."""
    stage = "ppo_single" if isinstance(options, PpoSingleArguments) else "ppo_agent"
    sys.stdout.write(f"{run(options_of(stage, options))}\n")
