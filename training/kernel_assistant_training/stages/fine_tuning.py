"""Fine-tunes a model with the Trainer of transformers or of TRL; a run can be resumed. Shared by `sft` and `rft`."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernel_assistant.errors import InternalError, MissingError
from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.options.groups import ModelArguments, TrainerName, TuningArguments
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import written
from kernel_assistant_training.stages.trainer_checkpoints import SECONDS, TrainerCheckpoints

#: The label of tokens without a loss.
IGNORED = -100
#: Most steps of the warm-up, and most steps between two reports.
WARM_UP, LOG_EVERY = 20, 10
#: The figures of a finished run; a second start returns them.
FIGURES = "figures.json"


def labels(tokens: Tokens) -> list[int]:
    """Returns a label for each token: the token itself if the loss includes it, else `IGNORED`. The trainer shifts the
    labels by one."""
    return [number if mark else IGNORED for number, mark in zip(tokens.ids, tokens.learned, strict=True)]


def trainer_of(options: TuningArguments) -> Any:
    """Returns the function that makes the trainer `options.trainer`. Raises MissingError if a package is not
    installed."""
    needed, make = TRAINERS[options.trainer]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"not installed: {', '.join(missing)}", "pip install 'kernel-assistant[train]'")
    return make


def asked_of(options: TuningArguments, stage: str) -> dict[str, Any]:
    """Returns name → value of the options that must be the same when the stage is started again in its folder: all
    options that affect what is learned."""
    free = ("out", "trainer", "checkpoint_seconds", "workers", "pool", "rows")
    learned = {name: value for name, value in vars(options).items() if name not in free}
    if not learned.get("traced_share"):
        learned.pop("traced_share", None)  # as in runs that were begun before it was an option
    return {**dict(json.loads(json.dumps(learned, default=str))), "stage": stage}


def fit(options: TuningArguments, examples: list[Tokens], stage: str, watched: Path | None = None) -> dict[str, Any]:
    """Trains `options.base` on the examples, from the last checkpoint if there is one, and writes the model to
    `options.out`. Returns its steps, epochs, mean loss and seconds; if the folder has a finished model, returns those
    of that model. `watched` is the folder for metrics and control files, by default `options.out`. Raises UsageError
    for an invalid base, StoreError if a file cannot be written, and InternalError for weights that are not finite."""
    from transformers import AutoTokenizer

    from kernel_assistant_training.stages.tuned import open_tuned

    ended = options.out / FIGURES
    if ended.is_file():
        return dict(json.loads(ended.read_text(encoding="utf-8")))
    rows = [{"input_ids": one.ids, "labels": labels(one)} for one in examples]
    make = trainer_of(options)
    tuned = open_tuned(options.base, options.lora if isinstance(options, ModelArguments) else 0)
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoints = TrainerCheckpoints(options.out)
    trainer = make(tuned.model, AutoTokenizer.from_pretrained(tuned.base), rows, _arguments(options, len(rows)))
    with RunControl(watched or options.out, stage) as run, checkpoints.naming():
        clock = Clock(run, checkpoints.seconds())
        _watched(trainer, run, clock, options.checkpoint_seconds)
        if options.seconds:
            _by_the_clock(trainer, options.seconds, clock, steps_of(options, len(rows)))
        latest = checkpoints.latest()
        trainer.train(resume_from_checkpoint=str(latest) if latest else None)
        check_finite(trainer.model)
        with written(options.out):
            tuned.save(options.out, trainer.model)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    figures = {
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "loss": sum(losses) / len(losses) if losses else None,
        "seconds": clock.seconds,
    }
    if not run.stopped:
        fresh = ended.with_suffix(".new")
        fresh.write_text(json.dumps(figures), encoding="utf-8")
        fresh.rename(ended)
        checkpoints.drop()
    return figures


class Clock:
    """Measures the seconds of training, without pauses. `earlier` are the seconds of earlier starts, which are
    added."""

    def __init__(self, run: RunControl, earlier: float) -> None:
        self._run, self._earlier = run, earlier
        self._began: float | None = None

    def begin(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        now = 0.0 if self._began is None else time.monotonic() - self._began - self._run.paused_s
        return self._earlier + now


def check_finite(model: torch.nn.Module) -> None:
    """Raises InternalError if a weight is not finite, because no checkpoint may contain such a weight."""
    odd = [name for name, weight in model.named_parameters() if not bool(torch.isfinite(weight).all())]
    if odd:
        raise InternalError(
            f"{len(odd)} weights are not finite, {odd[0]} first", "use a lower --rate in another folder"
        )


def _watched(trainer: Any, run: RunControl, clock: Clock, every: float) -> None:
    """Adds a callback to the trainer that reports metrics, obeys commands, and saves a checkpoint every `every`
    seconds."""
    from transformers import TrainerCallback

    saved = time.monotonic()

    class Watched(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.begin()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
        ) -> None:
            figures = {"gradient_norm" if name == "grad_norm" else name: one for name, one in (logs or {}).items()}
            run.report(state.global_step, figures)
            check_finite(trainer.model)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            nonlocal saved
            stop = not run.goes_on(state.global_step)
            control.should_training_stop |= stop
            if stop or time.monotonic() - saved >= every:
                check_finite(trainer.model)
                state.log_history.append({SECONDS: clock.seconds, "step": state.global_step})
                control.should_save = True
                saved = time.monotonic()

    trainer.add_callback(Watched())


def _by_the_clock(trainer: Any, seconds: float, clock: Clock, steps: int) -> None:
    """Makes training end after `seconds` of training time or after `steps`, whichever comes first; the learning rate
    falls linearly to zero by then. For borrowed GPUs, which are available for a limited time."""
    from transformers import TrainerCallback

    def left(step: int) -> float:
        return max(0.0, 1 - max(clock.seconds / seconds, step / steps))

    class TimeLimit(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= left(0) == 0

    trainer.create_optimizer()
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, left)
    trainer.add_callback(TimeLimit())


def steps_of(options: TuningArguments, rows: int) -> int:
    """Returns the number of optimiser steps for `rows` examples; a time limit may end training earlier."""
    whole = math.ceil(math.ceil(rows / (options.batch * options.accumulate)) * options.epochs)
    return int(options.steps) if options.steps > 0 else max(whole, 1)


def _arguments(options: TuningArguments, rows: int) -> dict[str, Any]:
    # A short run must have more steps than its warm-up, and more than one report.
    tenth = max(steps_of(options, rows) // 10, 1)
    return {
        "output_dir": str(options.out),
        "num_train_epochs": options.epochs,
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "learning_rate": options.rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": min(WARM_UP, tenth),
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "bf16": torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "train_sampling_strategy": "group_by_length",
        "logging_steps": min(LOG_EVERY, tenth),
        "logging_nan_inf_filter": False,
        # A callback asks for each checkpoint.
        "save_strategy": "no",
        "save_total_limit": 1,
        "report_to": "none",
        "seed": options.seed,
    }


def _trl(model: Any, tokenizer: Any, rows: list[dict[str, list[int]]], arguments: dict[str, Any]) -> Any:
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    return SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        # Examples that are too long were left out; nothing is cut.
        args=SFTConfig(**arguments, max_length=None),
    )


def _transformers(model: Any, tokenizer: Any, rows: list[dict[str, list[int]]], arguments: dict[str, Any]) -> Any:
    """Makes a trainer of transformers, the base class of TRL's trainer. That suffices because tokens and labels are
    given."""
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    return Trainer(
        model=model,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=IGNORED),
        train_dataset=rows,
        args=TrainingArguments(**arguments),
    )


#: The packages that each trainer needs, and the function that makes it.
TRAINERS: Mapping[TrainerName, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "trl": (("trl", "datasets", "accelerate"), _trl),
    "transformers": (("accelerate",), _transformers),
}
