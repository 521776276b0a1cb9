"""An implausible measurement is repeated, and proves nothing if it stays implausible."""

from __future__ import annotations

import pytest

from kernel_assistant.worker.measuring.suspicion import MOST_AGAIN, odd_clocks, odd_growth, until_plausible
from kernel_assistant.worker.measuring.timing import Series
from kernel_assistant.worker.verifying.verification import IncorrectOutput


def series(*growth: tuple[float, float]) -> Series:
    return Series(growth=list(growth))


GOOD = series((1.0, 1.0))


def test_time_grows_with_the_number_of_calls_or_is_odd() -> None:
    assert not odd_growth(series()) and not odd_growth(series((1.0, 1.0), (5.0, 1.1)))
    assert "took 1.00 times as long" in odd_growth(series((0.5, 1.0), (0.6, 1.2)))
    assert "took 4.00 times as long" in odd_growth(series((2.0, 1.0)))


def measured(taken: list[int], plausible: int | None = None) -> Series:
    """The series that counts, of those whose number is `plausible` or odd; `taken` gets their numbers."""

    def measure(repeat: int) -> Series:
        taken.append(repeat)
        return GOOD if repeat == plausible else series((0.5, 1.0))

    return until_plausible(measure, odd_growth)


def test_an_odd_series_is_measured_again_and_the_plausible_one_counts() -> None:
    taken = list[int]()
    assert measured(taken, MOST_AGAIN) is GOOD
    assert taken == list(range(1 + MOST_AGAIN))


def test_what_stays_odd_is_inconclusive_and_no_cheating() -> None:
    taken, said = list[int](), "measured 4 times, odd each time, last because twice the calls"
    with pytest.raises(IncorrectOutput, match=said) as caught:
        measured(taken)
    assert caught.value.outcome == "inconclusive"
    assert taken == list(range(1 + MOST_AGAIN))


class Clocks:
    """A candidate on a device: its events report `device` seconds for a block, and the judge's clock `own` seconds."""

    def __init__(self, own: float, device: float) -> None:
        self._pair = own, device

    def both(self, first: int, count: int) -> tuple[float, float]:
        return self._pair


@pytest.mark.parametrize(
    ("own", "device", "odd"), [(0.051, 0.05, False), (0.05, 0.0, False), (0.08, 0.05, True), (0.06, 0.02, True)]
)
def test_events_are_believed_where_the_judge_s_clock_confirms_them(own: float, device: float, odd: bool) -> None:
    assert bool(odd_clocks(Clocks(own, device), 1e-3)) is odd  # type: ignore[arg-type]
