"""The result pane: the figures of a real job, with candidates and a job folder in a real store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from kernel_assistant.events import JobFinished
from kernel_assistant.records import Candidate, InputSource, Plan, Step, decode
from kernel_assistant.store import JobOptions, Store
from kernel_assistant_tui.host.stored_jobs import StoredJobs
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.widgets.candidates import Candidates
from kernel_assistant_tui.widgets.result import EMPTY, Result
from tests.common.tasks import task_of
from tests.tui.parts.events import GENERATOR, events_of, folded, right, wrong
from tests.tui.parts.hosting import hosted, press, until

pytestmark = pytest.mark.asyncio

RECORDED = Path(__file__).parent.parent / "recorded"
SIZE = (90, 40)
TASK = task_of("/m.py", "", "M", source=InputSource.comment)


def made(text):
    """A candidate with a source of its own."""
    plan = decode((RECORDED / "plan.json").read_bytes(), Plan)
    return Candidate(plan=plan, sources={"kernel.cpp": text}, origin="generator")


@pytest.fixture
def judged(tmp_path):
    """Three candidates in a store, and the events about them."""
    store = Store(tmp_path)
    job = store.add_job(TASK, JobOptions(), "cpu:0").id
    candidates = [made(f"int a = {n};\nint same;\n") for n in range(3)]
    events = [right(one.hash(), n + 1, 3.0 - n) for n, one in enumerate(candidates[:2])]
    events.append(wrong(candidates[2].hash(), 3))
    for one, event in zip(candidates, events, strict=True):
        judged = {"candidates": (one,), "evaluations": (event.evaluation,)}
        store.add_step(job, Step(turn=event.turn, message="", started=0.0, ended=1.0, **judged))
    return tmp_path, [one.hash() for one in candidates], folded(events, job)


@asynccontextmanager
async def listed(state, view):
    """The pane with the table of a job's candidates."""
    async with hosted(Result(state), SIZE) as (app, pilot):
        app.widget.show(view)
        app.widget.focus()
        await pilot.press("c")
        await pilot.pause()
        yield app, pilot, app.query_one(Candidates)


def cells(table, column):
    return [str(cell) for cell in table.get_column(column)]


async def test_nothing_is_said_before_there_is_something(tmp_path):
    async with hosted(Result(tmp_path), SIZE) as (app, pilot):
        assert EMPTY in app.shown
        app.widget.show(SearchView(job="1"))
        app.widget.focus()
        for key, words in {
            "l": "There is no candidate that is right yet",
            "d": "known when the job has ended",
            "r": "Mark two candidates",
        }.items():
            await press(pilot, key, sees=lambda words=words: words in app.shown)
        await pilot.press("c", "space", "enter", "z", "b")
        assert "waiting for its turn" in app.shown


async def test_a_real_job_from_its_first_event_to_its_last(tmp_path):
    async with hosted(Result(tmp_path), SIZE) as (app, pilot):
        view = SearchView(job="1")
        for event in events_of(GENERATOR):
            view = fold(view, event)
            app.widget.show(view)
        await until(pilot, "stopped:")
        assert "Speed-up over turns" in app.shown and "Free, without a kernel" in app.shown
        await pilot.press("tab")
        app.widget.focus()
        await pilot.press("c")
        await pilot.pause()
        assert app.query_one(Candidates).row_count == len(view.candidates)
        for size in ((30, 6), (2, 1), SIZE):
            await pilot.resize_terminal(*size)
        await pilot.press("b")
        await pilot.pause()
        assert "Speed-up over turns" in app.shown


async def test_candidates_are_sorted_chosen_and_compared(judged):
    state, names, view = judged
    async with listed(state, view) as (app, pilot, table):
        short = [name[:8] for name in names]
        assert cells(table, "candidate") == [short[1], short[0], short[2]]
        assert cells(table, "outcome") == ["correct", "correct", "compile error"]
        await pilot.press(*"zzzz")
        assert cells(table, "turn") == ["1", "2", "3"]
        table._by(4)
        assert cells(table, "turn") == ["3", "2", "1"]
        table.move_cursor(row=0)
        await press(pilot, "enter", sees="int a = 2;")
        assert f"{short[2]} of turn 3, compile error" in app.shown
        await pilot.press("c", "space", "down", "space")
        await until(pilot, lambda: "-int a = 2;" in app.shown and "+int a = 1;" in app.shown)
        assert "compile error (quick)" in app.shown and "2.00×" in app.shown
        assert "int same;" in app.widget.text


async def test_a_candidate_that_is_judged_again_stays_one_row(judged):
    state, names, view = judged
    async with listed(state, view) as (app, pilot, table):
        app.widget.show(fold(view, wrong(names[1], 4, tier=view.candidates[0].evaluation.tier.full)))
        outcomes = ["compile error", "compile error", "correct"]
        await until(pilot, lambda: sorted(cells(table, "outcome")) == outcomes)
        assert table.row_count == 3


async def test_what_is_not_kept_is_called_that(judged):
    state, names, view = judged
    kept = StoredJobs(state)
    assert kept.sources(names[0])["kernel.cpp"].startswith("int a = 0;")
    assert kept.sources("0123456789abcdef") == {}
    diff, notes = kept.diff("999")
    assert diff == "" and notes == ["no job '999'"]
    result = events_of(GENERATOR)[-1].result
    gone = replace(result, artifacts={"evaluation.json": str(state)})
    assert [name for name, _ in kept.facts(gone, None)][-1] == "tried"
    assert [name for name, _ in kept.facts(gone, view.candidates[0].evaluation)][:2] == ["error", "in our kernels"]
    async with hosted(Result(state), SIZE) as (app, pilot):
        ended = fold(replace(view, job="host:3"), JobFinished(result=gone))
        app.widget.show(ended)
        app.widget.focus()
        await press(pilot, "d", sees="no job 'host:3'")
        here = replace(gone, artifacts={"job": view.job})
        app.widget.show(replace(ended, result=here))
        await until(pilot, "has no candidate to apply")
