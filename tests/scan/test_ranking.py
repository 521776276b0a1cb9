"""The arithmetic of the ranking: floors are lower bounds, shares add up, and the figures follow Amdahl's law."""

from __future__ import annotations

import pytest

from kernel_assistant.records.scan import RecordedClass, RecordedConfiguration, RecordedSignature, Recording
from kernel_assistant.session.scanning.ranking import RooflineBandwidth, amdahl, rank


def signature(**changes):
    fields = {"text": "(f32[8])", "kind": "k", "output": "f32[8]", "calls": 10, "seconds": 1.0, "training": False}
    sizes = {"input_bytes": 1 << 20, "output_bytes": 1 << 20, "sample": 0, "exact": True}
    fields = {**fields, **sizes, **changes}
    return RecordedSignature(**{"counted_calls": fields["calls"], **fields})


def configuration(*signatures, **changes):
    fields = {"folder": "c0v0", "parameter_bytes": 0, "kept": "module", "notes": ()}
    return RecordedConfiguration(**{**fields, **changes}, signatures=signatures)


def recorded(name="Net", share=1.0, **changes):
    fields = {"name": name, "qualname": name, "module": "net", "path": "/src/net.py", "installed": False, "calls": 10}
    seconds = dict.fromkeys(("inclusive_seconds", "own_seconds", "share_seconds"), share)
    rest = {"products_seconds": 0.0, "unserved_seconds": {}, "callers": {}, "container": False, "uncounted": 0}
    configurations = (configuration(signature(seconds=share)),)
    return RecordedClass(**{**fields, **seconds, **rest, "configurations": configurations, **changes})


def recording(*classes, seconds=10.0, loop=0.0):
    program = {"version": 1, "pid": 1, "argv": (), "folder": "/", "main": "", "python": "python", "torch": "2.13"}
    times = {"wall_seconds": 90.0, "startup_seconds": 70.0, "calls_seconds": seconds, "overhead_seconds": 1.0}
    rounds = {"loop_seconds": loop, "loop": "Net" if loop else "", "rounds": 9 if loop else 0, "calls": 10}
    end = {"clock": "cpu", "device": "cpu", "ended": "exit", "failure": "", "skipped": {}, "search_path": ()}
    return Recording(**program, **times, **rounds, **end, classes=classes)


MEMORY = RooflineBandwidth(bandwidth=100 << 20)


def test_the_floor_is_the_traffic_and_the_figures_are_amdahls():
    # 10 calls of 2 MiB at 100 MiB/s take 0.2 s of the 1 s.
    (row,) = rank(recording(recorded()), MEMORY)
    assert (row.floor_seconds, row.saved_seconds) == pytest.approx((0.2, 0.8))
    assert row.speedup_at_floor == pytest.approx(10 / 9.2)
    assert row.speedup_at_double == pytest.approx(10 / 9.5)


@pytest.mark.parametrize(
    ("changes", "memory", "floor"),
    [
        ({}, RooflineBandwidth(bandwidth=100 << 20, cache_bytes=2 << 20), 0.0),
        ({"share_seconds": 0.3}, RooflineBandwidth(bandwidth=25 << 20), 0.8 - 0.7),
        ({"configurations": (configuration(signature(seconds=4.0)),)}, MEMORY, 0.2 / 4),
        ({"configurations": (configuration(signature(counted_calls=5)),)}, MEMORY, 0.1),
    ],
    ids=["may stay in the cache", "modules inside bear their part", "a class that calls itself", "calls that count"],
)
def test_the_floor_is_the_traffic_that_must_come_from_memory(changes, memory, floor):
    (row,) = rank(recording(recorded(**changes)), memory)
    assert row.floor_seconds == pytest.approx(floor)
    assert row.speedup_at_floor == pytest.approx(10 / (10 - changes.get("share_seconds", 1.0) + floor))


def test_products_and_a_slower_memory_bound_the_gain():
    (row,) = rank(recording(recorded(products_seconds=0.9)), MEMORY)
    assert row.saved_seconds == pytest.approx(0.1)
    assert row.speedup_at_double == row.speedup_at_floor == pytest.approx(10 / 9.9)
    (row,) = rank(recording(recorded()), RooflineBandwidth(bandwidth=1 << 20))
    assert (row.floor_seconds, row.saved_seconds, row.speedup_at_floor) == (1.0, 0.0, 1.0)


def test_calls_that_kernels_do_not_serve_save_nothing():
    (row,) = rank(recording(recorded(unserved_seconds={"gradient": 0.75})), RooflineBandwidth())
    assert row.saved_seconds == pytest.approx(0.25)
    (row,) = rank(recording(recorded(unserved_seconds={"gradient": 0.75, "autocast": 0.25})), RooflineBandwidth())
    assert row.speedup_at_floor == row.speedup_at_double == 1.0


def test_order_containers_and_the_loop():
    classes = (recorded("A"), recorded("B", 3.0), recorded("C", 9.0, container=True))
    rows = rank(recording(*classes), RooflineBandwidth())
    assert [row.name for row in rows] == ["B", "A"]
    assert rows[0].speedup_at_floor == pytest.approx(10 / 7)
    assert rank(recording(*classes, loop=8.0), RooflineBandwidth())[0].speedup_at_floor == pytest.approx(8 / 5)


def test_configurations_have_their_calls_and_their_seconds():
    small = configuration(signature(seconds=0.2, calls=4), signature(seconds=0.1, calls=2, sample=-1), folder="c0v1")
    large = configuration(signature(seconds=0.6, calls=6), signature(seconds=0.1, calls=1, sample=1, kind="other"))
    (row,) = rank(recording(recorded(configurations=(small, large), calls=13)), RooflineBandwidth())
    found = [(one.folder, one.calls, one.seconds) for one in row.configurations]
    assert found == [("c0v0", 6, 0.6), ("c0v1", 4, 0.2), ("c0v0", 1, 0.1)]


def test_samples_are_of_one_kind_the_one_with_most_time():
    signatures = (
        signature(sample=0, kind="training", training=True, seconds=1.0),
        signature(sample=1, kind="eval", seconds=0.9),
        signature(sample=2, kind="eval", seconds=1.5),
        signature(sample=-1, kind="eval", seconds=9.0),
    )
    (row,) = rank(recording(recorded(configurations=(configuration(*signatures),))), RooflineBandwidth())
    assert [sample.number for sample in row.samples] == [2, 1] and not row.training


CACHE = "past is a DynamicCache"


def test_calls_with_objects_are_left_out_where_others_were_kept():
    signatures = (signature(seconds=3.0, objects=(CACHE,)), signature(sample=1, kind="without"))
    (row,) = rank(recording(recorded(configurations=(configuration(*signatures),))), RooflineBandwidth())
    assert ([sample.number for sample in row.samples], row.more, row.problem) == ([1], (), "")
    assert row.objects == (CACHE,)


@pytest.mark.parametrize(("sample", "folder"), [(0, "c0v0"), (-1, "")])
def test_objects_in_every_call_are_named(sample, folder):
    """Opening the kept samples names these objects too."""
    one = configuration(signature(sample=sample, objects=(CACHE, "x[0] is a Box")), notes=("inputs-0.pt: ValueError",))
    (row,) = rank(recording(recorded(configurations=(one,))), RooflineBandwidth())
    wanted = f"{CACHE}, x[0] is a Box: scan it called without (a cache: use_cache=False), or declare its inputs"
    assert (row.problem, row.folder) == (wanted, folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"path": ""}, "its source is in no file"),
        ({"qualname": "make.<locals>.Net"}, "it is nested in a function or a class"),
        ({"configurations": ()}, "no inputs were kept"),
        ({"configurations": (configuration(signature(sample=-1)),)}, "no inputs were kept"),
        ({"configurations": (configuration(signature(), kept="", notes=("too large",)),)}, "too large"),
    ],
)
def test_what_cannot_be_optimized_says_why(changes, problem):
    (row,) = rank(recording(recorded(**changes)), RooflineBandwidth())
    assert (row.problem, row.folder, row.samples) == (problem, "", ())


def test_amdahl():
    assert amdahl(10.0, 5.0) == 2.0 and amdahl(10.0, 0.0) == 1.0
