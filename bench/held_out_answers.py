"""Answers of a model to prompts, the likeliest first, with the engine that fits the model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from bench.held_out_tasks import Task, written
from kernel_assistant.config import Settings
from kernel_assistant.errors import InternalError
from kernel_assistant.policy.chat import ChatClient, ChatSettings
from kernel_assistant.policy.client import Request
from kernel_assistant.policy.connect import connect
from kernel_assistant.policy.embedded import FIRST_TEMPERATURE, LATER_TEMPERATURE, FirstReplyCache
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.endpoint import local_engine
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.llama.llama import SLOTS
from kernel_assistant.serving.registry import ModelKind, find
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.lessons.lesson import fence
from kernel_assistant_training.reply import MOST_REPLY

TEACHER = "teacher"
GENERATE = Path(__file__).with_name("held_out_generate.py")
#: Conversations that an endpoint handles at the same time.
AT_ONCE = 16


class Answer(Record, frozen=True, kw_only=True):
    """`tokens` is the number of all tokens of the answer, including those that continue a shared beginning."""

    text: str
    tokens: int


class Answers(Record, frozen=True, kw_only=True):
    """The answers to one task, the likeliest first."""

    key: str
    answers: tuple[Answer, ...]


class Engine(Protocol):
    """`chunk` is how many tasks it takes at once, `rate` the tokens per second of the last call."""

    chunk: int
    rate: float

    def answer(self, tasks: Sequence[Task], count: int) -> list[Answers]: ...


def engine(model: str, kind: str, target: str, settings: Settings) -> Engine:
    """The engine for a GGUF file, a folder, a registered name, a URL, or the word teacher; `kind` is torch or
    llama.cpp.

    Raises UsageError and MissingError.
    """
    if model == TEACHER:
        return _Teacher(target)
    entry = find(model, settings)
    if entry.kind is ModelKind.endpoint:
        return _Endpoint(settings, model)
    if kind == "llama.cpp":
        return _Embedded(EmbeddedModel(local_engine(entry, settings)))
    where = Path(entry.where)
    return _Torch(where if where.is_dir() else derived_folder(where, settings))


class _Teacher:
    """The program that wrote the training data, in place of a model: the most that these data can teach."""

    chunk = 64

    def __init__(self, target: str) -> None:
        self._target, self.rate = target, 0.0

    def answer(self, tasks: Sequence[Task], count: int) -> list[Answers]:
        return [Answers(key=task.key, answers=tuple(self._written(task, count))) for task in tasks]

    def _written(self, task: Task, count: int) -> Iterator[Answer]:
        """`count` answers: the teacher's programs, repeated if there are fewer; empty answers if it has none."""
        programs = written(canonical(task.graph), self._target, count)
        for number in range(count):
            text = fence(programs[number % len(programs)], self._target) if programs else ""
            yield Answer(text=text, tokens=0)


class _Embedded:
    """llama.cpp, as `optimize` uses it, with as many tasks at once as it has slots."""

    chunk = 40

    def __init__(self, model: EmbeddedModel) -> None:
        self._model, self.rate = model, 0.0

    def answer(self, tasks: Sequence[Task], count: int) -> list[Answers]:
        began = time.monotonic()
        with ThreadPoolExecutor(SLOTS) as pool:
            results = list(pool.map(lambda task: self._one(task, count), tasks))
        self.rate = sum(tokens for _, tokens in results) / (time.monotonic() - began)
        return [answers for answers, _ in results]

    def _one(self, task: Task, count: int) -> tuple[Answers, int]:
        """The answers, and the number of sampled tokens, without reused beginnings."""
        first, sampled, answers = FirstReplyCache(), 0, list[Answer]()
        for number in range(count):
            later = Sampling(max_tokens=MOST_REPLY, temperature=LATER_TEMPERATURE, seed=number)
            reply = first.next(self._model, Request(task.prompt), later, lambda: False)
            sampled += reply.usage.completion_tokens
            answers.append(Answer(text=reply.content, tokens=len(reply.token_ids or ())))
        return Answers(key=task.key, answers=tuple(answers)), sampled


class _Endpoint:
    """An OpenAI-compatible server, with several conversations at once: the likeliest answer, then sampled ones."""

    chunk = 32

    def __init__(self, settings: Settings, word: str) -> None:
        connection = connect(settings, word, "")
        assert connection.endpoint is not None
        self._connection, self._endpoint, self.rate = connection, connection.endpoint, 0.0

    def answer(self, tasks: Sequence[Task], count: int) -> list[Answers]:
        began = time.monotonic()
        wanted = [(task, number) for task in tasks for number in range(count)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = iter(list(pool.map(lambda one: self._one(*one), wanted)))
        answers = [Answers(key=task.key, answers=tuple(next(made) for _ in range(count))) for task in tasks]
        self.rate = _tokens(answers) / (time.monotonic() - began)
        return answers

    def _one(self, task: Task, number: int) -> Answer:
        client = ChatClient(
            ChatSettings(
                url=self._endpoint.url,
                model=self._endpoint.model,
                key=self._endpoint.key,
                context_tokens=self._connection.context_tokens,
                temperature=LATER_TEMPERATURE if number else FIRST_TEMPERATURE,
                seed=number,
            )
        )
        try:
            reply = client.complete(Request(task.prompt, max_tokens=MOST_REPLY), lambda: False)
            return Answer(text=reply.content, tokens=reply.usage.completion_tokens)
        finally:
            client.close()


class _Torch:
    """The project's own decoding loop (training/decode.py) in a process of its own."""

    chunk = 1 << 20

    def __init__(self, folder: Path) -> None:
        self._folder, self.rate = folder, 0.0

    def answer(self, tasks: Sequence[Task], count: int) -> list[Answers]:
        asked = {
            "folder": str(self._folder),
            "prompts": [msgspec.to_builtins(task.prompt) for task in tasks],
            "count": count,
            "tokens": MOST_REPLY,
        }
        done = subprocess.run(
            [sys.executable, str(GENERATE)], input=json.dumps(asked), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise InternalError("the model could not be run", "see the details", detail=done.stderr[-4000:])
        reply = json.loads(done.stdout.splitlines()[-1])
        self.rate = reply["tokens_per_second"]
        made = [tuple(Answer(text=text, tokens=tokens) for text, tokens in each) for each in reply["answers"]]
        return [Answers(key=task.key, answers=each) for task, each in zip(tasks, made, strict=True)]


def kept(file: Path) -> dict[str, Answers]:
    """The answers in the file, by key."""
    return {one.key: one for one in read_lines(file, Answers)} if file.is_file() else {}


def _tokens(answers: Sequence[Answers]) -> int:
    return sum(answer.tokens for one in answers for answer in one.answers)
