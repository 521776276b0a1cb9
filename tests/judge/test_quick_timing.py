"""The blocks of the quick tier on a GPU, driven here by candidates in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.tiers.quick_timing import (
    BLOCKS,
    FEWEST_CALLS,
    GRAPHS,
    MOST_TIMES,
    QuickTimes,
    QuickTiming,
)
from kernel_assistant.worker.verifying.verification import IncorrectOutput
from tests.worker.opened import module_text, open_text, profiling

DOUBLED = module_text("return 2 * x", "torch.rand(64, 32)")
CALL_SECONDS = 5e-5
BLOCK_SECONDS = 1e-3
Sets = Any


class InProcess:
    """A candidate that `compute` stands for. Each call takes a twentieth of a block, or `seconds`; half in a graph."""

    name = "candidate"
    late = False

    def __init__(
        self, sets: Sets, compute: Callable[[Sets, int], None], captures: bool = True, seconds: float = CALL_SECONDS
    ) -> None:
        self._sets, self._compute, self._captures, self._seconds = sets, compute, captures, seconds
        #: The calls of each run.
        self.counts: list[int] = []
        #: How many times as long the next runs take.
        self.slower: list[float] = []
        self._graphs: dict[int, tuple[int, int]] = {}

    def run(self, first: int, count: int) -> float:
        for index in self._sets.around(first, count):
            self._compute(self._sets, index)
        self.counts.append(count)
        return self._seconds * count * (self.slower.pop(0) if self.slower else 1.0)

    def both(self, first: int, count: int) -> tuple[float, float]:
        return self.run(first, count), 0.0

    def capture(self, number: int, first: int, count: int) -> bool:
        self._graphs[number] = first, count
        return self._captures

    def replay(self, number: int) -> float:
        return self.run(*self._graphs[number]) / 2

    def wake(self) -> bool:
        return True


def honest(sets: Sets, index: int) -> None:
    sets.outputs[index][0].copy_(2 * sets.inputs[index][0])


class Remembering:
    """Computes each set's outputs once, and copies them later."""

    def __init__(self) -> None:
        self._known: dict[int, torch.Tensor] = {}

    def __call__(self, sets: Sets, index: int) -> None:
        known = self._known.setdefault(index, 2 * sets.inputs[index][0])
        sets.outputs[index][0].copy_(known)


class LeavingOut:
    """Computes two of three calls."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, sets: Sets, index: int) -> None:
        self._calls += 1
        if self._calls % 3:
            honest(sets, index)


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    with profiling(open_text(tmp_path, DOUBLED)) as made:
        yield made


def _timing(profiler: Profiler, host: float, expected: float = CALL_SECONDS, together: bool = True) -> QuickTiming:
    parts = profiler.sets, profiler.values, profiler.outputs
    return QuickTiming(*parts, BLOCK_SECONDS, host, expected, together=together)


def _measured(quick: QuickTiming, subject: Any, slower: Sequence[float] = ()) -> QuickTimes:
    """The times of a candidate whose runs take `slower` times as long, once it is ready."""
    quick.get_ready(subject)
    subject.slower = list(slower)
    measured = quick.measure(subject, subject, lambda: None)
    quick.check(subject)
    return measured


@pytest.mark.parametrize(
    ("host_seconds", "captures", "graph_seconds", "samples"),
    [
        pytest.param(0.0, True, None, BLOCKS, id="not bound: in blocks"),
        pytest.param(CALL_SECONDS, True, CALL_SECONDS / 2, 1 + GRAPHS, id="bound: one block and graphs"),
        pytest.param(CALL_SECONDS, False, None, BLOCKS, id="cannot be captured: in blocks"),
    ],
)
def test_a_call_that_the_host_binds_is_timed_in_graphs_where_it_can_be_captured(
    profiler: Profiler, host_seconds: float, captures: bool, graph_seconds: float | None, samples: int
) -> None:
    measured = _measured(_timing(profiler, host_seconds), InProcess(profiler.sets, honest, captures))
    assert measured.seconds == pytest.approx(CALL_SECONDS)
    assert (measured.graph_seconds, measured.samples) == (graph_seconds and pytest.approx(graph_seconds), samples)


def test_long_calls_that_the_host_binds_are_timed_in_several_blocks_too(profiler: Profiler) -> None:
    subject = InProcess(profiler.sets, honest, seconds=2 * BLOCK_SECONDS)
    measured = _measured(_timing(profiler, BLOCK_SECONDS), subject)
    assert measured.samples == BLOCKS + GRAPHS and min(subject.counts) >= FEWEST_CALLS


@pytest.mark.parametrize("expected", [CALL_SECONDS / 100, 100 * CALL_SECONDS])
def test_a_block_has_its_length_whatever_was_expected(profiler: Profiler, expected: float) -> None:
    subject = InProcess(profiler.sets, honest)
    assert _measured(_timing(profiler, 0.0, expected), subject).seconds == pytest.approx(CALL_SECONDS)
    assert subject.counts[-1] == BLOCK_SECONDS / CALL_SECONDS


@pytest.mark.parametrize("host_seconds", [0.0, CALL_SECONDS], ids=["in blocks", "in graphs"])
def test_a_disturbed_first_block_decides_nothing(profiler: Profiler, host_seconds: float) -> None:
    subject = InProcess(profiler.sets, honest)
    measured = _measured(_timing(profiler, host_seconds), subject, [30.0])
    assert measured.seconds == pytest.approx(CALL_SECONDS)
    assert measured.graph_seconds == (pytest.approx(CALL_SECONDS / 2) if host_seconds else None)
    assert subject.counts[-1] >= BLOCK_SECONDS / CALL_SECONDS / 3


def _renewals(profiler: Profiler, quick: QuickTiming, subject: Any) -> list[list[int]]:
    """The sets that get new values, each time that some do."""
    quick.get_ready(subject)
    renewals = list[list[int]]()
    profiler.values.mark = renewals.append  # type: ignore[method-assign]
    quick.measure(subject, subject, lambda: None)
    return renewals


@pytest.mark.parametrize("together", [True, False])
def test_blocks_share_new_values_only_if_they_may(profiler: Profiler, together: bool) -> None:
    quick = _timing(profiler, CALL_SECONDS, together=together)
    renewals = _renewals(profiler, quick, InProcess(profiler.sets, honest))
    assert len(renewals) == (2 if together else 1 + GRAPHS)
    assert all(len(set(indices)) == len(indices) for indices in renewals)


def test_blocks_that_have_sets_in_common_get_new_values_each(profiler: Profiler) -> None:
    # Each block takes all sets.
    renewals = _renewals(profiler, _timing(profiler, 0.0), InProcess(profiler.sets, honest, seconds=1e-9))
    assert [len(set(indices)) for indices in renewals] == [profiler.sets.count] * BLOCKS


@pytest.mark.parametrize("host_seconds", [0.0, CALL_SECONDS], ids=["in blocks", "in graphs"])
def test_what_is_computed_ahead_in_one_block_is_paid_there(profiler: Profiler, host_seconds: float) -> None:
    # The first block or graph of those with the same new values does the work of the others.
    ahead = [1.0, 3.0, 1e-6, 1e-6, 3.0, 1e-6, 1e-6] if host_seconds else [1.0, 2.0, 1e-6, 3.0, 1e-6, 1e-6]
    measured = _measured(_timing(profiler, host_seconds), InProcess(profiler.sets, honest), ahead)
    of_calls = measured.graph_seconds if host_seconds else measured.seconds
    assert of_calls == pytest.approx(CALL_SECONDS / 2 if host_seconds else CALL_SECONDS, rel=0.01)


@pytest.mark.parametrize("host_seconds", [0.0, CALL_SECONDS], ids=["in blocks", "in graphs"])
@pytest.mark.parametrize("attack", [Remembering, LeavingOut])
def test_a_candidate_that_does_not_compute_while_timed_is_found(
    profiler: Profiler, attack: Callable[[], Callable[[Sets, int], None]], host_seconds: float
) -> None:
    with pytest.raises(IncorrectOutput) as found:
        _measured(_timing(profiler, host_seconds), InProcess(profiler.sets, attack()))
    assert found.value.outcome == "cheating"


def test_times_that_differ_are_measured_again(profiler: Profiler) -> None:
    measured = _measured(_timing(profiler, 0.0), InProcess(profiler.sets, honest), [1.3])
    assert measured.samples == MOST_TIMES and measured.seconds == pytest.approx(CALL_SECONDS)


def test_inputs_are_kept_for_the_check(profiler: Profiler) -> None:
    quick, subject = _timing(profiler, 0.0), InProcess(profiler.sets, honest)
    quick.get_ready(subject)
    quick.measure(subject, subject, lambda: None)
    profiler.values.refresh()
    quick.check(subject)
