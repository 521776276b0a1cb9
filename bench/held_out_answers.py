"""Answers of a model to prompts, the likeliest first, with the engine that fits the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.held_out_tasks import HeldOutTask, written
from kernel_assistant.config import Settings
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.connect import ModelConnection, connect, require_language
from kernel_assistant.policy.embedded import FirstReplyCache, temperature_for
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.llama.llama import SLOTS
from kernel_assistant.serving.registry import ModelKind, find
from kernel_assistant_training.lessons.lesson import fence
from kernel_assistant_training.reply import MOST_REPLY

GENERATOR = "generator"
#: Conversations that an endpoint handles at the same time.
AT_ONCE = 16
#: Tasks that are answered before they are judged, where answering takes no GPU memory.
CHUNK = 40


class Answer(Record, frozen=True, kw_only=True):
    """`tokens` is the number of all tokens of the answer, including those that continue a shared beginning."""

    text: str
    tokens: int


class Answers(Record, frozen=True, kw_only=True):
    """The answers to one task, the likeliest first."""

    key: str
    answers: tuple[Answer, ...]


#: For each task its answers, and the sampled tokens per second.
Generated = tuple[list[list[Answer]], float]


@dataclass(frozen=True)
class AnswerEngine:
    """`generate` makes so many answers for each of at most `chunk` tasks, the likeliest first."""

    generate: Callable[[Sequence[HeldOutTask], int], Generated]
    chunk: int = CHUNK


def engine(model: str, kind: str, target: str, settings: Settings) -> AnswerEngine:
    """The engine for a GGUF file, a folder, a registered name, a URL, or the word generator; `kind` is torch or
    llama.cpp. Raises UsageError and MissingError."""
    if model == GENERATOR:
        return AnswerEngine(partial(_generated, target))
    entry = find(model, settings)
    if entry.kind is ModelKind.endpoint:
        return AnswerEngine(partial(_asked, connect(settings, model, ""), AT_ONCE))
    require_language(entry)
    if kind == "llama.cpp":
        return AnswerEngine(partial(_asked, ModelConnection(None, 0, True, model, settings), SLOTS))
    where = Path(entry.where)
    return AnswerEngine(partial(_decoded, where if where.is_dir() else derived_folder(where, settings)), 1 << 20)


def _generated(target: str, tasks: Sequence[HeldOutTask], count: int) -> Generated:
    """The texts of the generator, which wrote the training data, in place of a model: the most that these data can
    teach. They are repeated if there are fewer; answers are empty if there are none."""
    answers = []
    for task in tasks:
        texts = [fence(source, target) for source in written(canonical(task.graph), target, count)] or [""]
        answers.append([Answer(text=texts[number % len(texts)], tokens=0) for number in range(count)])
    return answers, 0.0


def _asked(connection: ModelConnection, at_once: int, tasks: Sequence[HeldOutTask], count: int) -> Generated:
    """Answers of an endpoint or of llama.cpp, as `optimize` gets them."""

    def ask(task: HeldOutTask) -> list[Message]:
        own, replies = replace(connection, first=FirstReplyCache()), list[Message]()
        for number in range(count):
            request = Request(task.prompt, max_tokens=MOST_REPLY)
            request = replace(request, temperature=temperature_for(request, number))
            with closing(own.client(number)) as client:
                replies.append(client.complete(request, lambda: False))
        return replies

    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        made = list(pool.map(ask, tasks))
    rate = sum(one.usage.completion_tokens for replies in made for one in replies) / (time.monotonic() - began)
    return [[_answer(one) for one in replies] for replies in made], rate


def _answer(reply: Message) -> Answer:
    # The usage of a reply that continues a beginning is without it; not every server sends token ids.
    return Answer(text=reply.content, tokens=len(reply.token_ids or ()) or reply.usage.completion_tokens)


def _decoded(folder: Path, tasks: Sequence[HeldOutTask], count: int) -> Generated:
    """Answers of training's decoding loop. Its process ends afterwards, so that the judge has all of the GPU's
    memory."""
    from kernel_assistant_training.greedy import likeliest  # loads torch

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        made, rate = pool.submit(likeliest, folder, [task.prompt for task in tasks], count).result()
    return [[Answer(text=text, tokens=tokens) for text, tokens in each] for each in made], rate
