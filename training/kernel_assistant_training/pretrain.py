"""Stage 0: `python -m kernel_assistant_training pretrain --out FOLDER --seconds 480`.

Trains on un-run pairs until the time is over. Leaves in FOLDER: `model/` (and `middle/`, from half of the time on),
`metrics.jsonl`, `checkpoint.pt` (each minute, for `--resume`), `answers.jsonl` (greedy answers to held-out tasks).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from kernel_assistant.errors import InternalError
from kernel_assistant_training.architecture import SHIPPED, SMALL, TINY, Llama, Mask, block_mask, dense_mask
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.greedy import judge_greedy
from kernel_assistant_training.held_out import HeldOutMaker
from kernel_assistant_training.optimiser import optimisers
from kernel_assistant_training.packing import FIRST, LEARNED, PROMPT, Rows
from kernel_assistant_training.pretrain_checkpoint import Checkpoint
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import written
from kernel_assistant_training.source import COMPOSE_SHARE, TARGETS, Source, training_sources
from kernel_assistant_training.stream import Stream, StreamOptions
from kernel_assistant_training.synth.mistakes import Mistakes
from kernel_assistant_training.synth.narrow import Narrow, add_narrow
from kernel_assistant_training.synth.sampler import LEVELS
from kernel_assistant_training.tokenizer import load, vocabulary_size

SHAPES = {"shipped": SHIPPED, "small": SMALL, "tiny": TINY}
LOG_EVERY = 50
STAGE = "pretrain"


@dataclass(frozen=True)
class Options:
    """`rows` of `length` tokens a step; `decay` is the share of the time in which the learning rate falls to zero.
    AdamW alone wants half the `rate`. `steps` bounds the run as well, 0 does not. `base` is the folder of a model whose
    weights are where it begins; without one they are random. A `steady` run has the same rows, in the same order,
    whenever it is run; bounded by steps and on as many threads it comes to the same weights."""

    out: Path
    seconds: float = 480.0
    steps: int = 0
    shape: str = "shipped"
    rows: int = 64
    length: int = 2048
    processes: int = 14
    keep: int = 400_000
    optimiser: str = "muon"
    rate: float = 4e-3
    warm_up: int = 200
    decay: float = 0.6
    prompt_weight: float = 0.1
    compose_share: float = COMPOSE_SHARE
    target: Sequence[str] = TARGETS
    only: str = ""
    level: int = LEVELS[-1]
    mistakes: str = ""
    steady: bool = False
    attention: str = "flex"
    held_out: int = 200
    seed: int = 0
    checkpoint_seconds: float = 60.0
    resume: bool = False
    base: Path | None = None
    sources: tuple[Source, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Progress:
    """`seconds` are those of training, all runs together."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    runs: int = 0


@dataclass(frozen=True)
class Batch:
    """(rows, length) each: tokens, those that follow, the weight of each of these in the loss, 1 for the assistant's
    own, and the number of the conversation within its row."""

    ids: Tensor
    labels: Tensor
    weights: Tensor
    learned: Tensor
    documents: Tensor


def train(options: Options) -> Progress:
    """Everything. Raises UsageError, InternalError."""
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    shape = replace(SHAPES[options.shape], vocabulary=vocabulary_size(load()))
    model = (Llama(shape) if options.base is None else load_folder(options.base)).to(device)
    chosen = optimisers(model, options.optimiser, options.rate)
    checkpoint = Checkpoint(options.out / "checkpoint.pt", model, chosen, options.checkpoint_seconds)
    progress = _resumed(checkpoint, device) if options.resume else Progress()
    earlier = progress.seconds
    sources = options.sources or training_sources(
        options.compose_share, options.target, Narrow.of(options.only, options.level), Mistakes.of(options.mistakes)
    )
    # Another run has other conversations.
    streaming = StreamOptions(
        sources, options.processes, options.length, options.keep, options.seed + progress.runs, options.steady
    )
    losses = weighted_losses
    if on_gpu:
        model.compile_layers()
        losses = torch.compile(weighted_losses, dynamic=False)
    precision = torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()
    residual = torch.bfloat16 if on_gpu else torch.float32
    saved_middle = done(options, progress) >= 0.5

    with (
        RunControl(options.out, STAGE) as control,
        Stream(streaming) as stream,
        HeldOutMaker(options.out / "held_out.jsonl", options.held_out) as held_out,
        (options.out / "metrics.jsonl").open("a", encoding="utf-8") as log,
    ):
        _say(log, {"options": _document(options), "parameters": sum(weight.numel() for weight in model.parameters())})
        meter, norm = Meter(device), None
        while True:
            wanted = control.goes_on(progress.step)
            progress = replace(progress, seconds=earlier + time.monotonic() - began - control.paused_s)
            if done(options, progress) >= 1 or not wanted:
                break
            rate = learning_rate(options, progress)
            for group in (group for optimiser in chosen for group in optimiser.param_groups):
                group["lr"] = rate
            with meter.host("taking"):
                rows = _taken(stream, options.rows, checkpoint, progress, norm)
            with meter.host("sending"):
                batch = batch_of(rows, options.prompt_weight, device)
            with precision:
                hidden = model.hidden(batch.ids, _mask(options, batch.documents), residual)
                loss, parts = losses(
                    hidden, model.model.embed_tokens.weight, batch.labels, batch.weights, batch.learned
                )
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser in chosen:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            tokens = options.rows * options.length
            progress = replace(progress, step=progress.step + 1, tokens=progress.tokens + tokens)
            meter.add(parts, norm, tokens)
            if progress.step % LOG_EVERY == 0 or progress.step <= 2:
                measured = meter.read()
                checkpoint.check(measured)
                figures = {**asdict(progress), "rate": rate, **measured, **_of_stream(stream)}
                control.report(progress.step, figures)
                _print({"stage": STAGE, **figures})
            if not saved_middle and done(options, progress) >= 0.5:
                saved_middle = True
                checkpoint.save(asdict(progress), norm)
                with written(options.out / "middle", checkpoint.named()):
                    save_folder(model, options.out / "middle")
            elif checkpoint.due:
                checkpoint.save(asdict(progress), norm)
        checkpoint.save(asdict(progress), norm)
        with written(options.out / "model", checkpoint.named()):
            save_folder(model, options.out / "model")
        _say(log, {**asdict(progress), "ended": True, **_of_stream(stream), "different": stream.different()})
        if not control.interrupted:
            held_out.wait()
    del model, chosen
    figures = judge_greedy(options.out / "model", options.out / "held_out.jsonl", options.out / "answers.jsonl", device)
    with (options.out / "metrics.jsonl").open("a", encoding="utf-8") as log:
        _say(log, {"held_out": figures, "all_s": round(time.monotonic() - began, 1)})
    return progress


def done(options: Options, progress: Progress) -> float:
    """The share of the run that is over: by the clock, or by steps where they are bounded."""
    return max(progress.seconds / options.seconds, progress.step / options.steps if options.steps else 0.0)


def learning_rate(options: Options, progress: Progress) -> float:
    """Up with the steps, then constant, then down to zero at the end of the run."""
    left = max(1 - done(options, progress), 0.0)
    return options.rate * min(1.0, (progress.step + 1) / options.warm_up, left / options.decay)


def batch_of(rows: Rows, prompt_weight: float, device: torch.device) -> Batch:
    """What follows the last token of a row, or of a conversation, is not learned."""
    ids, flags = sent(rows.ids.astype(np.int32), device).long(), sent(rows.flags, device)
    following = flags.roll(-1, 1)
    following[:, -1] = 0
    inside = (following & FIRST) == 0
    learned = (((following & LEARNED) != 0) & inside).float()
    prompt = (((following & PROMPT) != 0) & inside).float()
    return Batch(
        ids=ids,
        labels=ids.roll(-1, 1),
        weights=torch.maximum(learned, prompt_weight * prompt),
        learned=learned,
        documents=((flags & FIRST) != 0).cumsum(1, dtype=torch.int32),
    )


def sent(part: NDArray[Any], device: torch.device) -> Tensor:
    """On the device. Neither waits for it, which is still busy with the step before, nor for other threads: PyTorch's
    own copies on the host divide among all cores, which belong to the processes that make conversations."""
    tensor = torch.from_numpy(part)
    if device.type != "cuda":
        return tensor
    pinned = torch.empty_like(tensor, pin_memory=True)
    np.copyto(pinned.numpy(), part)
    return pinned.to(device, non_blocking=True)


def weighted_losses(
    hidden: Tensor, embedding: Tensor, labels: Tensor, weights: Tensor, learned: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss; and, to be reported: sum and number of the assistant's tokens' losses, and of how many it was right."""
    logits = F.linear(hidden, embedding).float().flatten(0, 1)
    labels, weights, learned = labels.flatten(), weights.flatten(), learned.flatten()
    each = F.cross_entropy(logits, labels, reduction="none")
    right = (logits.detach().argmax(-1) == labels) * learned
    seen = each.detach()
    prompt = weights * (1 - learned)
    parts = [(seen * learned).sum(), learned.sum(), right.sum(), (seen * prompt).sum(), prompt.sum()]
    return (each * weights).sum() / weights.sum(), torch.stack(parts)


class Meter:
    """Means since the last reading; the device is waited for only then.

    `host_taking_s` and `host_sending_s` are the seconds of a step in which the host copied rows out of the pool, and
    made tensors of them; what is left of a step is launching and waiting.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._clear()

    def _clear(self) -> None:
        self._parts = torch.zeros(5, device=self._device)
        self._norm = torch.zeros((), device=self._device)
        self._steps = self._tokens = 0
        self._host = {"taking": 0.0, "sending": 0.0}
        self._since = time.monotonic()

    @contextmanager
    def host(self, part: str) -> Iterator[None]:
        """What is done inside is `part` of the host's time."""
        began = time.perf_counter()
        yield
        self._host[part] += time.perf_counter() - began

    def add(self, parts: Tensor, norm: Tensor, tokens: int) -> None:
        self._parts += parts
        self._norm += norm
        self._steps += 1
        self._tokens += tokens

    def read(self) -> dict[str, float]:
        loss, learned, right, prompt_loss, prompt = self._parts.tolist()
        norm = self._norm.item() / self._steps
        found = {
            "answer_loss": loss / max(learned, 1),
            "answer_right": right / max(learned, 1),
            "prompt_loss": prompt_loss / max(prompt, 1e-9),
            "gradient_norm": norm,
            "tokens_per_s": self._tokens / (time.monotonic() - self._since),
            **{f"host_{part}_s": seconds / self._steps for part, seconds in self._host.items()},
        }
        self._clear()
        return {name: round(value, 5) for name, value in found.items()}


def _mask(options: Options, documents: Tensor) -> Mask:
    return block_mask(documents) if documents.is_cuda and options.attention == "flex" else dense_mask(documents)


def _of_stream(stream: Stream) -> dict[str, Any]:
    return {**asdict(stream.counts), "waiting_rows": stream.waiting}


def _taken(stream: Stream, rows: int, checkpoint: Checkpoint, progress: Progress, norm: Tensor | None) -> Rows:
    """The next rows. Where no process makes any more, what was learned so far is saved first."""
    try:
        return stream.take(rows)
    except InternalError as error:
        checkpoint.save(asdict(progress), norm)
        raise InternalError(f"{error.cause}; {checkpoint.named()}", error.next_step) from error


def _resumed(checkpoint: Checkpoint, device: torch.device) -> Progress:
    known = checkpoint.load(device)
    if known is None:
        return Progress()
    progress = Progress(**known)
    return replace(progress, runs=progress.runs + 1)


def _document(options: Options) -> dict[str, Any]:
    return {name: str(value) for name, value in asdict(options).items() if name != "sources"}


def _say(log: Any, document: dict[str, Any]) -> None:
    line = {"stage": STAGE, "time": round(time.time(), 3), **document}
    log.write(json.dumps(line) + "\n")
    log.flush()
    _print(line)


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="kernel_assistant_training pretrain", description=__doc__)
    found.add_argument("--out", type=Path, required=True)
    found.add_argument("--shape", choices=SHAPES, default=Options.shape)
    found.add_argument("--attention", choices=("flex", "dense"), default=Options.attention)
    found.add_argument("--optimiser", choices=("muon", "adamw"), default=Options.optimiser)
    found.add_argument("--target", choices=TARGETS, nargs="+", default=Options.target)
    add_narrow(found)
    found.add_argument("--mistakes", default="", metavar="FAULT=SHARE,...", help="put into answers on purpose")
    found.add_argument("--steady", action="store_true", help="the same rows in the same order, whenever it is run")
    found.add_argument("--base", type=Path, metavar="FOLDER", help="begin with the weights of this model")
    found.add_argument("--resume", action="store_true", help="go on from FOLDER/checkpoint.pt, if it is there")
    for name in ("steps", "rows", "length", "processes", "keep", "warm_up", "held_out", "seed"):
        found.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Options, name))
    for name in ("seconds", "rate", "decay", "prompt_weight", "compose_share", "checkpoint_seconds"):
        found.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(Options, name))
    return found


def main(words: list[str]) -> None:
    train(Options(**vars(parser().parse_args(words))))
