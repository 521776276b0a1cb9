"""The machines of a pool: they join, are handed jobs, are lost and come back."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from kernel_assistant.errors import DeviceError, InternalError, KernelAssistantError, UsageError
from kernel_assistant_training.ppo.pool_events import Event, Greeting, Lost, StationOptions, WorkerLost
from kernel_assistant_training.ppo.pool_kind import hold_apart, hold_together
from kernel_assistant_training.ppo.pool_machine import Machine, Member
from kernel_assistant_training.ppo.pool_shares import Shares
from kernel_assistant_training.ppo.pool_worker import Job

#: Until a lost machine is tried again; the last one goes on.
AGAIN_SECONDS = (1.0, 5.0, 15.0, 60.0)
LOOK_SECONDS = 0.5


class Fleet:
    """For one thread. Raises what a machine raises that cannot join, and UsageError where two are not of one kind.

    A round without any machine waits `patience_seconds` for one to come back. `tell` gets lines for people.
    """

    def __init__(
        self,
        members: Sequence[Member],
        options: StationOptions,
        tell: Callable[[str], None],
        patience_seconds: float,
    ) -> None:
        self._tell, self._patience = tell, patience_seconds
        self._events: queue.SimpleQueue[tuple[Machine, Event]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._shares = Shares(itertools.count())
        self._members = {member.name: member for member in members}
        self._trying: set[str] = set()
        self._why: dict[str, str] = {}
        self._options = options
        try:
            self._first = members[0].connect(options, self._hear)
            self._shares.join(self._first)
            device = self._first.greeting.device
            self._options = msgspec.structs.replace(
                options, copy_bandwidth=device.copy_bandwidth, read_bandwidth=device.read_bandwidth
            )
            self._join_all(members[1:])
        except BaseException:
            self.close()
            raise

    @property
    def greeting(self) -> Greeting:
        """Of the first machine, which all others are like."""
        return self._first.greeting

    @property
    def machines(self) -> list[Machine]:
        return self._shares.machines

    @property
    def workers(self) -> int:
        return sum(self._shares.workers.values())

    def run(self, jobs: Sequence[Job], judged: Callable[[Job], None]) -> None:
        """All of them to their ends; `judged` is told of a job's newest answer. Raises DeviceError where no worker is
        left."""
        self._shares.add(jobs)
        alone_since = None
        try:
            while True:
                while self._heed(judged, 0.0):
                    pass
                if self._shares.done:
                    return
                for machine, number, job in self._shares.handed():
                    machine.give(number, job)
                alone_since = None if self._shares.machines else alone_since or time.monotonic()
                if alone_since and (not self._trying or time.monotonic() - alone_since > self._patience):
                    why = "; ".join(self._why.values())
                    raise DeviceError(f"no worker is left to judge: {why}", self._next_step())
                self._heed(judged, LOOK_SECONDS)
        except BaseException:
            self._shares.abandon()
            raise

    def close(self) -> None:
        self._closing.set()
        machines = self._shares.machines
        with ThreadPoolExecutor(max(1, len(machines))) as closing:
            list(closing.map(_close, machines))

    def _join_all(self, members: Sequence[Member]) -> None:
        """At once: each takes seconds."""
        if not members:
            return
        with ThreadPoolExecutor(len(members)) as connecting:
            tries = [connecting.submit(self._connected, member) for member in members]
        ready = [one.result() for one in tries if one.exception() is None]
        try:
            for one in tries:
                self._join(one.result())
        finally:
            for machine in ready:
                if machine not in self._shares.workers:
                    machine.close()

    def _join(self, machine: Machine) -> None:
        for other in self._shares.machines:
            hold_apart(other.name, other.greeting, machine.name, machine.greeting)
        self._shares.join(machine)

    def _connected(self, member: Member) -> Machine:
        machine = member.connect(self._options, self._hear)
        try:
            hold_together(self._first.name, self._first.greeting, member.name, machine.greeting)
        except UsageError:
            machine.close()
            raise
        return machine

    def _next_step(self) -> str:
        far = any(member.far for member in self._members.values())
        return "name other machines, or mend these: --pool" if far else "see worker-00.log in the run's folder"

    def _hear(self, machine: Machine, event: Event) -> None:
        """From any thread."""
        self._events.put((machine, event))

    def _heed(self, judged: Callable[[Job], None], seconds: float) -> bool:
        """Waits for the next event; False where none came."""
        try:
            machine, event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
        except queue.Empty:
            return False
        if isinstance(event, Greeting):
            self._welcome(machine)
        elif isinstance(event, Lost):
            self._lose(machine, event.why)
        elif isinstance(event, WorkerLost):
            self._lose_worker(machine, event)
        else:
            try:
                job = self._shares.apply(machine, event)
            except InternalError as error:
                self._lose(machine, error.cause)
            else:
                if job is not None:
                    judged(job)
        return True

    def _welcome(self, machine: Machine) -> None:
        self._trying.discard(machine.name)
        try:
            self._join(machine)
        except UsageError as error:
            self._tell(error.cause)
            machine.close()
            return
        self._why.pop(machine.name, None)
        self._tell(f"{machine.name}: judges again")

    def _lose_worker(self, machine: Machine, event: WorkerLost) -> None:
        if not event.left:
            self._lose(machine, event.why)
        elif machine in self._shares.workers:
            self._shares.workers[machine] = event.left
            self._tell(f"{machine.name}: one worker less, {event.left} left: {event.why}")

    def _lose(self, machine: Machine, why: str) -> None:
        if machine not in self._shares.workers:
            return
        damage = self._shares.lose(machine, why)
        member = self._members[machine.name]
        self._why[machine.name] = f"{machine.name}: {why}" if member.far else why
        self._tell(
            f"{machine.name} is lost: {why}; void: {_count(damage.void, 'evaluation')}, "
            f"moves on: {_count(damage.moved, 'task')}, left: {_count(self.workers, 'worker')}"
        )
        threading.Thread(target=_close, args=(machine,), daemon=True).start()
        if member.far:
            self._trying.add(member.name)
            threading.Thread(target=self._try_again, args=(member,), daemon=True).start()

    def _try_again(self, member: Member) -> None:
        """Until it is there, of another kind or version, or the pool ends."""
        for seconds in itertools.chain(AGAIN_SECONDS, itertools.repeat(AGAIN_SECONDS[-1])):
            if self._closing.wait(seconds):
                return
            try:
                machine = self._connected(member)
            except UsageError as error:
                self._tell(f"{error.cause}; it is not tried again")
                self._trying.discard(member.name)
                return
            except KernelAssistantError:
                continue
            if self._closing.is_set():
                machine.close()
            else:
                self._events.put((machine, machine.greeting))
            return


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _close(machine: Machine) -> None:
    machine.close()
