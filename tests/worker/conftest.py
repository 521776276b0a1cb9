"""Free wins of small modules, which the tests on the CPU and on a GPU measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kernel_assistant.worker.free_wins.free_wins import FreeWins
from tests.worker.opened import UNKNOWN, open_text, profiling


@pytest.fixture
def measurer(tmp_path: Path) -> Iterator[Callable[..., FreeWins]]:
    """A function: text, target, numerics → the free wins of its class."""
    with ExitStack() as held:

        def make(text: str, target: str = "cpu", numerics: str = "kernelbench") -> FreeWins:
            task = open_text(tmp_path, text, target=target, numerics=numerics)
            profiler = held.enter_context(profiling(task, UNKNOWN, target))
            return held.enter_context(closing(FreeWins(task, profiler, numerics)))

        yield make
