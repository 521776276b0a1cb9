"""Runs many conversations in rounds: all conversations that wait for a reply get their replies together, then all
candidates are evaluated together.

Each conversation is a thread that waits for the scheduler. So the agent's own loop runs unchanged, the decoder has full
batches, and generation and evaluation never overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kernel_assistant.records import Evaluation
from kernel_assistant_training.decode import GenerationRequest as Prompt
from kernel_assistant_training.decode import Reply
from kernel_assistant_training.ppo.pool.pool import EvaluationRequest

T = TypeVar("T")
Request = TypeVar("Request")
Response = TypeVar("Response")
Answer = Callable[[Sequence[Prompt]], list[Reply]]
Judge = Callable[[Sequence[EvaluationRequest]], list[Evaluation | None]]


@dataclass
class RoundTimes:
    """The seconds spent on generating replies and on evaluating candidates, the number of rounds, and the number of
    generated tokens."""

    generating: float = 0.0
    judging: float = 0.0
    rounds: int = 0
    tokens: int = 0


class RoundScheduler(Generic[T]):
    """Runs conversations in rounds: `answer` generates all replies that conversations wait for, then `judge` evaluates
    all their candidates. Each scheduler is used for one call of `play`."""

    def __init__(self, answer: Answer, judge: Judge) -> None:
        self._answer, self._judge = answer, judge
        self._changed = threading.Condition()
        self._prompts: list[tuple[int, Prompt, Future[Reply]]] = []
        self._candidates: list[tuple[int, EvaluationRequest, Future[Evaluation | None]]] = []
        self._live = 0
        self.spent = RoundTimes()

    def play(self, conversations: Sequence[Callable[[ConversationSlot], T]], ended: Callable[[int, T], None]) -> None:
        """Runs all conversations, each in a thread, to their end. Calls `ended` with the number and the result of each
        conversation, in the caller's thread.

        If a conversation raises an exception, the other conversations are ended and the exception is raised here.
        """
        done: list[tuple[int, Future[T]]] = []
        self._live = len(conversations)
        threads = [
            threading.Thread(target=self._converse, args=(number, one, done), daemon=True)
            for number, one in enumerate(conversations)
        ]
        for thread in threads:
            thread.start()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._all_wait() or bool(done))
                    finished, done[:] = list(done), []
                    waiting = self._all_wait() and self._live
                for number, future in finished:
                    ended(number, future.result())
                if not finished and not waiting:
                    return
                if waiting:
                    self._round()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            for thread in threads:
                thread.join()

    def reply(self, number: int, prompt: Prompt) -> Reply:
        return self._wait(self._prompts, number, prompt)

    def evaluation(self, number: int, asked: EvaluationRequest) -> Evaluation | None:
        return self._wait(self._candidates, number, asked)

    def _wait(self, where: list[tuple[int, Request, Future[Response]]], number: int, wanted: Request) -> Response:
        future: Future[Response] = Future()
        with self._changed:
            where.append((number, wanted, future))
            self._changed.notify_all()
        return future.result()

    def _converse(self, number: int, one: Callable[[ConversationSlot], T], done: list[tuple[int, Future[T]]]) -> None:
        future: Future[T] = Future()
        try:
            future.set_result(one(ConversationSlot(self, number)))
        except BaseException as error:  # noqa: BLE001 - raised again by `play`
            future.set_exception(error)
        with self._changed:
            self._live -= 1
            done.append((number, future))
            self._changed.notify_all()

    def _all_wait(self) -> bool:
        return len(self._prompts) + len(self._candidates) == self._live

    def _round(self) -> None:
        """Runs one round: generates all replies that conversations wait for, or, if there are none, evaluates all
        candidates."""
        began = time.monotonic()
        self.spent.rounds += 1
        if self._prompts:
            replies = _served(self._prompts, self._answer)
            self.spent.tokens += sum(len(reply.ids) for reply in replies)
            self.spent.generating += time.monotonic() - began
        else:
            _served(self._candidates, self._judge)
            self.spent.judging += time.monotonic() - began

    def _fail(self, error: BaseException) -> None:
        """Raises the error in all conversations, in each as soon as it waits for a reply or an evaluation. Returns when
        all have ended."""
        with self._changed:
            while self._live:
                waiting: list[Future[Any]] = [one[2] for one in self._prompts] + [one[2] for one in self._candidates]
                for future in waiting:
                    future.set_exception(error)
                self._prompts[:], self._candidates[:] = [], []
                self._changed.wait(0.05)


def _served(
    waiting: list[tuple[int, Request, Future[Response]]], serve: Callable[[Sequence[Request]], list[Response]]
) -> list[Response]:
    """Answers all waiting requests with one call of `serve`, in the order of their conversations, empties `waiting`,
    and returns the answers. If `serve` raises an error, the requests keep waiting."""
    asked = sorted(waiting, key=lambda one: one[0])
    answers = serve([wanted for _, wanted, _ in asked])
    # A conversation may send its next request as soon as it has its answer.
    waiting.clear()
    for (_, _, future), answer in zip(asked, answers, strict=True):
        future.set_result(answer)
    return answers


class ConversationSlot:
    """The object through which one conversation requests replies and evaluations from the scheduler."""

    def __init__(self, scheduler: RoundScheduler[Any], number: int) -> None:
        self._scheduler, self._number = scheduler, number

    def reply(self, prompt: Prompt) -> Reply:
        """Returns the model's reply to `prompt`. Blocks until all other conversations wait for the scheduler, too."""
        return self._scheduler.reply(self._number, prompt)

    def evaluation(self, asked: EvaluationRequest) -> Evaluation | None:
        """Returns the evaluation of a candidate; None if the judge was lost or other work disturbed every measurement.
        Blocks until all other conversations wait for the scheduler, too."""
        return self._scheduler.evaluation(self._number, asked)
