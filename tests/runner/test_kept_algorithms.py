"""Tests the file of algorithms that were chosen by time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.worker.runner import libraries
from kernel_assistant.worker.runner.operations import kept_algorithms
from kernel_assistant.worker.runner.operations.choosing import Algorithm, Wanted
from kernel_assistant.worker.runner.operations.kept_algorithms import (
    APPLIED,
    KeptAlgorithms,
    checked,
    kept_file,
    key_of,
)
from kernel_assistant.worker.runner.plan import BoundLibraryCall
from tests.runner.test_library import CONV, FLAGS, bound


def test_what_one_process_chose_another_one_knows(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "algorithms.json")
    for key in ("first", "second"):
        kept = KeptAlgorithms(path=path)
        kept.add({key: f"name of {key}"})
        kept.save()
    kept.save()
    assert KeptAlgorithms(path=path).names == {"first": "name of first", "second": "name of second"}
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["algorithms.json"]


def test_the_oldest_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_algorithms, "MOST", 2)
    path = str(tmp_path / "algorithms.json")
    for names in ({"a": "1"}, {"b": "2"}, {"a": "3"}, {"c": "4"}):
        kept = KeptAlgorithms(path=path)
        kept.add(names)
        kept.save()
    assert KeptAlgorithms(path=path).names == {"a": "3", "c": "4"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"a": 1, "b": null}', json.dumps({"a": "x" * 10_000}), "[" * 200_000]
)
def test_a_damaged_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "algorithms.json"
    path.write_text(text)
    kept = KeptAlgorithms(path=str(path))
    assert kept.names == {}
    kept.add({"a": "b"})
    kept.save()
    assert KeptAlgorithms(path=str(path)).names == {"a": "b"}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptAlgorithms(path=str(tmp_path / "file" / "algorithms.json"))
    kept.add({"a": "b"})
    kept.save()
    assert kept.names == {"a": "b"}


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kept_algorithms.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert kept_file() == "/somewhere/kernel-assistant/algorithms.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert kept_file() == "/home/someone/.cache/kernel-assistant/algorithms.json"
    monkeypatch.setenv(kept_algorithms.VARIABLE, "off")
    assert kept_file() == ""


def test_what_a_runner_answers_is_checked() -> None:
    assert checked({"a": "b", "c": 3, "d": "x" * 10_000}) == {"a": "b"}
    assert checked(["a"]) == {}


class _Library:
    """A library with four algorithms; the third is the fastest."""

    def __init__(self) -> None:
        self.asked: list[Wanted] = []
        self.timed, self.refused = True, ""

    def version(self) -> str:
        return "library 1"

    def name_of(self, status: int) -> str:
        return str(status)

    def ways(self, launch: BoundLibraryCall, tf32: bool, deterministic: bool, wanted: Wanted) -> list[Algorithm]:
        self.asked.append(wanted)
        names = [wanted.name] if wanted.name else [str(number) for number in range(min(wanted.plans, 4))]
        kept = [name for name in names if name != "gone"]
        return [Algorithm("refused" if name == self.refused else name, 0, lambda words, stream: 0) for name in kept]


def _fastest(ways: Sequence[Algorithm], times: dict[str, float]) -> Algorithm | None:
    """The fastest of those that are not refused."""
    return min((way for way in ways if way.name in times), key=lambda way: times[way.name], default=None)


class _Driver:
    device_name = "device"


@pytest.fixture
def choosing(monkeypatch: pytest.MonkeyPatch) -> _Library:
    library = _Library()
    times = {"0": 3.0, "1": 2.0, "2": 1.0, "3": 4.0}
    monkeypatch.setattr(libraries, "choose", lambda driver, events, ways, spans: (_fastest(ways, times), library.timed))
    monkeypatch.setattr(libraries, "Events", lambda driver: None)
    monkeypatch.setattr(libraries.Libraries, "_open", lambda self, name: library)
    return library


def _libraries(kept: KeptAlgorithms) -> libraries.Libraries:
    driver: Any = _Driver()
    return libraries.Libraries(driver, {}, FLAGS, kept)


def test_the_choice_is_kept_and_used_again(choosing: _Library) -> None:
    kept = KeptAlgorithms()
    assert _libraries(kept).bind(bound(CONV)).name == "2"
    assert list(kept.take_fresh().values()) == ["2"]
    assert _libraries(kept).bind(bound(CONV)).name == "2"
    assert choosing.asked == [Wanted(), Wanted(1, "2")]
    assert not kept.take_fresh()


def test_an_algorithm_that_is_gone_is_chosen_anew(choosing: _Library) -> None:
    kept = KeptAlgorithms()
    _libraries(kept).bind(bound(CONV))
    kept.names = dict.fromkeys(kept.names, "gone")
    assert _libraries(kept).bind(bound(CONV)).name == "2"
    assert set(kept.names.values()) == {"2"}


def test_what_was_not_timed_is_not_kept(choosing: _Library) -> None:
    kept, choosing.timed = KeptAlgorithms(), False
    assert _libraries(kept).bind(bound(CONV)).name == "2"
    assert not kept.names


def test_the_judge_does_not_use_what_applied_packages_chose(choosing: _Library, tmp_path: Path) -> None:
    path = str(tmp_path / "algorithms.json")
    for prefix, asked in ((APPLIED, Wanted()), (APPLIED, Wanted(1, "2")), ("", Wanted()), (APPLIED, Wanted(1, "2"))):
        kept = KeptAlgorithms(path=path, prefix=prefix)
        _libraries(kept).bind(bound(CONV))
        assert choosing.asked.pop() == asked
        kept.save()
    key = key_of("library 1", "device", (*bound(CONV).key, False, False))
    assert KeptAlgorithms(path=path).names == {f"{APPLIED}{key}": "2", key: "2"}


def test_a_full_file_fits_the_buffer_of_a_socket() -> None:
    key = key_of("cudnn 91900", "NVIDIA GeForce RTX 4090 Laptop GPU, driver 13000", bound(CONV).key)
    entry = {f"{APPLIED}{key}": "cudnn transposed fused 12 math 3 tf32"}
    assert checked(entry) == entry
    assert kept_algorithms.MOST * len(json.dumps(entry)) < 120_000


def test_a_quick_choice_that_is_refused_is_made_among_all(choosing: _Library) -> None:
    shared = _libraries(KeptAlgorithms())
    shared.quick = True
    choosing.refused = "0"
    assert shared.bind(bound(CONV)).name == "2"
    assert choosing.asked == [Wanted(plans=1), Wanted()]


def test_a_quick_choice_is_not_kept_and_gives_way_to_the_fastest(choosing: _Library) -> None:
    kept = KeptAlgorithms()
    shared = _libraries(kept)
    shared.quick = True
    assert [shared.bind(bound(CONV)).name for _ in range(2)] == ["0", "0"]
    assert not kept.names
    shared.quick = False
    assert shared.bind(bound(CONV)).name == "2"
    shared.quick = True
    assert shared.bind(bound(CONV)).name == "2"
