"""A pool's machines in a Ray cluster: actors. Ray is imported where it is used: it is an extra."""

from __future__ import annotations

import io
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_assistant.errors import EXIT_INTERNAL, HostError, KernelAssistantError, MissingError
from kernel_assistant.worker.frames import read_frame, write_frame
from kernel_assistant_training.ppo.pool_events import StationOptions
from kernel_assistant_training.ppo.pool_machine import Far, Hear, Machine, Member, Message
from kernel_assistant_training.ppo.pool_outpost import Outpost

#: Calls of an actor at once: one waits for what it says, others bring jobs.
CONCURRENCY = 4
#: The longest that a call waits for something to be said.
LISTEN_SECONDS = 1.0
#: Between closing an outpost and ending its process.
CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class Share:
    """Of a cluster: what Ray is asked to reserve for an actor, and how many workers and builders that is."""

    name: str
    reserved: dict[str, Any]
    workers: int
    builders: int


class OutpostActor:
    """The class behind the actors. Messages travel as frames, so that nothing is unpickled but bytes."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._outpost = Outpost(lambda message: self._said.put(_packed(message)), gone=_exit)
        self._turn = threading.Lock()

    def take(self, message: bytes) -> None:
        with self._turn:
            self._outpost.take(_unpacked(message))

    def said(self) -> list[bytes]:
        """All since the last call; waits a moment for the first."""
        found: list[bytes] = []
        try:
            found.append(self._said.get(timeout=LISTEN_SECONDS))
            while True:
                found.append(self._said.get_nowait())
        except queue.Empty:
            return found

    def close(self) -> None:
        self._outpost.close()


def _packed(message: Message) -> bytes:
    frame = io.BytesIO()
    write_frame(frame, message)
    return frame.getvalue()


def _unpacked(frame: bytes) -> Message:
    found = read_frame(io.BytesIO(frame))
    assert found is not None
    return found[0]


def _exit() -> None:
    """Of the actor's process, from any thread."""
    os._exit(EXIT_INTERNAL)


class ActorWire:
    """See `Wire`: calls of an actor."""

    def __init__(self, ray: Any, actor: Any, silent_seconds: float) -> None:
        self._ray, self._actor, self._silent = ray, actor, silent_seconds
        self._inbox: deque[Message] = deque()

    def send(self, message: Message) -> None:
        # A start takes as long as it takes, and beats meanwhile.
        self._asked("take", None if "start" in message else self._silent, _packed(message))

    def receive(self, seconds: float) -> Message:
        waited = 0.0
        while not self._inbox:
            self._inbox.extend(map(_unpacked, self._asked("said", seconds)))
            waited += LISTEN_SECONDS
            if not self._inbox and waited >= seconds:
                raise HostError(f"it said nothing for {seconds:.0f} s")
        return self._inbox.popleft()

    def close(self) -> None:
        try:
            self._asked("close", CLOSE_SECONDS)
        except KernelAssistantError:
            pass  # it is gone already, or is ended now
        with suppress(self._ray.exceptions.RayError):  # Ray may have been shut down meanwhile
            self._ray.kill(self._actor)

    def _asked(self, method: str, seconds: float | None, *words: bytes) -> Any:
        """What a method of the actor returns; without `seconds` it is not waited for."""
        try:
            call = getattr(self._actor, method).remote(*words)
            return None if seconds is None else self._ray.get(call, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError as error:
            raise HostError(f"it did not answer for {seconds:.0f} s") from error
        except Exception as error:  # Ray raises bare ones where a call cannot be submitted any more
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise HostError(f"Ray lost it: {lines[0] if lines else type(error).__name__}") from error


def members(address: str, workers: int, target: str, silent_seconds: float) -> list[Member]:
    """One for each actor that the cluster has room for, `workers` at most (0: all). Raises MissingError where there is
    no Ray or no cluster."""
    ray = _connected(address)
    shares = _by_gpu(ray.nodes(), workers) if target == "cuda" else _by_node(ray.nodes(), workers)
    if not shares:
        raise MissingError(
            f"the Ray cluster at {address} has no {'GPU' if target == 'cuda' else 'node'}", "look at: ray status"
        )

    def connect(share: Share) -> Callable[[StationOptions, Hear], Machine]:
        def connected(options: StationOptions, hear: Hear) -> Machine:
            options = msgspec.structs.replace(options, workers=share.workers, builders=share.builders, python="")
            actor = (
                ray.remote(OutpostActor).options(max_concurrency=CONCURRENCY, max_restarts=0, **share.reserved).remote()
            )
            return Far(share.name, ActorWire(ray, actor, silent_seconds), options, hear, silent_seconds)

        return connected

    return [Member(share.name, connect(share)) for share in shares]


def _by_gpu(nodes: list[dict[str, Any]], most: int) -> list[Share]:
    """One a GPU; Ray shows an actor its GPU alone, and gives it its part of the node's processors."""
    found = []
    for node in _alive(nodes):
        gpus = int(node["Resources"].get("GPU", 0))
        cores = max(1, int(node["Resources"].get("CPU", 1)) // max(gpus, 1))
        for number in range(gpus):
            reserved = {"num_gpus": 1, "num_cpus": cores, **_on(node)}
            found.append(Share(f"ray {node['NodeManagerAddress']} GPU actor {number}", reserved, 1, cores))
    return found[: most or None]


def _by_node(nodes: list[dict[str, Any]], most: int) -> list[Share]:
    """One a node, which it takes whole: two that time something on one processor disturb each other."""
    found = []
    for node in _alive(nodes):
        cores = int(node["Resources"].get("CPU", 0))
        if cores:
            name = f"ray {node['NodeManagerAddress']} node {node['NodeID'][:6]}"
            found.append(Share(name, {"num_cpus": cores, **_on(node)}, 1, cores))
    return found[: most or None]


def _alive(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in nodes if node["Alive"]]


def _on(node: dict[str, Any]) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)}


def imported() -> Any:
    """Ray. A call that comes after its end fails then, where Ray by itself would start a cluster in this process, and
    end the process with that cluster. Raises MissingError."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "Ray is not installed here", "pip install 'kernel-assistant[train-ray]', or another --pool"
        ) from error
    return ray


def _connected(address: str) -> Any:
    ray = imported()
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        next_step = "start one: ray start --head; one that asks for a token: RAY_AUTH_MODE=token"
        raise MissingError(f"no Ray cluster at {address}: {first}", next_step) from error
    return ray
