"""Stage 1, supervised fine-tuning: `python -m kernel_assistant_training sft --base FOLDER --episodes FILE --out
FOLDER`.

Trains with TRL's `SFTTrainer` on real episodes, and on a share of pairs (question and answer) that were never run, so
that first answers do not get worse. The trainer is given tokens and labels: its own `assistant_only_loss` takes every
turn of the assistant or none, and turns with a deliberate mistake (`"loss": false`) must not be in the loss. `--trainer
transformers` does the same with the base class of TRL's trainer, for machines without datasets, pyarrow and pandas.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message, ToolCall
from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.encoded import drawn, encoded
from kernel_assistant_training.options.stages import SftArguments
from kernel_assistant_training.reply import CONTEXT
from kernel_assistant_training.run_settings import claim_run
from kernel_assistant_training.source import Source, training_sources
from kernel_assistant_training.stages.fine_tuning import asked_of, fit, trainer_of
from kernel_assistant_training.synth.mistakes import FaultRates
from kernel_assistant_training.synth.narrow import Narrow

STAGE = "sft"
#: Only the system messages of earlier versions have this.
_EARLIER = "begins with // set:"


def episodes(files: Sequence[Path]) -> Iterator[tuple[list[Message], list[bool]]]:
    """Yields the messages of each episode, and a list with a bool for each message: whether the loss includes it.
    Raises UsageError with the file and line of an invalid episode."""
    for file in files:
        unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(file.suffix, bytes)
        for number, line in enumerate(unpack(file.read_bytes()).splitlines(), 1):
            try:
                documents = json.loads(line)["messages"]
                messages = [_message(one) for one in documents]
                learned = [bool(one.get("loss", True)) for one in documents]
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{file}:{number} is no episode: {error!r}", "see docs/episodes.md") from error
            if any(_EARLIER in message.content for message in messages[:1]):
                raise UsageError(f"{file} has kernels in an earlier language", "play episodes again: train episodes")
            yield messages, learned


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
    files: Sequence[Path], sources: tuple[Source, ...], share: float, seed: int, processes: int = 1
) -> tuple[list[Tokens], dict[str, int]]:
    """Returns the tokens of episodes from `files` and of pairs (question and answer) from `sources` in random order,
    and counts: examples of each kind, examples left out (longer than the context, or without a token in the loss), and
    tokens. `share` is the share of pairs of all examples."""
    random = Random(seed)
    tokens = encoded(list(episodes(files)), processes)
    count = {"episodes": len(tokens)}
    each = round(len(tokens) * share / (1 - share) / max(len(sources), 1))
    for source in sources:
        tokens += drawn(source, seed, each, processes)
    count |= {"pairs": len(tokens) - count["episodes"]}
    fitting = [one for one in tokens if len(one.ids) <= CONTEXT and any(one.learned)]
    random.shuffle(fitting)
    learned = sum(sum(one.learned) for one in fitting)
    return fitting, {
        **count,
        "left_out": len(tokens) - len(fitting),
        "tokens": sum(len(one.ids) for one in fitting),
        "learned_tokens": learned,
    }


def train(options: SftArguments, sources: tuple[Source, ...]) -> dict[str, Any]:
    """Trains on episodes and on pairs from `sources`, and writes the model, resuming if possible; returns metrics.
    Raises MissingError if a package is not installed, and UsageError, for instance if the folder belongs to another
    run."""
    trainer_of(options)
    claim_run(options.out, asked_of(options, STAGE))
    tokens, figures = examples(options.episodes, sources, options.pairs_share, options.seed, options.processes)
    sys.stdout.write(json.dumps(figures) + "\n")
    return {**figures, **fit(options, tokens, STAGE)}


def main(options: SftArguments) -> None:
    narrow, mistakes = Narrow.of(options.only, options.level), FaultRates.of(options.mistakes)
    sources = training_sources(
        options.compose_share, options.target, narrow, mistakes, continued=True, traced_share=options.traced_share
    )
    figures = train(options, sources)
    sys.stdout.write(json.dumps(figures) + "\n")
