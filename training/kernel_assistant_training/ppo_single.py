"""PPO with one reply an episode: `python -m kernel_assistant_training ppo_single --base FOLDER --out RUN`."""

from __future__ import annotations

import argparse
import sys

from kernel_assistant_training.ppo.arguments import options_of, parser_of
from kernel_assistant_training.ppo.stage import run

STAGE = "ppo_single"


def parser() -> argparse.ArgumentParser:
    return parser_of(STAGE, __doc__, turns=1)


def main(words: list[str]) -> None:
    """Ends with the newest checkpoint, which is named."""
    sys.stdout.write(f"{run(options_of(STAGE, parser().parse_args(words)))}\n")
