"""In which order tests run beside each other (pytest-xdist)."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from tests.common.turns import is_alone

#: Any text: in which order files with slow tests come, so that it is not always the same ones that are left out.
SLOW_ORDER = os.environ.get("KERNEL_ASSISTANT_TESTS_SLOW_ORDER", "")


def in_good_order(items: list[pytest.Item]) -> None:
    """By file, so that fixtures are shared; the slow tests of a file apart.

    First files with tests that want to be alone, beside others whose tests are short: everybody waits for the longest
    of them. Behind the first of such a file, which makes what they share, those that want to be alone follow each
    other. Then the longest of all, and what is not slow. The slow ones have the time that is left.
    """
    alone = {item.path for item in items if is_alone(item)}
    smoke = {item.path for item in items if "smoke_run" in getattr(item, "fixturenames", ())}
    whole = alone | smoke
    apart = {item: item.path not in whole and item.get_closest_marker("slow") is not None for item in items}
    count = Counter((item.path, apart[item]) for item in items)
    short = [path for (path, slow), _ in count.most_common() if not slow and path not in whole]
    beside = set(short[: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])])
    first = set({item.path: item for item in reversed(items)}.values())
    items.sort(
        key=lambda item: (
            item.path not in alone,
            item.path not in beside or apart[item],
            item.path not in smoke,
            apart[item],
            Random(f"{SLOW_ORDER} {item.path.name}").random() if apart[item] else -count[item.path, False],
            item.path,
            item not in first and not is_alone(item),
        )
    )
    for item in items:
        item.add_marker(pytest.mark.xdist_group(f"{item.nodeid.partition('::')[0]}{' slow' * apart[item]}"))
