"""The frozen corpus of verdicts, and a few candidates of it, one of each verdict, judged again."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.verdicts import FOLDER, Row, differences, judged, read, stable, verdicts_of, write
from kernel_assistant.records import Outcome, Tier

CPU = FOLDER / "cpu.jsonl.xz"


@pytest.fixture(scope="module")
def corpus() -> list[Row]:
    return read(CPU)


@pytest.fixture(scope="module")
def few(corpus: list[Row]) -> Row:
    """The hand-written norm with one candidate of each outcome. Only the full tier calls one inconclusive."""
    norm = next(row for row in corpus if row.task.class_name == "Norm")
    labels = [one for one in norm.labels if one.tier is Tier.quick or one.outcome is Outcome.inconclusive]
    return replace(norm, labels=tuple({label.outcome: label for label in labels}.values()))


def test_the_corpus_has_every_outcome_and_is_small(corpus: list[Row]) -> None:
    counts = verdicts_of(corpus)
    assert {verdict.split()[0] for verdict in counts} == {outcome.value for outcome in Outcome}
    assert counts.total() > 300
    assert CPU.stat().st_size < 2e6


@pytest.mark.slow
@pytest.mark.usefixtures("own_state")
def test_verdicts_stay_what_they_are(few: Row) -> None:
    assert len(few.labels) == len(Outcome)
    assert differences([few], judged([few], "cpu")) == []


def test_a_verdict_that_differs_is_named_with_both_reasons(few: Row) -> None:
    first = few.labels[0]
    other = replace(few, labels=(replace(first, outcome=Outcome.hung, message="killed"), *few.labels[1:]))
    (line,) = differences([few], [other])
    assert first.source in line and first.message in line and "now hung (killed)" in line
    (kept,) = stable([[few], [other], [few]])
    assert kept.labels == few.labels[1:]


def test_a_corpus_is_read_as_it_was_written(corpus: list[Row], tmp_path: Path) -> None:
    write(tmp_path / "cpu.jsonl.xz", corpus)
    again, before = (lzma.decompress(path.read_bytes()) for path in (tmp_path / "cpu.jsonl.xz", CPU))
    assert again == before
    assert read(tmp_path / "cpu.jsonl.xz") == corpus
