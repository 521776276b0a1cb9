"""The order of tests that run in parallel (pytest-xdist): the slowest begin first.

`seconds.txt` has the seconds of files on two cores, `seconds_gpu.txt` those of GPU tests on one GPU. Both also name
tests that are independent of the other tests in their file. `bench/suite.py` writes them anew.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from tests.common.turns import is_alone

TABLE = Path(__file__).with_name("seconds.txt")
TABLE_GPU = Path(__file__).with_name("seconds_gpu.txt")
#: For a test of a file that has no line.
USUAL_SECONDS = 0.2
#: Behind a file's name: those of its tests that want to be alone.
ALONE = "::alone"


def in_good_order(items: list[pytest.Item]) -> None:
    """Sorts by groups, each of which is run by one process: a test with its own line in the table, or the rest of a
    file.

    Tests marked `alone` are groups of their own and come last, when all others have ended or are short.
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
    """Tests with a group of their own."""
    return frozenset(name for name in _table() if "::" in name)


def _group(item: pytest.Item) -> str:
    if is_alone(item):
        return item.nodeid.partition("::")[0] + ALONE
    test = item.nodeid.partition("[")[0]
    return test if test in _table() else item.nodeid.partition("::")[0]


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
