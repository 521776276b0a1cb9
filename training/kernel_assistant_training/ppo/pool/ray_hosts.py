"""Evaluation hosts in a Ray cluster. Ray is an optional dependency and imported late.

Ray starts the actors and notices when an actor has ended or its node is gone. Then Ray starts the actor again, on the
same node or on another one with free resources.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from kernel_assistant.errors import HostError, KernelAssistantError, MissingError
from kernel_assistant.records.codec import decode, encode
from kernel_assistant.session.wire import error_from_wire
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.evaluation.worker import Answer, EvaluationJob
from kernel_assistant_training.options.addresses import HostAddress
from kernel_assistant_training.ppo.pool.hosts import (
    Connect,
    EvaluationHost,
    HostAnswer,
    HostReady,
    with_bandwidths,
)
from kernel_assistant_training.ppo.pool.kind import hold_to_version, own_version
from kernel_assistant_training.ppo.pool.ray_actor import HostActor

#: Seconds in which Ray has to start an actor for the first time.
START_SECONDS = 120.0
#: Seconds that closing the workers may take before their actor is ended.
CLOSE_SECONDS = 10.0
#: An actor that ends so often before its workers are ready is given up.
TRIES = 3


@dataclass(frozen=True)
class Room:
    """The resources that Ray reserves for an actor: processor `cores` and `gpus`. The actor is started on the node
    `node`, or on another node if that one is gone. `name` is its name in messages."""

    name: str
    node: str
    cores: int
    gpus: int = 0


class RayHost:
    """An `EvaluationHost` with the workers of one Ray actor. Raises UsageError if the actor has another version of this
    package, MissingError if Ray does not start the actor in time, and the errors that the actor reports."""

    hint = "look at: ray status"

    def __init__(self, ray: Any, room: Room, options: WorkerOptions) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.name, self._ray, self._options = room.name, ray, options
        reserved = ray.remote(HostActor).options(
            num_cpus=room.cores,
            num_gpus=room.gpus,
            max_restarts=-1,
            # A call to each worker, and others meanwhile.
            max_concurrency=max(options.count, 1) + 2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=room.node, soft=True),
        )
        self._actor = reserved.remote()
        try:
            self.greeting = self._started(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def begin(self, job: EvaluationJob) -> None:
        with suppress(Exception):  # whoever evaluates the job notices that the actor is gone
            self._actor.begin.remote(encode(job))

    def judge(self, number: int, job: EvaluationJob) -> Iterator[Answer]:
        try:
            for answer in self._actor.judge.remote(number, encode(job)):
                yield from decode(self._ray.get(answer), list[Answer])
        except Exception as error:  # Ray raises plain exceptions, too
            raise _lost(self.name, error) from error

    def restart(self) -> None:
        for _ in range(TRIES - 1):
            with suppress(HostError):
                self.greeting = self._started()
                return
        self.greeting = self._started()

    def close(self) -> None:
        with suppress(Exception):  # it is gone already, or is killed below
            self._ray.get(self._actor.close.remote(), timeout=CLOSE_SECONDS)
        with suppress(Exception):  # Ray itself is gone
            self._ray.kill(self._actor)

    def _started(self, seconds: float | None = None) -> HostReady:
        """Waits until Ray runs the actor, at most `seconds` if given, and then until its workers are ready. Returns
        what the host reports when it is ready."""
        hold_to_version(self.name, decode(self._asked("version", retries=-1, seconds=seconds), dict[str, str]))
        answer = decode(self._asked("start", msgspec.json.encode(self._options, enc_hook=str)), HostAnswer)
        if answer.ready is None:
            error = error_from_wire(answer.error)
            raise type(error)(f"{self.name}: {error.cause}", error.next_step, detail=error.detail)
        self._options = with_bandwidths(self._options, answer.ready)
        return answer.ready

    def _asked(self, method: str, *words: bytes, retries: int = 0, seconds: float | None = None) -> bytes:
        """Calls a method of the actor and returns the result. With `retries` -1 Ray waits until the actor runs. Raises
        HostError if the actor is lost, MissingError after `seconds` or if this package is not installed there."""
        try:
            call = getattr(self._actor, method).options(max_task_retries=retries).remote(*words)
            answer = self._ray.get(call, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError as error:
            raise MissingError(
                f"{self.name}: Ray did not start it in {seconds:.0f} s", "look at: ray status"
            ) from error
        except Exception as error:  # Ray raises plain exceptions, too
            raise _lost(self.name, error) from error
        if not isinstance(answer, bytes):
            raise HostError(f"{self.name}: it answered something else than bytes")
        return answer


def connections(host: HostAddress, target: str) -> list[Connect]:
    """Returns functions, each of which connects to one actor: one for each GPU of the cluster or, for the target CPU,
    one for each node. Raises MissingError without Ray or a cluster."""
    ray = connected(host.address)
    rooms = [room for node in ray.nodes() if node["Alive"] for room in _rooms(node, target)]
    if not rooms:
        what = "GPU" if target == "cuda" else "node"
        raise MissingError(f"the Ray cluster at {host.address} has no {what}", "look at: ray status")
    return [partial(_connect, ray, host, room) for room in rooms]


def _connect(ray: Any, host: HostAddress, room: Room, options: WorkerOptions) -> EvaluationHost:
    return RayHost(ray, room, replace(options, count=host.workers, builders=room.cores, python=host.python))


def _rooms(node: dict[str, Any], target: str) -> list[Room]:
    """Returns the resources for each actor of a node. On CUDA there is one actor for each GPU, and the actors share the
    node's processors; Ray shows an actor its own GPU only. On the CPU one actor has the whole node, because two
    measurements on one processor disturb each other."""
    cores, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
    name = f"ray {node['NodeManagerAddress']}"
    if target == "cuda":
        each = max(1, cores // max(gpus, 1))
        return [Room(f"{name} GPU actor {number}", node["NodeID"], each, 1) for number in range(gpus)]
    return [Room(f"{name} node {node['NodeID'][:6]}", node["NodeID"], cores)] if cores else []


def _lost(name: str, error: Exception) -> KernelAssistantError:
    """Returns the project's error for an exception of Ray: MissingError if this package is not installed there, else
    HostError."""
    text = str(error) or type(error).__name__
    if "No module named 'kernel_assistant" in text:
        next_step = f"install {own_version()['version']} there with the extras torch, train and train-ray"
        return MissingError(f"{name}: kernel-assistant is not installed for the Python of Ray", next_step, detail=text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return HostError(f"{name}: Ray lost it: {lines[0]}", "look at: ray status", detail=text)


def imported() -> Any:
    """Imports and returns the module `ray`, configured so that a call after its shutdown fails. By default, such a call
    would start a cluster in this process, and the process would end with the cluster. Raises MissingError if Ray is not
    installed."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingError(
            "Ray is not installed here", "pip install 'kernel-assistant[train-ray]', or another --pool"
        ) from error
    return ray


def connected(address: str) -> Any:
    """Returns the module `ray`, connected to the cluster at `address` until this process ends. Raises MissingError if
    Ray is not installed or no cluster answers."""
    ray = imported()
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        next_step = "start one: ray start --head; one that asks for a token: RAY_AUTH_MODE=token"
        raise MissingError(f"no Ray cluster at {address}: {first}", next_step) from error
    return ray
