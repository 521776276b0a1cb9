"""In which order tests run beside each other (pytest-xdist): those that take longest begin first.

`seconds.txt` says how long files took on two cores, and tests that need nothing of their file's other tests and have a
line of their own. `bench/suite.py` writes it anew.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from tests.common.turns import is_alone

TABLE = Path(__file__).with_name("seconds.txt")
#: For a test of a file that has no line.
USUAL_SECONDS = 0.2


def in_good_order(items: list[pytest.Item]) -> None:
    """By group, which one process runs as a whole: what has a line in the table, or the rest of a file.

    Groups with tests that want to be alone come first, so that nobody who has just begun something long is waited for.
    In such a group what its tests share is made by the first of them.
    """
    groups = {item: _group(item) for item in items}
    alone = {groups[item] for item in items if is_alone(item)}
    counts = Counter(groups.values())
    first = set({groups[item]: item for item in reversed(items)}.values())

    def place(item: pytest.Item) -> tuple[bool, float, str, bool]:
        group = groups[item]
        seconds = _table().get(group, USUAL_SECONDS * counts[group])
        return group not in alone, -seconds, group, item not in first and not is_alone(item)

    items.sort(key=place)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item]))


def own_lines() -> frozenset[str]:
    """Tests that are a group of their own."""
    return frozenset(name for name in _table() if "::" in name)


def _group(item: pytest.Item) -> str:
    test = item.nodeid.partition("[")[0]
    return test if test in _table() else item.nodeid.partition("::")[0]


@lru_cache(maxsize=1)
def _table() -> dict[str, float]:
    lines = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}
