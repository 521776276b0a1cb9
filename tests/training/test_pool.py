"""Rows in shared memory: rows are complete, new rows come first, and all writers contribute equally."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.pool import SharedRows, SharedRowsShape


@pytest.fixture
def pool():
    made = SharedRows(SharedRowsShape(parts=3, kept=8, length=4))
    yield made
    made.close()


def write(pool, part, count):
    for _ in range(count):
        number = int(pool.written[part])
        pool.write(part, np.full(4, 100 * part + number, np.uint16), np.full(4, 1, np.uint8))


def take(pool, count):
    places, _ = pool.fresh(count)
    rows = pool.rows(places)
    pool.give(places)
    return sorted(rows.ids[:, 0].tolist())


def test_what_is_fresh_is_given_once_and_evenly(pool):
    write(pool, 0, 5)
    write(pool, 1, 1)
    write(pool, 2, 5)
    assert take(pool, 5) == [0, 1, 100, 200, 201]
    assert take(pool, 20) == [2, 3, 4, 202, 203, 204]
    assert take(pool, 20) == []


def test_a_part_is_a_ring(pool):
    for turn in range(5):
        write(pool, 1, 6)
        assert take(pool, 20) == [100 + 6 * turn + place for place in range(6)]
    write(pool, 1, 8)
    assert pool.is_full(1) and not pool.is_full(0)
    take(pool, 1)
    assert not pool.is_full(1)


def test_rows_come_again_from_what_is_there(pool):
    write(pool, 0, 2)
    write(pool, 2, 8)
    take(pool, 10)
    write(pool, 2, 3)
    places = pool.again(4000, np.random.default_rng(0))
    seen = pool.rows(places).ids[:, 0]
    # Of the third part the oldest two may be written to next.
    assert sorted(set(seen.tolist())) == [0, 1, 205, 206, 207, 208, 209, 210]
    assert np.bincount(seen)[[0, 1, 205, 210]].min() > 400
    assert len(pool.again(0, np.random.default_rng(0))) == 0


def test_another_process_sees_the_same(pool):
    other = SharedRows(pool.shape, pool.name)
    write(other, 1, 2)
    other.count(1, 77, 0)
    other.count(1, 77, 3)
    assert take(pool, 5) == [100, 101]
    assert (pool.different(), int(pool.conversations.sum()), int(pool.left_out.sum())) == (1, 2, 3)
    other.close()


def test_no_room_is_said():
    with pytest.raises(UsageError, match="has no room"):
        SharedRows(SharedRowsShape(parts=1, kept=1 << 34, length=2048))
