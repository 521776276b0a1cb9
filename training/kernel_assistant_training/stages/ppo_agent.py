"""PPO with several turns an episode: `python -m kernel_assistant_training ppo_agent --base FOLDER --out RUN`.

FOLDER is a checkpoint of the stage `critic`, so that the value head is trained before the first iteration.
"""

from __future__ import annotations

import sys

from kernel_assistant_training.options.stages import PpoAgentArguments
from kernel_assistant_training.ppo.arguments import options_of
from kernel_assistant_training.ppo.stage import run

STAGE = "ppo_agent"


def main(options: PpoAgentArguments) -> None:
    """Runs the stage and prints the folder of the newest checkpoint."""
    sys.stdout.write(f"{run(options_of(STAGE, options))}\n")
