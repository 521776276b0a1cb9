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
#: Behind a file's name: those of its tests that want to be alone.
ALONE = "::alone"


def in_good_order(items: list[pytest.Item]) -> None:
    """By group, which one process runs as a whole: what has a line in the table, or the rest of a file.

    Tests that want to be alone are groups of their own and come last: all others have ended or are short by then.
    """
    groups = {item: _group(item) for item in items}
    counts = Counter(groups.values())

    def place(item: pytest.Item) -> tuple[bool, float, str]:
        group = groups[item]
        return is_alone(item), -_table().get(group, USUAL_SECONDS * counts[group]), group

    items.sort(key=place)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[item]))


def own_lines() -> frozenset[str]:
    """Tests that are a group of their own."""
    return frozenset(name for name in _table() if "::" in name)


def _group(item: pytest.Item) -> str:
    if is_alone(item):
        return item.nodeid.partition("::")[0] + ALONE
    test = item.nodeid.partition("[")[0]
    return test if test in _table() else item.nodeid.partition("::")[0]


@lru_cache(maxsize=1)
def _table() -> dict[str, float]:
    lines = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}
