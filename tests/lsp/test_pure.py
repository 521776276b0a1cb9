"""Functions that need no server: positions, lines of classes, lenses, views of jobs, edits, settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.converters import get_converter
from lsprotocol.types import Position, Range, TextDocumentContentChangePartial
from msgspec import structs

from kernel_assistant.config import resolve
from kernel_assistant.events import (
    BaselineMeasured,
    BestImproved,
    JobFailed,
    JobFinished,
    JobQueued,
    JobStarted,
    ModelReplied,
    Progress,
    TaskOpened,
    Warned,
)
from kernel_assistant.records import JobOutcome, Offer, Spending
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.reporting.job_view import fold
from kernel_assistant.source.outline import outline
from kernel_assistant_lsp.jobs.progress import message
from kernel_assistant_lsp.jobs.view import EditorJob, at_its_end
from kernel_assistant_lsp.lens import encoded, lenses
from kernel_assistant_lsp.settings import flags_of, section_of, switched_on
from kernel_assistant_lsp.silence import ignored, with_comment
from kernel_assistant_lsp.text.classes import moved
from kernel_assistant_lsp.text.documents import changed
from kernel_assistant_lsp.text.edits import text_edits
from kernel_assistant_lsp.text.parsing import SMALL, ParseCache
from kernel_assistant_lsp.text.snapshot import Snapshot
from tests.common import results
from tests.lsp.editor import MODEL
from tests.lsp.features.records import snapshot
from tests.tui.parts.events import wrong

IMPROVED = ClassState("3", "done", "improved", "2.1× vs torch.compile", offers=Offer.recommended)
TEXTS = st.text(st.sampled_from("ab \t\n\r\x0c\u2028é🙂𝔸"), max_size=60)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, ENCODINGS, st.data())
def test_positions_and_offsets_are_inverse(text, encoding, data):
    here = snapshot(text, encoding=encoding)
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n" and offset:
        offset -= 1  # between the two there is no place
    assert here.offset(here.position(offset)) == offset
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [here.line(number) for number in range(len(here.starts))] == lines


@given(TEXTS, ENCODINGS, st.integers(0, 99), st.integers(0, 99))
def test_a_position_that_is_nowhere_means_the_nearest_end(text, encoding, line, character):
    here = snapshot(text, encoding=encoding)
    offset = here.offset(Position(line, character))
    assert 0 <= offset <= len(text)
    if line < len(here.starts):
        assert here.starts[line] <= offset <= here.line_end(line)


@given(TEXTS, TEXTS, ENCODINGS)
def test_edits_make_the_text_that_was_wanted(before, after, encoding):
    here = snapshot(before, encoding=encoding)
    changes = [TextDocumentContentChangePartial(range=one.range, text=one.new_text) for one in text_edits(here, after)]
    assert changed(here, reversed(changes), 2).text == after


@given(TEXTS, TEXTS, st.data())
def test_lines_of_an_edited_text_are_those_of_the_text(before, put, data):
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(before)), st.integers(0, len(before)))))
    here = snapshot(before)
    assert here.starts[0] == 0
    there = here.with_change(start, end, put).of_version(2)
    assert there.text == before[:start] + put + before[end:] and there.starts == snapshot(there.text).starts


def test_edits_touch_no_other_line():
    here = snapshot(MODEL)
    after = MODEL.replace("class Gate", "@one\nclass Gate").replace("import torch\n", "import torch\nimport x\n")
    edits = [(one.range.start.line, one.range.end.line, one.new_text) for one in text_edits(here, after)]
    assert edits == [(1, 1, "import x\n"), (4, 4, "@one\n")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_classes_are_found_again_in_a_text_that_was_not_read_yet(end):
    text = (MODEL + "\n\n@deco\nclass Other(Gate):\n    pass\n").replace("\n", end)
    known = outline(text)
    broken = text.replace(f"import torch{end}", f"import torch{end}x = ({end}y{end}", 1)
    found = moved(known, snapshot(text), snapshot(broken))
    assert [(one.name, one.line) for one in found.classes] == [(one.name, one.line + 2) for one in known.classes]
    renamed = text.replace("class Gate", "class Gates", 1)
    assert [one.name for one in moved(known, snapshot(text), snapshot(renamed)).classes] == ["Other"]


@given(st.data())
def test_where_classes_have_moved_is_where_they_are(data):
    """Lines are inserted and removed anywhere outside the classes, with all kinds of line ends."""
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    blocks = ["import torch", "from torch import nn", "", *(_block(name) for name in "ABCA"), "x = 1", ""]
    before = "\n".join(blocks).replace("\n", end)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(2, len(blocks)))
        if data.draw(st.booleans()) or place == len(blocks) or blocks[place].startswith("class"):
            blocks.insert(place, data.draw(st.sampled_from(["", "# more", "y = 2", "\n\n", "z = (1,\n2)"])))
        else:
            del blocks[place]
    after = "\n".join(blocks).replace("\n", end)
    found = moved(outline(before), snapshot(before), snapshot(after))
    assert [(one.name, one.line) for one in found.classes] == [(one.name, one.line) for one in outline(after).classes]


def _block(name):
    return f"class {name}(nn.Module):\n    def forward(self, x):\n        return x\n"


def test_a_class_whose_header_is_being_typed_stays():
    parses, text = ParseCache(), f"{MODEL}\n# {'x' * SMALL}\n"
    assert parses.parse(snapshot(text))
    for header in ("class Gate(nn.", "class Gate(", "class Gate"):
        half = snapshot(text.replace("class Gate(nn.Module):", header))
        (one,) = parses.outline(half).classes
        parses.parse(half)
        assert parses.outline(half).classes == (one,) and parses.outline(half).fault_of(one)


def running_job(name, words):
    view = EditorJob(job="4", uri="file:///model.py", class_name=name)
    return fold(view, JobStarted(device="cpu:0"), Progress(phase="search", message=words))


def titles(state=None, running=None, text=MODEL):
    here = snapshot(text)
    states, active = {"Gate": state} if state else {}, {"Gate": running} if running else {}
    found = lenses(here, outline(text), states, active)
    return [one.command.title for one in found]


def test_what_a_lens_says():
    assert titles() == ["Optimize with Kernel Assistant"]
    assert titles(IMPROVED) == ["2.1× vs torch.compile · verified · show", "Kernels", "Review", "Apply", "Discard"]
    assert titles(ClassState(job="3", state="done", outcome="at_limit"))[0] == "Kernel Assistant: at limit · show"
    assert titles(ClassState(job="3", state="interrupted")) == ["Kernel Assistant: interrupted · continue"]
    eager = replace(IMPROVED, outcome="no_measurable_gain", figure="1.9× vs eager", gain_over="eager")
    eager = replace(eager, offers=Offer.possible)
    assert titles(eager)[:3] == ["1.9× vs eager · verified · show", "Kernels", "Review"]
    assert titles(eager)[3:] == ["Apply (torch.compile alone gives more)", "Discard"]
    open_ended = ClassState(job="3", state="done", outcome="inconclusive", unconfirmed="3")
    assert titles(open_ended)[1:] == ["Verify in full (job 3)", "Optimize again"]
    assert titles(ClassState(unconfirmed="4")) == ["Optimize with Kernel Assistant", "Verify in full (job 4)"]
    old = replace(IMPROVED, stale="Gate was edited since job 3")
    assert titles(old) == ["stale: Gate was edited since job 3 · show", "Optimize again"]
    served = ClassState(applied=True, figure="2.1×", kernel_calls=9, fallbacks={"shape": 2, "gradient": 1})
    assert titles(served) == ["2.1× · verified · last run: 3 of 12 calls fell back (shape) · show", "Undo"]
    assert titles(replace(IMPROVED, applied=True))[1:] == ["Kernels", "Undo"]
    view = running_job("Gate", "turn 2: correct")
    assert titles(IMPROVED, view) == ["Kernel Assistant: turn 2: correct", "Transcript", "Cancel"]
    assert titles(text=MODEL.replace("class Gate", "# kernel-assistant: ignore\nclass Gate")) == []
    broken = MODEL.replace("torch.relu(x)", "torch.relu((x)", 1)
    said = "syntax error on line 7: '(' was never closed"
    assert titles(text=broken) == [said] and titles(IMPROVED, text=broken) == [said, "Show"]
    assert titles(served, text=broken) == [said, "Undo"]
    assert titles(IMPROVED, view, broken)[1:] == titles(IMPROVED, view)


def test_lenses_are_the_same_as_text():
    more = "\n\nclass Ä(nn.Module):\n    def forward(self, x): ...\n\nif 1:\n\tclass B(Gate): ...\n"
    text = MODEL + more + "\n\nclass Torn(nn.Module):\n    def forward(self, x): (\n"
    states, running = {"Gate": IMPROVED}, {"B": running_job("B", 'says "so"')}
    for here in (snapshot(text), Snapshot("untitled:1", Path("1"), text, 1)):
        known = outline(text)
        found = json.loads(encoded(here, known, states, running))
        assert found == get_converter().unstructure(lenses(here, known, states, running)) and len(found) >= 4


def test_a_view_follows_its_job():
    view = EditorJob(job="4", uri="u", class_name="Gate", budget=100.0)
    view = fold(view, JobStarted(device="cpu:0", budget=100.0, time=970.0))
    view = fold(view, BaselineMeasured(eager_ms=3.0, compile_ms=2.0, floor_ms=0.1))
    view = fold(view, Progress(phase="search", message="searching", time=1000.0))
    assert view.percent == 15
    figures = {"candidate_ms": 1.0, "speedup_vs_eager": 3.0, "speedup_vs_compile": 2.0}
    best = BestImproved(candidate="c", schedule="s", time=1050.0, **figures)
    view = fold(view, best)
    assert view.percent == 47 and view.message == "best so far: 2.00× vs torch.compile, not confirmed"
    assert view.document()["left"] == 20.0
    assert message(view) == "best so far: 2.00× vs torch.compile, not confirmed · 20 s left"
    assert view.document()["best"] == {"ms": 1.0, "compile_ms": 2.0, "speedup": 2.0, "confirmed": False}
    sure = fold(view, structs.replace(best, confirmed=True))
    assert sure.message == "best so far: 2.00× vs torch.compile" and sure.document()["best"]["confirmed"]
    view = fold(view, Progress(phase="search", message="on", time=9999.0))
    assert view.percent == 79 and message(view).startswith("on · best 2.00× vs torch.compile, not confirmed · ")
    assert message(view).endswith("over its budget")
    spent = Spending(requests=2, tokens_in=900, tokens_out=80)
    asked = fold(view, ModelReplied(conversation=1, turn=1, role="assistant", text="", spent=spent))
    assert message(asked).endswith(" · 2 requests, 900 tokens in, 80 out · over its budget")
    assert (view.document()["spent"], asked.document()["spent"]) == ("", "2 requests, 900 tokens in, 80 out")
    view = fold(view, JobFailed(cause="no compiler", next_step="install one", exit_code=3))
    assert (view.state, view.message, view.next_step, view.percent) == ("failed", "no compiler", "install one", 100)
    assert at_its_end(view) == "Gate: no compiler; install one"
    result = results.result(task="t", best=results.best(), artifacts={})
    view = fold(EditorJob(job="4", uri="u", class_name="Gate"), JobFinished(result=result))
    assert at_its_end(view) == (
        "Gate: improved: 2.00× vs torch.compile, verified; review or apply it with the code actions of the class"
    )


@pytest.mark.parametrize(
    ("event", "status", "words"),
    [
        (JobQueued(task="t", target="cpu"), "queued", "queued"),
        (JobQueued(task="t", target="cpu", position=1), "queued", "waiting for 1 other job"),
        (JobStarted(device="cpu:0", resumed=True), "running", "going on"),
        (BaselineMeasured(eager_ms=3.0, compile_ms=2.0, floor_ms=0.1), "running", "the original is measured"),
        (wrong("a", 2), "running", "turn 2: compile error"),
        (Warned(message="timing is disturbed"), "running", "timing is disturbed"),
        (TaskOpened(graph="g", nodes=3), "running", "started"),
        (JobFinished(result=results.result(outcome=JobOutcome.cancelled, best=None)), "cancelled", "cancelled"),
        (JobFinished(result=results.result(outcome=JobOutcome.failed, best=None)), "failed", "failed"),
    ],
)
def test_the_status_and_the_message_of_a_job(event, status, words):
    view = fold(EditorJob(job="4", uri="u", class_name="Gate"), JobStarted(device="cpu:0"), event)
    assert (view.document()["state"], view.message) == (status, words)


def test_ignoring_keeps_indentation_and_line_ends():
    text = "import torch\r\nif True:\r\n\tclass A(torch.nn.Module):\r\n\t\tdef forward(self, x): return x\r\n"
    here = snapshot(text)
    (one,) = outline(text).classes
    silent = with_comment(here, one)
    assert silent == text.replace("\tclass A", "\t# kernel-assistant: ignore\r\n\tclass A")
    (again,) = outline(silent).classes
    assert ignored(snapshot(silent), again) and not ignored(here, one)


def test_settings_of_the_editor_are_options():
    budget = {"seconds": 9, "turns": None, "money": 0.5}
    section = {"target": "cpu", "interpreter": "/p", "budget": budget, "host": "", "lens": False}
    assert flags_of(section) == {"target": "cpu", "python": "/p", "budget": 9, "money": 0.5}
    assert not switched_on(section, "lens") and switched_on(section, "inlay")
    assert section_of({"kernelAssistant": {"target": "cpu"}}) == section_of({"target": "cpu"}) == {"target": "cpu"}
    assert section_of(None) == section_of(5) == section_of({"kernelAssistant": 3}) == {}


def test_an_editor_s_defaults_do_not_override_the_project_s_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-assistant]\npolicy = "generator"\ntarget = "cpu"\n')
    settings, _ = resolve(tmp_path / "model.py", flags_of({"policy": "auto", "target": "auto", "sandbox": "auto"}))
    assert (settings.policy, settings.target, settings.sandbox) == ("generator", "cpu", "auto")


def test_a_range_that_is_the_wrong_way_round_is_taken_as_it_is_meant():
    here = snapshot("abc\ndef\n")
    change = TextDocumentContentChangePartial(range=Range(Position(1, 1), Position(0, 1)), text="X")
    assert changed(here, [change], 2).text == "aXef\n"
