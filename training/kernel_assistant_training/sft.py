"""Stage 1: `python -m kernel_assistant_training sft --base FOLDER --episodes FILE --out FOLDER`.

TRL's `SFTTrainer` on real episodes, with a share of un-run pairs so that first answers do not get worse. The trainer
is given tokens and labels: its own `assistant_only_loss` takes every turn of the assistant or none, and turns with an
injected fault (`"loss": false`) must not be learned. `--trainer transformers` does the same by the class below TRL's,
for machines without datasets, pyarrow and pandas.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message, ToolCall
from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.encoded import drawn, encoded
from kernel_assistant_training.fine_tuning import TRAINERS, add_checkpoints, asked_of, fit, trainer_of
from kernel_assistant_training.ppo.run_folder import RunFolder
from kernel_assistant_training.source import COMPOSE_SHARE, TARGETS, Source, training_sources
from kernel_assistant_training.synth.mistakes import Mistakes
from kernel_assistant_training.synth.narrow import add_narrow, narrow_of
from kernel_assistant_training.tokenizer import CONTEXT

STAGE = "sft"


def episodes(files: list[Path]) -> Iterator[tuple[list[Message], list[bool]]]:
    """Messages, and which of them are learned. Raises UsageError, naming the line."""
    for file in files:
        unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(file.suffix, bytes)
        for number, line in enumerate(unpack(file.read_bytes()).splitlines(), 1):
            try:
                documents = json.loads(line)["messages"]
                yield [_message(one) for one in documents], [bool(one.get("loss", True)) for one in documents]
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{file}:{number} is no episode: {error!r}", "see docs/episodes.md") from error


def _message(document: dict[str, Any]) -> Message:
    calls = [
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in document.get("tool_calls", ())
    ]
    return Message(
        role=document["role"],
        content=document["content"],
        tool_call_id=document.get("tool_call_id", ""),
        tool_calls=tuple(calls),
    )


def examples(
    files: list[Path], sources: tuple[Source, ...], share: float, seed: int, processes: int = 1
) -> tuple[list[Tokens], dict[str, int]]:
    """Episodes and pairs (`share` of all) as tokens in random order, and what they are made of."""
    random = Random(seed)
    found = encoded(list(episodes(files)), processes)
    count = {"episodes": len(found)}
    each = round(len(found) * share / (1 - share) / max(len(sources), 1))
    for source in sources:
        found += drawn(source, seed, each, processes)
    count |= {"pairs": len(found) - count["episodes"]}
    fitting = [one for one in found if len(one.ids) <= CONTEXT and any(one.learned)]
    random.shuffle(fitting)
    learned = sum(sum(one.learned) for one in fitting)
    return fitting, {
        **count,
        "left_out": len(found) - len(fitting),
        "tokens": sum(len(one.ids) for one in fitting),
        "learned_tokens": learned,
    }


def train(options: argparse.Namespace, sources: tuple[Source, ...]) -> dict[str, Any]:
    """Writes the folder, from where it was. Raises MissingError where a package is not installed, UsageError also where
    the folder is another run's."""
    trainer_of(options)
    RunFolder(options.out, asked_of(options, STAGE))
    found, figures = examples(options.episodes, sources, options.pairs_share, options.seed, options.processes)
    sys.stdout.write(json.dumps(figures) + "\n")
    return {**figures, **fit(options, found, STAGE)}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training sft", description=__doc__)
    found.add_argument("--base", type=Path, required=True, help="the folder that pretrain wrote")
    found.add_argument(
        "--episodes", type=Path, nargs="+", required=True, help="JSON lines with messages, .gz and .xz too"
    )
    found.add_argument("--out", type=Path, required=True, help="folder for the model")
    found.add_argument("--trainer", choices=TRAINERS, default="trl", help="transformers needs accelerate alone")
    found.add_argument("--pairs-share", type=float, default=0.2, help="of the examples")
    found.add_argument("--compose-share", type=float, default=COMPOSE_SHARE, help="of the pairs: compositions of tasks")
    found.add_argument("--epochs", type=float, default=2.0)
    found.add_argument("--steps", type=int, default=-1, help="at most, where it is given")
    found.add_argument(
        "--seconds", type=float, default=0.0, help="of training, at most; the rate falls by the clock then"
    )
    found.add_argument("--batch", type=int, default=32)
    found.add_argument("--accumulate", type=int, default=1)
    found.add_argument("--rate", type=float, default=3e-4)
    found.add_argument("--processes", type=int, default=1, help="that turn conversations into tokens")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--target", choices=TARGETS, nargs="+", default=TARGETS, help="of the pairs")
    add_narrow(found)
    found.add_argument("--mistakes", default="", metavar="FAULT=SHARE,...", help="in pairs, as pretrain has them")
    add_checkpoints(found)
    return found


def main(words: list[str]) -> None:
    options = parser().parse_args(words)
    figures = train(
        options,
        training_sources(options.compose_share, options.target, narrow_of(options), Mistakes.of(options.mistakes)),
    )
    sys.stdout.write(json.dumps(figures) + "\n")
