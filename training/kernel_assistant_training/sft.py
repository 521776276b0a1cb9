"""Stage 1: `python -m kernel_assistant_training sft --base FOLDER --episodes FILE --out FOLDER`.

TRL's `SFTTrainer` on real episodes, with a share of un-run pairs so that first answers do not get worse. The trainer
is given tokens and labels: its own `assistant_only_loss` takes every turn of the assistant or none, and turns with an
injected fault (`"loss": false`) must not be learned. `--trainer transformers` does the same by the class below TRL's,
for machines without datasets, pyarrow and pandas.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import lzma
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.records.transcript import Message, ToolCall
from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.encoded import drawn, encoded
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.source import TARGETS, Source, pairs_of
from kernel_assistant_training.tokenizer import CONTEXT

#: A label that has no loss.
IGNORED = -100


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


def labels(tokens: Tokens) -> list[int]:
    """One for each token; the trainer shifts them."""
    return [number if mark else IGNORED for number, mark in zip(tokens.ids, tokens.learned, strict=True)]


def train(options: argparse.Namespace, sources: tuple[Source, ...]) -> dict[str, Any]:
    """Writes the folder. Raises MissingError where a package is not installed, UsageError."""
    trainer_of(options)
    found, figures = examples(options.episodes, sources, options.pairs_share, options.seed, options.processes)
    sys.stdout.write(json.dumps(figures) + "\n")
    return {**figures, **fit(options, found, "sft")}


def trainer_of(options: argparse.Namespace) -> Any:
    """What makes the trainer that is asked for. Raises MissingError where a package is not installed."""
    needed, make = TRAINERS[options.trainer]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}", "pip install 'kernel-assistant[train]'")
    return make


def fit(options: argparse.Namespace, found: list[Tokens], stage: str) -> dict[str, Any]:
    """Trains `options.base` on these and writes the folder `options.out`; what it came to."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rows = [{"input_ids": one.ids, "labels": labels(one)} for one in found]
    make = trainer_of(options)
    model = AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32)
    trainer = make(model, AutoTokenizer.from_pretrained(options.base), rows, _arguments(options))
    options.out.mkdir(parents=True, exist_ok=True)
    with RunControl(options.out, stage) as run:
        _watched(trainer, run)
        if options.seconds:
            _by_the_clock(trainer, options.seconds, run)
        result = trainer.train()
    weights = {name: weight for name, weight in trainer.model.state_dict().items() if name != "lm_head.weight"}
    trained = load_folder(options.base)
    trained.load_state_dict(weights)
    save_folder(trained, options.out)
    return {
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "loss": result.training_loss,
        "seconds": result.metrics["train_runtime"],
    }


def _watched(trainer: Any, run: RunControl) -> None:
    """Its figures for those who watch, and what they want of it."""
    from transformers import TrainerCallback

    class Watched(TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
        ) -> None:
            figures = {"gradient_norm" if name == "grad_norm" else name: one for name, one in (logs or {}).items()}
            run.report(state.global_step, figures)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= not run.goes_on(state.global_step)

    trainer.add_callback(Watched())


def _by_the_clock(trainer: Any, seconds: float, run: RunControl) -> None:
    """Ends training after so many seconds of it, with a rate that is zero then: a lent GPU has an end."""
    from transformers import TrainerCallback

    begun: list[float] = []

    def left(_step: int) -> float:
        return max(0.0, 1 - (time.monotonic() - begun[0] - run.paused_s) / seconds) if begun else 1.0

    class Clock(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            begun.append(time.monotonic())

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= left(0) == 0

    trainer.create_optimizer()
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, left)
    trainer.add_callback(Clock())


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "output_dir": str(options.out),
        "num_train_epochs": options.epochs,
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "learning_rate": options.rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": 20,
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "bf16": torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "train_sampling_strategy": "group_by_length",
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": "none",
        "seed": options.seed,
    }


def _trl(model: Any, tokenizer: Any, rows: list[dict[str, list[int]]], arguments: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    return SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        args=SFTConfig(**arguments, max_length=CONTEXT),
    )


def _transformers(model: Any, tokenizer: Any, rows: list[dict[str, list[int]]], arguments: dict[str, Any]) -> Any:
    """What TRL's trainer is a subclass of, and all that is left of it with tokens and labels given."""
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    return Trainer(
        model=model,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORED),
        train_dataset=rows,
        args=TrainingArguments(**arguments),
    )


#: What each needs, and how it is made.
TRAINERS = {"trl": (("trl", "datasets", "accelerate"), _trl), "transformers": (("accelerate",), _transformers)}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training sft", description=__doc__)
    found.add_argument("--base", type=Path, required=True, help="the folder that pretrain wrote")
    found.add_argument(
        "--episodes", type=Path, nargs="+", required=True, help="JSON lines with messages, .gz and .xz too"
    )
    found.add_argument("--out", type=Path, required=True, help="folder for the model")
    found.add_argument("--trainer", choices=TRAINERS, default="trl", help="transformers needs accelerate alone")
    found.add_argument("--pairs-share", type=float, default=0.2, help="of the examples")
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
    return found


def main(words: list[str]) -> None:
    figures = train(parser().parse_args(words), tuple(pairs_of(target) for target in TARGETS))
    sys.stdout.write(json.dumps(figures) + "\n")
