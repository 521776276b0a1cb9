"""Stage 0, pre-training: `python -m kernel_assistant_training pretrain --out FOLDER --seconds 480`.

Trains on pairs of a task and an answer, which was never run, until the time is over. Writes into FOLDER: `model/` (and
`middle/`, the model after half of the time), `metrics.jsonl`, `checkpoint.pt` (each minute, for `--resume`),
`answers.jsonl` (greedy answers to held-out tasks).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
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
from kernel_assistant_training.options.stages import PretrainOptions
from kernel_assistant_training.packing import FIRST, LEARNED, PROMPT, PackedRows
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.saving import written
from kernel_assistant_training.source import training_sources
from kernel_assistant_training.stages.pretrain_checkpoint import Checkpoint
from kernel_assistant_training.stream import Stream, StreamOptions
from kernel_assistant_training.synth.mistakes import FaultRates
from kernel_assistant_training.synth.narrow import Narrow
from kernel_assistant_training.tokenizer import load, vocabulary_size

SHAPES = {"shipped": SHIPPED, "small": SMALL, "tiny": TINY}
LOG_EVERY = 50
STAGE = "pretrain"


@dataclass(frozen=True)
class PretrainProgress:
    """The progress of pre-training: steps, `seconds` of training, and tokens, summed over all starts; `runs` is the
    number of restarts from a checkpoint."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    runs: int = 0


@dataclass(frozen=True)
class Batch:
    """A batch as tensors of shape (rows, length): the tokens, the next tokens (labels), the weights of the labels in
    the loss, a flag that is 1 for labels that the assistant wrote, and the number of each token's conversation within
    its row."""

    ids: Tensor
    labels: Tensor
    weights: Tensor
    learned: Tensor
    documents: Tensor


def train(options: PretrainOptions) -> PretrainProgress:
    """Runs the whole stage; returns its progress. Raises UsageError, StoreError and InternalError."""
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
    progress = _resumed(checkpoint, device) if options.resume else PretrainProgress()
    earlier = progress.seconds
    sources = options.sources or training_sources(
        options.compose_share,
        options.target,
        Narrow.of(options.only, options.level),
        FaultRates.of(options.mistakes),
        continued=options.base is not None,
        traced_share=options.traced_share,
    )
    # A resumed run draws other conversations.
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


def done(options: PretrainOptions, progress: PretrainProgress) -> float:
    """Returns the finished fraction of the run: the fraction of the time that has passed or, if steps are limited, the
    fraction of the steps if that is larger."""
    return max(progress.seconds / options.seconds, progress.step / options.steps if options.steps else 0.0)


def learning_rate(options: PretrainOptions, progress: PretrainProgress) -> float:
    """Returns the learning rate of the next step. The rate rises during the warm-up steps, then is constant, then falls
    to zero at the end of the run."""
    left = max(1 - done(options, progress), 0.0)
    return options.rate * min(1.0, (progress.step + 1) / options.warm_up, left / options.decay)


def batch_of(rows: PackedRows, prompt_weight: float, device: torch.device) -> Batch:
    """Turns packed rows into tensors. The label at the last token of a row or of a conversation has weight 0."""
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
    """Returns a tensor on the device with the contents of `part`. The copy does not wait for the device, which still
    computes the previous step. The copy to pinned memory is made with numpy: PyTorch's copies on the host would use all
    cores, and the processes that make conversations need these."""
    tensor = torch.from_numpy(part)
    if device.type != "cuda":
        return tensor
    pinned = torch.empty_like(tensor, pin_memory=True)
    np.copyto(pinned.numpy(), part)
    return pinned.to(device, non_blocking=True)


def weighted_losses(
    hidden: Tensor, embedding: Tensor, labels: Tensor, weights: Tensor, learned: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the loss, and a vector of five numbers for reports. For the assistant's tokens these are the sum of
    losses, the number of tokens, and the number of correctly predicted tokens. For prompt tokens they are the weighted
    sum of losses, and the sum of weights."""
    logits = F.linear(hidden, embedding).float().flatten(0, 1)
    labels, weights, learned = labels.flatten(), weights.flatten(), learned.flatten()
    each = F.cross_entropy(logits, labels, reduction="none")
    right = (logits.detach().argmax(-1) == labels) * learned
    seen = each.detach()
    prompt = weights * (1 - learned)
    parts = [(seen * learned).sum(), learned.sum(), right.sum(), (seen * prompt).sum(), prompt.sum()]
    return (each * weights).sum() / weights.sum(), torch.stack(parts)


class Meter:
    """Collects losses and times of steps; `read` returns their means since the last `read`. Only `read` waits for the
    device.

    `host_taking_s` and `host_sending_s` are the seconds per step in which the host copied rows out of the pool and made
    tensors of them; in the rest of a step the host launches kernels and waits.
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
        """A context manager that adds the time of its block to the host's time for `part`."""
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
        figures = {
            "answer_loss": loss / max(learned, 1),
            "answer_right": right / max(learned, 1),
            "prompt_loss": prompt_loss / max(prompt, 1e-9),
            "gradient_norm": norm,
            "tokens_per_s": self._tokens / (time.monotonic() - self._since),
            **{f"host_{part}_s": seconds / self._steps for part, seconds in self._host.items()},
        }
        self._clear()
        return {name: round(value, 5) for name, value in figures.items()}


def _mask(options: PretrainOptions, documents: Tensor) -> Mask:
    return block_mask(documents) if documents.is_cuda and options.attention == "flex" else dense_mask(documents)


def _of_stream(stream: Stream) -> dict[str, Any]:
    return {**asdict(stream.counts), "waiting_rows": stream.waiting}


def _taken(
    stream: Stream, rows: int, checkpoint: Checkpoint, progress: PretrainProgress, norm: Tensor | None
) -> PackedRows:
    """Returns the next `rows` rows. If the processes that make rows have ended, saves a checkpoint and raises
    InternalError."""
    try:
        return stream.take(rows)
    except InternalError as error:
        checkpoint.save(asdict(progress), norm)
        raise InternalError(f"{error.cause}; {checkpoint.named()}", error.next_step) from error


def _resumed(checkpoint: Checkpoint, device: torch.device) -> PretrainProgress:
    known = checkpoint.load(device)
    if known is None:
        return PretrainProgress()
    progress = PretrainProgress(**known)
    return replace(progress, runs=progress.runs + 1)


def _document(options: PretrainOptions) -> dict[str, Any]:
    return {name: str(value) for name, value in asdict(options).items() if name != "sources"}


def _say(log: Any, document: dict[str, Any]) -> None:
    line = {"stage": STAGE, "time": round(time.time(), 3), **document}
    log.write(json.dumps(line) + "\n")
    log.flush()
    _print(line)


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(options: PretrainOptions) -> None:
    train(options)
