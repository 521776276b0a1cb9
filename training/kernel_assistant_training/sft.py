"""Stage 1: `python -m kernel_assistant_training sft --base FOLDER --episodes FILE --out FOLDER`.

TRL's `SFTTrainer` on real episodes, with a share of un-run pairs so that first answers do not get worse. The trainer
is given tokens and labels: its own `assistant_only_loss` takes every turn of the assistant or none, and turns with an
injected fault (`"loss": false`) must not be learned.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.records.transcript import Message, ToolCall
from kernel_assistant_training.conversation import Encoder, Tokens
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.source import TARGETS, Source, pairs_of
from kernel_assistant_training.tokenizer import CONTEXT, load

NEEDED = ("trl", "datasets", "accelerate", "transformers", "pyarrow")
#: A label that has no loss.
IGNORED = -100


def episodes(files: list[Path]) -> Iterator[tuple[list[Message], list[bool]]]:
    """Messages, and which of them are learned. Raises UsageError, naming the line."""
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
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
    files: list[Path], sources: tuple[Source, ...], share: float, seed: int
) -> tuple[list[Tokens], dict[str, int]]:
    """Episodes and pairs (`share` of all) as tokens in random order, and what they are made of."""
    encoder, random = Encoder(load()), Random(seed)
    found = [encoder.encode(messages, learned) for messages, learned in episodes(files)]
    count = {"episodes": len(found)}
    each = round(len(found) * share / (1 - share) / max(len(sources), 1))
    for source in sources:
        found += [encoder.encode(messages) for messages in islice(source(seed), each)]
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


def labels(tokens: Tokens) -> list[int]:
    """One for each token; the trainer shifts them."""
    return [number if mark else IGNORED for number, mark in zip(tokens.ids, tokens.learned, strict=True)]


def train(options: argparse.Namespace, sources: tuple[Source, ...]) -> dict[str, Any]:
    """Writes the folder. Raises MissingError where a package is not installed, UsageError."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}", "pip install 'kernel-assistant[train]'")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    found, figures = examples(options.episodes, sources, options.pairs_share, options.seed)
    sys.stdout.write(json.dumps(figures) + "\n")
    data = Dataset.from_list([{"input_ids": one.ids, "labels": labels(one)} for one in found])
    on_gpu = torch.cuda.is_available()
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(options.base),
        train_dataset=data,
        args=SFTConfig(
            output_dir=str(options.out),
            max_length=CONTEXT,
            num_train_epochs=options.epochs,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch,
            gradient_accumulation_steps=options.accumulate,
            learning_rate=options.rate,
            lr_scheduler_type="linear",
            warmup_steps=20,
            weight_decay=0.1,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            bf16=on_gpu,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            seed=options.seed,
            gradient_checkpointing=False,
            train_sampling_strategy="group_by_length",
        ),
    )
    result = trainer.train()
    weights = {name: weight for name, weight in trainer.model.state_dict().items() if name != "lm_head.weight"}
    model = load_folder(options.base)
    model.load_state_dict(weights)
    save_folder(model, options.out)
    return {**figures, "loss": result.training_loss, "seconds": result.metrics["train_runtime"]}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="kernel_assistant_training sft", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the folder that pretrain wrote")
    parser.add_argument("--episodes", type=Path, nargs="+", required=True, help="JSON lines with messages")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--pairs-share", type=float, default=0.2, help="of the examples")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=-1, help="at most, where it is given")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    figures = train(parser.parse_args(words), tuple(pairs_of(target) for target in TARGETS))
    sys.stdout.write(json.dumps(figures) + "\n")
