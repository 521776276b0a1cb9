"""Functions that know no server: positions, places of classes, lenses, views of jobs, edits, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import Position, Range, TextDocumentContentChangePartial

from kernel_assistant.events import BaselineMeasured, BestImproved, JobFailed, JobStarted, Progress
from kernel_assistant.session.class_state import ClassState
from kernel_assistant_lsp.classes import classes_of, moved
from kernel_assistant_lsp.documents import changed
from kernel_assistant_lsp.edits import text_edits
from kernel_assistant_lsp.jobs.view import JobView, advanced
from kernel_assistant_lsp.lens import lenses
from kernel_assistant_lsp.settings import flags_of, section_of, switched_on
from kernel_assistant_lsp.silence import ignored, with_comment
from kernel_assistant_lsp.snapshot import Snapshot
from tests.lsp.editor import MODEL

TEXTS = st.text(st.sampled_from("ab \t\n\r\x0c\u2028é🙂𝔸"), max_size=60)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


def snapshot(text, encoding="utf-16"):
    return Snapshot("file:///model.py", Path("/model.py"), text, 1, encoding)


@given(TEXTS, ENCODINGS, st.data())
def test_positions_and_offsets_are_inverse(text, encoding, data):
    here = snapshot(text, encoding)
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n" and offset:
        offset -= 1  # between the two there is no place
    assert here.offset(here.position(offset)) == offset
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [here.line(number) for number in range(len(here.starts))] == lines


@given(TEXTS, ENCODINGS, st.integers(0, 99), st.integers(0, 99))
def test_a_position_that_is_nowhere_means_the_nearest_end(text, encoding, line, character):
    here = snapshot(text, encoding)
    offset = here.offset(Position(line, character))
    assert 0 <= offset <= len(text)
    if line < len(here.starts):
        assert here.starts[line] <= offset <= here.line_end(line)


@given(TEXTS, TEXTS, ENCODINGS)
def test_edits_make_the_text_that_was_wanted(before, after, encoding):
    here = snapshot(before, encoding)
    changes = [TextDocumentContentChangePartial(range=one.range, text=one.new_text) for one in text_edits(here, after)]
    assert changed(here, reversed(changes), 2).text == after


def test_edits_touch_no_other_line():
    here = snapshot(MODEL)
    after = MODEL.replace("class Gate", "@one\nclass Gate").replace("import torch\n", "import torch\nimport x\n")
    edits = text_edits(here, after)
    assert [(one.range.start.line, one.range.end.line, one.new_text) for one in edits] == [
        (1, 1, "import x\n"),
        (4, 4, "@one\n"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_classes_are_found_again_in_a_text_that_does_not_parse(end):
    text = (MODEL + "\n\n@deco\nclass Other(Gate):\n    pass\n").replace("\n", end)
    known = classes_of(text, "model.py")
    broken = text.replace(f"import torch{end}", f"import torch{end}x = ({end}y{end}", 1)
    assert classes_of(broken, "model.py") is None
    assert [(one.name, one.line) for one in moved(known, text, broken)] == [(one.name, one.line + 2) for one in known]
    assert [one.name for one in moved(known, text, text.replace("class Gate", "class Gates", 1))] == ["Other"]


def titles(state=None, running=None, text=MODEL):
    here = snapshot(text)
    states, active = {"Gate": state} if state else {}, {"Gate": running} if running else {}
    found = lenses(here, classes_of(text, "model.py"), states, active)
    return [one.command.title for one in found]


def test_what_a_lens_says():
    assert titles() == ["Optimize with Kernel Assistant"]
    done = ClassState(job="3", state="done", outcome="improved", figure="2.1× vs torch.compile")
    assert titles(done) == ["2.1× vs torch.compile · verified · show", "Review", "Apply", "Discard"]
    assert titles(ClassState(job="3", state="done", outcome="at_limit"))[0] == "Kernel Assistant: at limit · show"
    assert titles(ClassState(job="3", state="interrupted")) == ["Kernel Assistant: interrupted · continue"]
    old = ClassState(job="3", state="done", outcome="improved", figure="2×", stale="Gate was edited since job 3")
    assert titles(old) == ["stale: Gate was edited since job 3 · show", "Optimize again"]
    served = ClassState(applied=True, figure="2.1×", kernel_calls=9, fallbacks={"shape": 2, "gradient": 1})
    assert titles(served) == ["2.1× · verified · last run: 3 of 12 calls fell back (shape) · show", "Undo"]
    view = JobView(job="4", uri="file:///model.py", class_name="Gate", state="running", message="turn 2: correct")
    assert titles(done, view) == ["Kernel Assistant: turn 2: correct", "Cancel"]
    assert titles(text=MODEL.replace("class Gate", "# kernel-assistant: ignore\nclass Gate")) == []


def test_a_view_follows_its_job():
    view = JobView(job="4", uri="u", class_name="Gate", budget=100.0)
    view = advanced(view, JobStarted(device="cpu:0"))
    view = advanced(view, BaselineMeasured(eager_ms=3.0, compile_ms=2.0, floor_ms=0.1))
    view = advanced(view, Progress(phase="search", message="searching", time=1000.0))
    assert view.percent == 15
    best = BestImproved(
        candidate="c", schedule="s", candidate_ms=1.0, speedup_vs_eager=3.0, speedup_vs_compile=2.0, time=1050.0
    )
    view = advanced(view, best)
    assert view.percent == 47 and view.message == "best so far: 2.00× vs torch.compile"
    assert view.document()["best"] == {"ms": 1.0, "compile_ms": 2.0, "speedup": 2.0}
    view = advanced(view, Progress(phase="search", message="on", time=9999.0))
    assert view.percent == 79
    view = advanced(view, JobFailed(cause="no compiler", next_step="install one", exit_code=3))
    assert (view.state, view.message, view.next_step, view.percent) == ("failed", "no compiler", "install one", 100)


def test_ignoring_keeps_indentation_and_line_ends():
    text = "import torch\r\nif True:\r\n\tclass A(torch.nn.Module):\r\n\t\tdef forward(self, x): return x\r\n"
    here = snapshot(text)
    (one,) = classes_of(text, "model.py")
    silent = with_comment(here, one)
    assert silent == text.replace("\tclass A", "\t# kernel-assistant: ignore\r\n\tclass A")
    (again,) = classes_of(silent, "model.py")
    assert ignored(snapshot(silent), again) and not ignored(here, one)


def test_settings_of_the_editor_are_options():
    section = {"target": "cpu", "interpreter": "/p", "budget": {"seconds": 9, "turns": None}, "host": "", "lens": False}
    assert flags_of(section) == {"target": "cpu", "python": "/p", "budget": 9}
    assert not switched_on(section, "lens") and switched_on(section, "inlay")
    assert section_of({"kernelAssistant": {"target": "cpu"}}) == section_of({"target": "cpu"}) == {"target": "cpu"}
    assert section_of(None) == section_of(5) == section_of({"kernelAssistant": 3}) == {}


def test_a_range_that_is_the_wrong_way_round_is_taken_as_it_is_meant():
    here = snapshot("abc\ndef\n")
    change = TextDocumentContentChangePartial(range=Range(Position(1, 1), Position(0, 1)), text="X")
    assert changed(here, [change], 2).text == "aXef\n"
