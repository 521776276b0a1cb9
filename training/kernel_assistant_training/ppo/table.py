"""Many conversations in rounds: all that want a reply get it together, then all candidates are judged together.

Each conversation is a thread that waits here. So the agent's own loop plays unchanged, the decoder has full batches,
and generating and judging never overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kernel_assistant.records import Evaluation
from kernel_assistant_training.decode import Asked as Prompt
from kernel_assistant_training.decode import Reply
from kernel_assistant_training.ppo.pool import Asked

T = TypeVar("T")
Wanted = TypeVar("Wanted")
Found = TypeVar("Found")
Answer = Callable[[Sequence[Prompt]], list[Reply]]
Judge = Callable[[Sequence[Asked]], list[Evaluation | None]]


@dataclass
class Spent:
    """Seconds in each kind of round, rounds, and tokens that were generated."""

    generating: float = 0.0
    judging: float = 0.0
    rounds: int = 0
    tokens: int = 0


class Table(Generic[T]):
    """For one call of `play`."""

    def __init__(self, answer: Answer, judge: Judge) -> None:
        self._answer, self._judge = answer, judge
        self._changed = threading.Condition()
        self._prompts: list[tuple[int, Prompt, Future[Reply]]] = []
        self._candidates: list[tuple[int, Asked, Future[Evaluation | None]]] = []
        self._live = 0
        self.spent = Spent()

    def play(self, conversations: Sequence[Callable[[Seat], T]], ended: Callable[[int, T], None]) -> None:
        """All of them to their ends; `ended` is told of each (its number, what it returned) in the caller's thread.

        What a conversation raises is raised here, after the others were ended.
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

    def evaluation(self, number: int, asked: Asked) -> Evaluation | None:
        return self._wait(self._candidates, number, asked)

    def _wait(self, where: list[tuple[int, Wanted, Future[Found]]], number: int, wanted: Wanted) -> Found:
        future: Future[Found] = Future()
        with self._changed:
            where.append((number, wanted, future))
            self._changed.notify_all()
        return future.result()

    def _converse(self, number: int, one: Callable[[Seat], T], done: list[tuple[int, Future[T]]]) -> None:
        future: Future[T] = Future()
        try:
            future.set_result(one(Seat(self, number)))
        except BaseException as error:  # noqa: BLE001 - raised again by `play`
            future.set_exception(error)
        with self._changed:
            self._live -= 1
            done.append((number, future))
            self._changed.notify_all()

    def _all_wait(self) -> bool:
        return len(self._prompts) + len(self._candidates) == self._live

    def _round(self) -> None:
        """Replies go first, so that candidates are judged when nobody has anything to say."""
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
        """Whoever waits, and whoever comes to wait, ends too."""
        with self._changed:
            while self._live:
                waiting: list[Future[Any]] = [one[2] for one in self._prompts] + [one[2] for one in self._candidates]
                for future in waiting:
                    future.set_exception(error)
                self._prompts[:], self._candidates[:] = [], []
                self._changed.wait(0.05)


def _served(
    waiting: list[tuple[int, Wanted, Future[Found]]], serve: Callable[[Sequence[Wanted]], list[Found]]
) -> list[Found]:
    """All that wait get what they want, in the order of their seats; they go on waiting if this fails."""
    asked = sorted(waiting, key=lambda one: one[0])
    found = serve([wanted for _, wanted, _ in asked])
    # Whoever has its answer may ask for the next thing at once.
    waiting.clear()
    for (_, _, future), answer in zip(asked, found, strict=True):
        future.set_result(answer)
    return found


class Seat:
    """A conversation's place."""

    def __init__(self, table: Table[Any], number: int) -> None:
        self._table, self._number = table, number

    def reply(self, prompt: Prompt) -> Reply:
        """Waits for the others."""
        return self._table.reply(self._number, prompt)

    def evaluation(self, asked: Asked) -> Evaluation | None:
        """Waits for the others. None where the judge was lost at it."""
        return self._table.evaluation(self._number, asked)
