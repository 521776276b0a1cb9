"""Charts, bars, gauges and the texts of a result, as lines."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace

from kernel_assistant.cli.report import report
from kernel_assistant.events import BaselineMeasured, BestImproved, JobFailed, JobFinished, ModelReplied, Progress
from kernel_assistant.records import JobOutcome, Spending, Tier
from kernel_assistant.session.reporting.report import facts
from kernel_assistant.session.reporting.words import NOT_CONFIRMED
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.search_view import SearchView
from kernel_assistant_tui.widgets import glyphs
from kernel_assistant_tui.widgets.chart import Series, chart, plainly
from kernel_assistant_tui.widgets.code import diff_lines, source_lines, sources_diff
from kernel_assistant_tui.widgets.compare import compared
from kernel_assistant_tui.widgets.figures import NO_CEILING, NOTHING_RIGHT, best_lines, headline
from tests.tui.parts.events import GENERATOR, MODEL, events_of, folded, right, wrong


@pytest.fixture(autouse=True, params=[True, False], ids=["utf8", "ascii"])
def draws_boxes(request):
    return request.param


def plain(lines):
    return [line.plain for line in lines]


RISING = Series("up", [(float(n), float(n)) for n in range(10)], "$primary")


@pytest.mark.parametrize("size", [(24, 5), (40, 10), (133, 20)])
def test_a_chart_fits_and_says_its_ends(size, utf8):
    lines = plain(chart([RISING], *size, braille=utf8, across="steps"))
    assert len(lines) == size[1] and all(len(line) <= size[0] for line in lines)
    assert all(line.isascii() for line in lines) or utf8
    assert lines[0].endswith(" up") and lines[-1].split() == ["0", "9", "steps"]
    assert "9.45" in lines[1] and " 0" in lines[-2]
    drawn = [re.split(r"[│|]", line, maxsplit=1)[1] for line in lines[1:-1]]
    first, last = (next(place for place, line in enumerate(drawn) if line[at].strip()) for at in (0, -1))
    assert (first, last) == (len(drawn) - 1, 0) or first - last > 0.8 * len(drawn)


def test_the_dotted_line_says_where_it_is(utf8):
    lines = plain(chart([RISING], 60, 12, braille=utf8, level=3.0))
    mark = "·" if utf8 else "."
    dotted = [line for line in lines if line.count(mark) > 10]
    assert len(dotted) == 1 and dotted[0].split()[0].rstrip("│|" + mark) == "3"


def test_steps_that_stay_equal_are_one_line(utf8):
    corners = [(1.0, 2.0), (5.0, 2.0), (5.0, 4.0), (9.0, 4.0)]
    points = [(float(x), 2.0 if x < 5 else 4.0) for x in range(1, 10)]
    known, many = (
        chart([Series("s", one, "", steps=steps)], 40, 10, braille=utf8)
        for one, steps in ((corners, False), (points, True))
    )
    assert plain(known) == plain(many)


def test_a_chart_without_room_or_numbers_is_none(utf8):
    assert chart([RISING], 23, 10, braille=utf8) == []
    assert chart([RISING], 40, 4, braille=utf8) == []
    assert chart([Series("none", [(1.0, math.nan), (math.inf, 2.0)], "")], 40, 10, braille=utf8) == []


def test_one_point_and_a_flat_line_have_a_place(utf8):
    for points in ([(3.0, 7.0)], [(1.0, 0.0), (2.0, 0.0)]):
        lines = plain(chart([Series("one", points, "$primary")], 40, 8, braille=utf8))
        assert sum(bool(re.split(r"[│|]", line, maxsplit=1)[1].strip()) for line in lines[1:-1]) == 1


def test_numbers_as_axes_have_them():
    assert [plainly(value) for value in (0.00123456, 12.345, 12345.6, 2.5e8)] == ["0.00123", "12.3", "12346", "2.5e+08"]


def test_the_words_are_those_of_the_command_line(utf8):
    view = folded(events_of(GENERATOR))
    assert view.result is not None and view.shown is not None
    lines = plain(best_lines(view, facts(view.result, view.shown.full), 200))
    said = " ".join(lines)
    assert all(line.isascii() for line in lines) or utf8
    for row in report(view.result)[2:]:
        name, _, words = row.strip().partition("  ")
        if name in ("tried", "written by"):
            assert f"{name} {words.strip()}" in " ".join(said.split())


def test_before_anything_was_found_it_says_so():
    assert headline(SearchView(job="1")).plain == "waiting for its turn"
    assert NOTHING_RIGHT in plain(best_lines(folded([wrong("a", 1)]), [], 60))
    failed = folded([JobFailed(cause="no inputs", next_step="draft them", exit_code=2)])
    assert plain(best_lines(failed, [], 60))[:2] == ["failed: no inputs", "next: draft them"]


def best(candidate, *, confirmed):
    figures = {"candidate_ms": 1.0, "speedup_vs_eager": 4.0, "speedup_vs_compile": 2.0}
    return BestImproved(candidate=candidate, schedule="rows", confirmed=confirmed, **figures)


def test_what_a_model_has_cost_stands_beside_the_candidates():
    spent = Spending(requests=2, tokens_in=900, tokens_out=80, money=0.5)
    said = ModelReplied(conversation=1, turn=1, role="assistant", text="", spent=spent)
    words = "model       2 requests, 900 tokens in, 80 out, cost 0.50"
    assert words in plain(best_lines(folded([right("a", 1, 1.0), said]), [], 80))
    assert words in plain(best_lines(folded([wrong("a", 1), said]), [], 80))
    assert "requests" not in "".join(plain(best_lines(folded([wrong("a", 1)]), [], 80)))


def test_figures_of_the_search_are_called_that():
    view = folded([right("abc", 1, 1.0), best("abc", confirmed=False)])
    assert headline(view).plain == NOT_CONFIRMED
    assert headline(fold(view, best("abc", confirmed=True))).plain == "confirmed on fresh samples"


def test_the_table_of_times_fits_beside_two_other_panes():
    view = folded(events_of(GENERATOR))
    at = {width: plain(best_lines(view, [], width)) for width in (36, 80)}
    rows = {width: [line for line in lines if re.search(r" ms +\d", line)] for width, lines in at.items()}
    assert [row.split()[0] for row in rows[36]] == ["eager", "compile"]
    assert [row.split()[0] for row in rows[80]] == ["eager", "torch.compile"]
    assert max(map(len, rows[36])) <= 36


def test_shares_of_the_roofline(utf8):
    base = BaselineMeasured(eager_ms=4.0, compile_ms=None, floor_ms=0.5)
    lines = plain(best_lines(folded([base]), [], 60))
    assert [line.split()[-1] for line in lines if line.startswith("eager  ")] == ["12%"]
    assert "torch.compile not measured" in " ".join(" ".join(lines).split())
    lines = plain(best_lines(folded([base, right("abc", 1, 1.0), best("abc", confirmed=True)]), [], 60))
    bars = {line.split()[0]: line for line in lines if line.endswith("%") and line[:1] != " "}
    shares = {"eager": "12%", "torch.compile": "25%", "ours": "50%"}
    assert {name: line.split()[-1] for name, line in bars.items()} == shares
    full = "█" if utf8 else "#"
    assert bars["ours"].count(full) == pytest.approx(2 * bars["torch.compile"].count(full), abs=1)
    unknown = plain(best_lines(folded([replace(base, floor_ms=0.0)]), [], 60))
    assert NO_CEILING in unknown


@pytest.mark.parametrize("width", [10, 36, 120])
@pytest.mark.parametrize("log", [GENERATOR, MODEL], ids=["generator", "model"])
def test_every_state_of_a_real_job_can_be_drawn(log, width):
    view = SearchView(job="1")
    for event in events_of(log):
        view = fold(view, event)
        assert best_lines(view, [], width)
    assert best_lines(fold(view, Progress(phase="model", message="")), [], width)


def test_a_job_that_checked_one_candidate_shows_it():
    result = replace(events_of(GENERATOR)[-1].result, best=None, outcome=JobOutcome.no_measurable_gain, free_wins=())
    view = folded([right("abcdefghij", 0, 1.0, tier=Tier.full), JobFinished(result=result)])
    assert view.turns == () and view.shown is not None
    lines = plain(best_lines(view, [], 80))
    assert lines[0] == "no gain was confirmed"
    assert any(line.split() == ["ours", "1", "ms"] for line in lines)
    assert "Speed-up over turns" not in lines


def test_two_candidates_side_by_side():
    view = folded([right("aaaaaaaaaa", 1, 1.0), wrong("bbbbbbbbbb", 2)])
    sources = {"aaaaaaaaaa": {"kernel.cpp": "int a;\nint b;\n"}, "bbbbbbbbbb": {"kernel.cpp": "int a;\nint c;\n"}}
    lines = plain(compared(view.candidates[0], view.candidates[1], sources, 80))
    assert lines[0].split() == ["aaaaaaaa", "bbbbbbbb"]
    assert lines[1].split() == ["outcome", "correct", "(quick)", "compile", "error", "(quick)"]
    assert "-int b;" in lines and "+int c;" in lines
    without = plain(compared(view.candidates[0], view.candidates[1], {}, 80))
    assert sum("its source is not here yet" in line for line in without) == 2


def test_sources_have_the_compilers_line_numbers_and_headers_come_last():
    lines = plain(source_lines({"a.h": "int h;", "kernel.cu": "__global__ void k() {\n\tint x = 1;\x1b\n}\n"}))
    assert lines[0] == "kernel.cu" and lines[-2:] == ["a.h", "1 int h;"]
    assert lines[1:4] == ["1 __global__ void k() {", f"2     int x = 1;{glyphs.clean(chr(27))}", "3 }"]


def test_what_makes_one_source_of_another():
    diff = sources_diff({"a.h": "1\n", "k.cpp": "x\n"}, {"k.cpp": "y\n"})
    assert diff.splitlines()[:2] == ["--- a/a.h", "+++ b/a.h"] and diff.endswith("-x\n+y")
    assert sources_diff({"a": "x"}, {"a": "x"}) == ""
    styles = {line.plain[:2]: line.spans[0].style for line in diff_lines(diff)}
    assert styles["+y"] != styles["-x"] != styles["--"]
