"""PPO with several turns an episode: `python -m kernel_assistant_training ppo_agent --base FOLDER --out RUN`.

The folder is one of `critic`, so that values are there from the first iteration on.
"""

from __future__ import annotations

import argparse
import sys

from kernel_assistant_training.ppo.arguments import options_of, parser_of
from kernel_assistant_training.ppo.stage import run

STAGE = "ppo_agent"
#: Replies, where a conversation of 4096 tokens has room for about eight.
TURNS = 8


def parser() -> argparse.ArgumentParser:
    return parser_of(STAGE, __doc__, turns=TURNS)


def main(words: list[str]) -> None:
    """Ends with the newest checkpoint, which is named."""
    sys.stdout.write(f"{run(options_of(STAGE, parser().parse_args(words)))}\n")
