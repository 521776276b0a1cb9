"""The transcript as a user sees it, for the logs of real jobs, event by event."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kernel_assistant.events import JobStarted, ModelReplied, Progress
from kernel_assistant.records import Spending
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.lines import Line, LineKind
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.widgets.episode import Episode
from tests.tui.parts.events import GENERATOR, MODEL, events_of, folded
from tests.tui.parts.hosting import hosted

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (160, 50)])
async def test_a_job_is_shown_as_it_goes_and_ends_at_its_end(size):
    async with hosted(Episode(), size) as (app, pilot):
        view = SearchView(job="1")
        assert "Nothing runs here" in app.shown
        for event in events_of(GENERATOR):
            view = fold(view, event)
            app.widget.show(view)
        await pilot.pause()
        assert "ended:" in app.shown and view.counts in app.shown
        assert app.widget.text.splitlines() == [line.text for line in view.lines]


async def test_the_time_that_is_left_and_what_a_model_has_cost_are_shown():
    async with hosted(Episode()) as (app, pilot):
        started = JobStarted(device="cpu:0", budget=100.0, time=10.0, seq=1)
        searching = Progress(phase="search", message="searching", time=70.0, seq=2)
        spent = Spending(requests=2, tokens_in=900, tokens_out=80)
        reply = ModelReplied(conversation=1, turn=1, role="assistant", text="", spent=spent, time=70.0, seq=2)
        app.widget.show(fold(SearchView(job="1"), started, reply, replace(searching, seq=3)))
        await pilot.pause()
        assert "searching · 40 s left · 2 requests, 900 tokens in, 80 out" in app.shown


async def test_several_conversations_are_labelled_and_can_be_seen_alone():
    async with hosted(Episode()) as (app, pilot):
        app.widget.show(folded(events_of(MODEL)))
        app.widget.lines.focus()
        await pilot.pause()
        lines = app.widget.text.splitlines()
        assert {line[:3] for line in lines if line.startswith("[")} == {f"[{n}]" for n in range(1, 9)}
        await pilot.press("t", "t")
        alone = app.widget.text.splitlines()
        assert {line[:3] for line in alone if line.startswith("[")} == {"[2]"}
        assert "conversation 2 alone" in app.shown and "ended:" in alone[-1]
        await pilot.press(*["t"] * 7)
        assert app.widget.text.splitlines() == lines


async def test_a_first_conversation_is_labelled_when_a_second_one_comes():
    async with hosted(Episode()) as (app, _):
        view = SearchView(job="1")
        for event in events_of(MODEL):
            if getattr(event, "conversation", 1) == 1:
                view = fold(view, event)
        app.widget.show(view)
        assert "[1]" not in app.widget.text
        app.widget.show(replace(view, conversations=2))
        assert "[1] ```cpp" in app.widget.text


async def test_search():
    async with hosted(Episode()) as (app, pilot):
        app.widget.show(folded(events_of(MODEL)))
        app.widget.lines.focus()
        await pilot.press("slash", *"ka_relu")
        await pilot.pause()
        assert "match 1 of 3" in app.shown and "not following" in app.shown
        assert any("ka_relu" in row for row in app.rows)
        await pilot.press("enter", "n")
        assert app.widget.lines.matches == (2, 3)
        await pilot.press("N", "N")
        assert app.widget.lines.matches == (3, 3)
        await pilot.press("escape")
        assert "match" not in app.rows[-1] and app.widget.lines.matches == (0, 0)
        await pilot.press("f")
        assert app.widget.lines.follow and "not following" not in app.shown


async def test_another_job_takes_the_place_of_the_first_and_back():
    async with hosted(Episode()) as (app, pilot):
        first, second = folded(events_of(GENERATOR)), folded(events_of(MODEL), "7")
        for view in (first, second, first):
            app.widget.show(view)
            assert len(app.widget.text.splitlines()) == len(view.lines)
        await pilot.pause()
        assert "[" not in {row.strip()[:1] for row in app.rows}


async def test_ten_thousand_lines_and_one_more():
    async with hosted(Episode()) as (app, pilot):
        view = SearchView(job="1")
        view = replace(view, lines=view.lines.plus(Line(LineKind.said, f"line {n}") for n in range(10_000)))
        app.widget.show(view)
        laid_out = app.widget.lines._lay_out
        counts = []
        app.widget.lines._lay_out = lambda first: counts.append(first) or laid_out(first)
        view = replace(view, lines=view.lines.plus([Line(LineKind.said, "the last")]))
        app.widget.show(view)
        app.widget.show(view)
        await pilot.pause()
        assert counts == [10_000] and "the last" in app.shown


async def test_what_a_kernel_prints_does_not_steer_the_terminal():
    async with hosted(Episode()) as (app, pilot):
        view = SearchView(job="1")
        app.widget.show(replace(view, lines=view.lines.plus([Line(LineKind.detail, "a\x1b]0;title\x07b\x1b[2J")])))
        await pilot.pause()
        assert "\x1b" not in app.shown and "\x07" not in app.shown and "[2J" in app.shown
