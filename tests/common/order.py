"""The order of tests that run in parallel (pytest-xdist): the slowest begin first.

`seconds.txt` has the seconds of files on two cores, `seconds_gpu.txt` those of GPU tests on one GPU. Both also name
tests that are independent of the other tests in their file. `bench/suite.py` writes them anew.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("seconds.txt")
TABLE_GPU = Path(__file__).with_name("seconds_gpu.txt")
#: For a test of a file that has no line.
USUAL_SECONDS = 0.2


def in_good_order(items: list[pytest.Item]) -> None:
    """Sorts by groups, each of which is run by one process."""
    groups = {item: group_of(item.nodeid) for item in items}
    counts = Counter(groups.values())

    def place(item: pytest.Item) -> tuple[float, str]:
        group = groups[item]
        return -_table().get(group, USUAL_SECONDS * counts[group]), group

    items.sort(key=place)


def own_lines() -> frozenset[str]:
    """Tests with a group of their own."""
    return frozenset(name for name in _table() if "::" in name)


def group_of(nodeid: str) -> str:
    """A test with its own line in the table, or the rest of a file."""
    test = nodeid.partition("[")[0]
    return test if test in _table() else test.partition("::")[0]


@lru_cache(maxsize=1)
def _table() -> dict[str, float]:
    """Seconds by file. For a file with both kinds of tests the longer time is used, because with a GPU all of them
    run.
    """
    table: dict[str, float] = {}
    for path in (TABLE, TABLE_GPU):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                seconds, name = line.split()
                table[name] = max(float(seconds), table.get(name, 0.0))
    return table
