"""The evaluation hosts of a pool: they join, get jobs, are lost and come back."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kernel_assistant.errors import DeviceError, InternalError, KernelAssistantError, UsageError
from kernel_assistant_training.evaluation.worker import EvaluationJob
from kernel_assistant_training.ppo.pool.assignment import JobAssignment
from kernel_assistant_training.ppo.pool.events import Event, HostLost, HostOptions, WorkerLost
from kernel_assistant_training.ppo.pool.host import Connect, EvaluationHost, RestartableHost
from kernel_assistant_training.ppo.pool.kind import hold_apart, hold_together

LOOK_SECONDS = 0.5


class HostGroup:
    """Used by one thread. Raises the error of a host that cannot join, and UsageError if two hosts are of different
    kinds.

    A round without any host waits `patience_seconds` for one to come back. `tell` gets lines for the user.
    """

    def __init__(
        self,
        connections: Sequence[Connect],
        options: HostOptions,
        tell: Callable[[str], None],
        patience_seconds: float,
    ) -> None:
        self._tell, self._patience = tell, patience_seconds
        self._events: queue.SimpleQueue[tuple[EvaluationHost, Event | None]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._assignment = JobAssignment(itertools.count())
        self._hosts: list[EvaluationHost] = []
        self._restarting: set[EvaluationHost] = set()
        self._why: dict[str, str] = {}
        try:
            first = self._connected(connections[0], options)
            #: That of the first host; all others are of the same kind.
            self.greeting = first.greeting
            self._join(first)
            options = options.with_bandwidths(self.greeting.device)
            # At the same time, because each connection takes seconds.
            with ThreadPoolExecutor(len(connections)) as connecting:
                for machine in connecting.map(self._connected, connections[1:], itertools.repeat(options)):
                    self._join(machine)
        except BaseException:
            self.close()
            raise

    @property
    def machines(self) -> list[EvaluationHost]:
        return self._assignment.machines

    @property
    def workers(self) -> int:
        return sum(self._assignment.workers.values())

    def run(self, jobs: Sequence[EvaluationJob], judged: Callable[[EvaluationJob], None]) -> None:
        """Run all jobs to their end; `judged` is called with a job after each new evaluation. Raises DeviceError if no
        worker is left."""
        self._assignment.add(jobs)
        alone_since = None
        try:
            while True:
                while self._heed(judged, 0.0):
                    pass
                if self._assignment.done:
                    return
                for machine, number, job in self._assignment.handed():
                    machine.give(number, job)
                alone_since = None if self.machines else alone_since or time.monotonic()
                if alone_since and (not self._restarting or time.monotonic() - alone_since > self._patience):
                    far = isinstance(self._hosts[-1], RestartableHost)
                    next_step = "look at: ray status" if far else "see worker-00.log in the run's folder"
                    raise DeviceError(f"no worker is left to judge: {'; '.join(self._why.values())}", next_step)
                self._heed(judged, LOOK_SECONDS)
        except BaseException:
            self._assignment.abandon()
            raise

    def close(self) -> None:
        self._closing.set()
        with ThreadPoolExecutor(len(self._hosts) or 1) as closing:
            list(closing.map(lambda machine: machine.close(), self._hosts))

    def _connected(self, connect: Connect, options: HostOptions) -> EvaluationHost:
        machine = connect(options, self._hear)
        self._hosts.append(machine)
        return machine

    def _join(self, machine: EvaluationHost) -> None:
        hold_together(self._hosts[0].name, self.greeting, machine.name, machine.greeting)
        for other in self.machines:
            hold_apart(other.name, other.greeting, machine.name, machine.greeting)
        self._assignment.join(machine)

    def _hear(self, machine: EvaluationHost, event: Event | None) -> None:
        """Queue an event of a host, None when it has come back. May be called from any thread."""
        self._events.put((machine, event))

    def _heed(self, judged: Callable[[EvaluationJob], None], seconds: float) -> bool:
        """Wait up to `seconds` for an event and handle it; returns False if none came."""
        try:
            machine, event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
        except queue.Empty:
            return False
        if event is None:
            self._welcome(machine)
        elif isinstance(event, HostLost):
            self._lose(machine, event.why)
        elif isinstance(event, WorkerLost):
            self._lose_worker(machine, event)
        else:
            try:
                job = self._assignment.apply(machine, event)
            except InternalError as error:
                self._lose(machine, error.cause)
            else:
                if job is not None:
                    judged(job)
        return True

    def _welcome(self, machine: EvaluationHost) -> None:
        self._restarting.discard(machine)
        try:
            self._join(machine)
        except UsageError as error:
            self._tell(f"{error.cause}; it is not used any more")
            machine.close()
            return
        self._why.pop(machine.name, None)
        self._tell(f"{machine.name}: judges again")

    def _lose_worker(self, machine: EvaluationHost, event: WorkerLost) -> None:
        if not event.left:
            self._lose(machine, event.why)
        elif machine in self._assignment.workers:
            self._assignment.workers[machine] = event.left
            self._tell(f"{machine.name}: one worker less, {event.left} left: {event.why}")

    def _lose(self, machine: EvaluationHost, why: str) -> None:
        if machine not in self._assignment.workers:
            return
        void, moved = self._assignment.lose(machine, why)
        self._why[machine.name] = why
        self._tell(
            f"{machine.name} is lost: {why}; void: {_count(void, 'evaluation')}, "
            f"moves on: {_count(moved, 'task')}, left: {_count(self.workers, 'worker')}"
        )
        if isinstance(machine, RestartableHost):
            self._why[machine.name] = f"{machine.name}: {why}"
            self._restarting.add(machine)
            threading.Thread(target=self._restart, args=(machine,), daemon=True).start()
        else:
            threading.Thread(target=machine.close, daemon=True).start()

    def _restart(self, machine: RestartableHost) -> None:
        try:
            machine.restart()
        except KernelAssistantError as error:
            if not self._closing.is_set():
                self._tell(f"{error.cause}; it is not used any more")
                machine.close()
            self._restarting.discard(machine)
        else:
            self._hear(machine, None)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
