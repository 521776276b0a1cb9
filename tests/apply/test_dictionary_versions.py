"""Tests versions of dictionaries: every way to change one is seen, and reading one changes nothing."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kernel_assistant.worker.applied.watch import versions_of

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python has no versions of dictionaries")

CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda state: state.__setitem__("first", object()),
    "added": lambda state: state.update(more=1),
    "merged": lambda state: state.__ior__({"more": 1}),
    "default": lambda state: state.setdefault("more", 1),
    "deleted": lambda state: state.__delitem__("first"),
    "popped": lambda state: state.pop("second"),
    "last": lambda state: state.popitem(),
    "cleared": lambda state: state.clear(),
}


class Holder:
    def __init__(self) -> None:
        self.first, self.second = 1, 2


def _set(holder: Holder, value: object) -> None:
    holder.first = value  # type: ignore[assignment]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("make", [lambda: Holder().__dict__, lambda: {"first": 1, "second": 2}, OrderedDict])
def test_a_change_gives_another_version(name: str, make: Callable[[], dict[str, Any]]) -> None:
    state = make()
    state.update(first=1, second=2)
    read = versions_of([state, {}])
    assert read is not None
    before = read()
    assert (state.get("first"), list(state.items()), "second" in state) == (1, [("first", 1), ("second", 2)], True)
    assert read() == before
    CHANGES[name](state)
    assert read() != before


def test_attributes_that_specialised_code_sets_are_seen() -> None:
    """The interpreter has faster ways to set an attribute once the same line has run some times."""
    holder = Holder()
    for number in range(100):
        _set(holder, number)
    read = versions_of([holder.__dict__])
    assert read is not None
    seen = [read()]
    for _ in range(100):
        _set(holder, object())
        seen.append(read())
        object.__setattr__(holder, "second", object())
        seen.append(read())
    assert all(one != other for one, other in pairwise(seen))
