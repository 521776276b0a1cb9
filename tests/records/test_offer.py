"""The rule for an offer, over every combination of verdicts, and by simulation on the intervals that it is made of."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from kernel_assistant.environment.repeated_measurement import MOST_LOOKS
from kernel_assistant.records import Gain, Offer, ProgramMode
from kernel_assistant.records.evaluation import LEAST_EFFECT, gain_of
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER, gain_over, gives_more, offer_of
from kernel_assistant.worker.measuring.repeated_measurement import interval_at, is_unclear

MODE = 'torch.compile(mode="reduce-overhead")'
EVERY = [
    (dict(zip((OVER_COMPILE, OVER_EAGER, MODE), gains, strict=True)), program)
    for gains in product(Gain, repeat=3)
    for program in ProgramMode
]


@pytest.mark.parametrize("wanted", Offer)
def test_every_combination_of_verdicts_has_the_offer_that_the_rule_states(wanted):
    """Recommended: faster than one timed baseline and slower than none, unless the program is known to gain nothing.
    Possible: a gain over what the program runs all the same. No gain: never while a baseline that is not refuted may
    still be beaten."""
    some = [case for case in EVERY if offer_of(*case) is wanted]
    assert some
    for verdicts, program in some:
        timed = [gain for gain in verdicts.values() if gain is not Gain.unknown]
        runs = verdicts[OVER_COMPILE if program is ProgramMode.compiled else OVER_EAGER]
        nothing = program is not ProgramMode.unknown and runs is Gain.no_gain
        recommended = Gain.faster in timed and Gain.slower not in timed and not nothing
        assert (wanted is Offer.recommended) == recommended
        assert (wanted is Offer.possible) == (runs is Gain.faster and Gain.slower in timed)
        if wanted is Offer.unclear:
            assert Gain.unclear in timed and Gain.faster not in timed and Gain.slower not in timed
        if wanted is Offer.none and not nothing:
            assert Gain.slower in timed or not {Gain.unclear, Gain.faster} & set(timed)


def test_what_can_be_applied_names_a_baseline_that_it_beats_and_one_that_gives_more():
    for verdicts, program in EVERY:
        offer, over = offer_of(verdicts, program), gain_over(verdicts, program)
        assert bool(over) == offer.applicable
        assert not over or verdicts[over] is Gain.faster
        assert bool(gives_more(verdicts)) == (Gain.slower in verdicts.values())
        assert offer is not Offer.possible or gives_more(verdicts)


def test_no_gain_is_said_only_where_the_interval_ends_below_the_least_effect():
    chance = random.Random(36)
    for _ in range(2000):
        low, high = sorted(math.exp(chance.gauss(0, 0.05)) for _ in range(2))
        found = gain_of(math.sqrt(low * high), (low, high))
        assert (found in (Gain.no_gain, Gain.slower)) == (high < LEAST_EFFECT) or found is Gain.faster
        assert is_unclear(math.sqrt(low * high), low, high) == (found is Gain.unclear)


def _verdict(true: float, spread: float, rounds: int, chance: random.Random) -> Gain:
    """The verdict after up to three looks at a candidate with a known gain, as the judge takes them."""
    ratios: list[float] = []
    for look in range(1, MOST_LOOKS + 1):
        ratios += [true * math.exp(chance.gauss(0, spread)) for _ in range(rounds)]
        found = interval_at(ratios, look, MOST_LOOKS)
        if not is_unclear(*found):
            break
    return gain_of(found[0], found[1:])


@pytest.mark.parametrize("spread", [0.01, 0.08])
def test_what_gains_nothing_is_recommended_at_most_once_in_a_thousand_over_all_looks(spread):
    """Two comparisons, each wrong on its upper side in at most half a thousandth: 0.5 of 500 are expected at most."""
    chance, offers = random.Random(2026), list[Offer]()
    for _ in range(500):
        offers.append(offer_of({name: _verdict(1.0, spread, 18, chance) for name in (OVER_COMPILE, OVER_EAGER)}))
    assert offers.count(Offer.recommended) <= 3
    assert offers.count(Offer.possible) == 0


def test_a_real_gain_over_torch_compile_is_recommended_however_noisy_eager_is():
    chance = random.Random(25)
    offers = [
        offer_of({OVER_COMPILE: _verdict(2.0, 0.05, 18, chance), OVER_EAGER: _verdict(1.8, 0.9, 18, chance)})
        for _ in range(50)
    ]
    assert offers.count(Offer.recommended) == 50
