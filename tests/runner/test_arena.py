"""Scratch memory that plans on one stream of one thread share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from kernel_assistant.worker.runner.pytorch.arena import MOST_STREAMS, _arenas, arena

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    _arenas.of.clear()
    yield
    _arenas.of.clear()


def test_the_same_memory_until_more_is_needed() -> None:
    first = arena(CPU, 1, 100)
    assert arena(CPU, 1, 60) is first
    assert arena(CPU, 2, 60) is not first
    larger = arena(CPU, 1, 200)
    assert (larger is first, larger.numel()) == (False, 200)
    assert arena(CPU, 1, 100) is larger


def test_of_many_streams_the_first_goes() -> None:
    kept = [arena(CPU, stream, 10) for stream in range(MOST_STREAMS + 1)]
    assert len(_arenas.of) == MOST_STREAMS
    assert all(arena(CPU, stream, 10) is kept[stream] for stream in range(1, MOST_STREAMS + 1))
    assert arena(CPU, 0, 10) is not kept[0]


def test_a_thread_has_memory_of_its_own() -> None:
    mine, theirs = arena(CPU, 1, 10), list[torch.Tensor]()
    thread = threading.Thread(target=lambda: theirs.append(arena(CPU, 1, 10)))
    thread.start()
    thread.join()
    assert theirs[0] is not mine
    assert arena(CPU, 1, 10) is mine
