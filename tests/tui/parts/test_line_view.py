"""Lines: wrapping, following, searching, copying, with ten thousand of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Offset
from textual.selection import Selection

from kernel_assistant_tui.widgets.glyphs import ascii_of, clean
from kernel_assistant_tui.widgets.line_view import LineView, StyledText
from kernel_assistant_tui.widgets.wrapping import wrapped
from tests.tui.parts.hosting import hosted

SIZE = (40, 10)


def seen(app):
    """The rows that the lines fill."""
    return [app.widget.render_line(y).text.rstrip() for y in range(app.widget.size.height)]


def lines(count, start=0):
    return [Content(f"line {number}") for number in range(start, start + count)]


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=120), st.integers(2, 30))
def test_rows_hold_every_character_once_and_fit(text, width):
    rows = wrapped(text, width)
    assert "".join(text[start:end] for start, end in rows) == text
    assert all(cell_len(text[start:end]) <= width for start, end in rows)


@pytest.mark.asyncio
async def test_words_are_wrapped_also_where_code_is_not():
    async with hosted(LineView(wrap=False), SIZE) as (app, pilot):
        app.widget.replace([StyledText("word " * 20, ""), Content("code " * 20)])
        await pilot.pause()
        assert seen(app)[0].startswith("word") and seen(app)[1].startswith("word")
        assert sum("code" in row for row in seen(app)) == 1 and app.widget.virtual_size.width == 100
        await pilot.resize_terminal(25, 10)
        await pilot.pause()
        assert sum("word" in row for row in seen(app)) >= 4


def test_lines_break_behind_words():
    text = "alpha beta gamma delta"
    assert [text[start:end] for start, end in wrapped(text, 12)] == ["alpha beta ", "gamma delta"]


@pytest.mark.asyncio
async def test_it_stays_at_its_end_until_the_user_goes_up_and_again_after_they_come_back():
    async with hosted(LineView(follow=True), SIZE) as (app, pilot):
        view = app.widget
        view.focus()
        view.append(lines(50))
        assert seen(app)[-1] == "line 49"
        await pilot.press("pageup")
        assert not view.follow
        before = seen(app)
        view.append(lines(5, 50))
        await pilot.pause()
        assert seen(app) == before
        await pilot.press("end")
        assert view.follow and seen(app)[-1] == "line 54"
        view.append(lines(1, 55))
        assert seen(app)[-1] == "line 55"
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        assert view.follow and seen(app)[-1] == "line 55"
        await pilot.resize_terminal(1, 1)
        await pilot.resize_terminal(40, 12)
        await pilot.pause()
        assert seen(app)[-1] == "line 55"


@pytest.mark.asyncio
async def test_without_following_it_stays_where_it_is_when_it_is_wrapped_anew():
    async with hosted(LineView(), SIZE) as (app, pilot):
        view = app.widget
        view.append([Content(f"{number} " + "word " * 12) for number in range(200)])
        view.show_line(100)
        await pilot.pause()
        row = view.scroll_offset.y
        await pilot.resize_terminal(70, 10)
        await pilot.pause()
        assert view.scroll_offset.y < row
        assert any(line.startswith("100 ") for line in seen(app))


@pytest.mark.asyncio
async def test_search_marks_and_goes_round():
    async with hosted(LineView(), SIZE) as (app, pilot):
        view = app.widget
        view.append(lines(300))
        view.find("LINE 29")
        assert view.matches == (1, 11)
        view.find_next()
        await pilot.pause()
        assert view.matches == (2, 11) and "line 290" in seen(app)
        view.find_next(-2)
        assert view.matches == (11, 11)
        view.append(lines(1, 29000))
        assert view.matches == (11, 12)
        view.find("nowhere")
        assert view.matches == (0, 0)
        view.find_next()
        view.find("")
        assert view.matches == (0, 0)


@pytest.mark.asyncio
async def test_what_is_selected_has_the_lines_as_they_were():
    async with hosted(LineView(), SIZE) as (app, pilot):
        view = app.widget
        view.append([Content("first line"), Content("a " * 60 + "end"), Content("last")])
        await pilot.pause()
        whole = view.get_selection(Selection(None, None))
        assert whole == ("first line\n" + "a " * 60 + "end\nlast", "\n")
        part = view.get_selection(Selection(Offset(6, 0), Offset(3, 1)))
        assert part == ("line\na a", "\n")
        assert view.text == whole[0]


@pytest.mark.asyncio
async def test_ten_thousand_lines_are_drawn_where_one_looks():
    async with hosted(LineView(follow=True), SIZE) as (app, pilot):
        view = app.widget
        view.append([Content(f"line {number} " + "x" * (number % 150)) for number in range(10_000)])
        await pilot.pause()
        drawn = 0
        draw = view._strip

        def counted(place):
            nonlocal drawn
            drawn += 1
            return draw(place)

        view._strip = counted
        view.focus()
        for _ in range(20):
            await pilot.press("pageup")
        # Twenty pages of ten rows, each row once: not the fifteen thousand there are.
        assert drawn <= 20 * 12
        assert view.virtual_size.height > 10_000


@pytest.mark.asyncio
async def test_lines_that_are_not_wrapped_scroll_sideways():
    async with hosted(LineView(wrap=False), SIZE) as (app, pilot):
        app.widget.append([Content("x" * 100 + "end")])
        await pilot.pause()
        assert app.widget.virtual_size == (103, 1)
        app.widget.scroll_to(x=80)
        assert seen(app)[0].endswith("end")


@pytest.mark.parametrize("text", ["\x1b[31mred", "bell\x07", "back\x08", "\x9b2J", "a\rb"])
def test_nothing_that_steers_a_terminal_comes_through(text):
    assert clean(text).isprintable()


def test_ascii_of_our_own_words():
    assert ascii_of("2.10× (0.3–1.2) 45 µs · 日本") == "2.10x (0.3-1.2) 45 us - ??"


@pytest.mark.asyncio
async def test_the_mouse_selects_text_that_is_scrolled_and_wrapped():
    async with hosted(LineView(follow=True), SIZE) as (app, pilot):
        view = app.widget
        view.append([Content(f"{number} " + "word " * 12) for number in range(50)])
        await pilot.pause()
        assert view.follow and view.scroll_offset.y > 0
        place = next(y for y, row in enumerate(seen(app)) if row.startswith("48 "))
        await pilot.mouse_down(view, offset=(3, place))
        await pilot.hover(view, offset=(6, place + 1))
        await pilot.mouse_up(view, offset=(6, place + 1))
        await pilot.pause()
        selected = app.screen.get_selected_text()
        assert selected is not None
        assert ("48 " + "word " * 12).startswith(selected, 3) and len(selected) > 30
