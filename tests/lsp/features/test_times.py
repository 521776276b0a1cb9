"""Inlay hints and hover: times appear beside their lines, also after the text has moved."""

from __future__ import annotations

import pytest
from lsprotocol.types import MarkupContent, Position, Range

from kernel_assistant.records import JobOutcome
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant_lsp.features import hover, inlay, words
from tests.lsp.features.records import TEXT, job, profile, snapshot


def labels(text: str) -> dict[int, str]:
    return {hint.position.line: str(hint.label) for hint in inlay.hints(snapshot(text), profile())}


def shown(text: str, line: int, **more: object) -> str:
    found = hover.at(snapshot(text), Position(line, 4), more.pop("profile", None), more.pop("history", []), **more)  # type: ignore[arg-type]
    if found is None:
        return ""
    assert isinstance(found.contents, MarkupContent)
    return found.contents.value


def test_hints_stand_behind_their_statements() -> None:
    assert labels(TEXT) == {8: "250 µs · 20%", 9: "1 ms · 80%"}
    hints = inlay.hints(snapshot(TEXT), profile())
    assert [hint.position.character for hint in hints] == [9, len("        return y.tanh() @ y.mT")]
    assert inlay.hints(snapshot(TEXT), profile(), Range(Position(0, 0), Position(8, 0))) == hints[:1]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("class Net", "# a\n# b\n\nclass Net", [11, 12]),
        ("        return", "        # why\n        return", [8, 10]),
        ("y.mT", "y.T", [8]),
        ("[x, x],", "[x, x, x],", [9]),
        ("class Net", f"class Other(nn.Module):\n{TEXT.partition('Module):')[2]}\n\nclass Net", [17, 18]),
        ("class Net", "class Renamed", []),
        ("\n", "\r\n", [8, 9]),
        ("    def forward", "    def half(self\n\n    def forward", [10, 11]),
    ],
)  # fmt: skip
def test_hints_follow_edits_and_leave_edited_lines(old: str, new: str, lines: list[int]) -> None:
    assert sorted(labels(TEXT.replace(old, new))) == lines


def test_hover_of_a_line() -> None:
    text = shown(TEXT, 9, profile=profile("cuda"))
    assert "**1 ms**, 80% of 1.25 ms a forward" in text
    assert "reads 3 MB, writes 1 MB, 4 GB/s as one pass: **42%** of what this device's memory allows" in text
    assert "2 GFLOP, 2 TFLOP/s" in text and "| `cutlass::Kernel` | 1 | 300 µs |" in text
    assert "launch-bound" in text and "before the last edit" not in text
    assert "launch-bound" not in shown(TEXT, 9, profile=profile("cpu"))
    assert "measured before the last edit" in shown(TEXT.replace("[x, x]", "[x]"), 9, profile=profile())
    assert shown(TEXT, 5, profile=profile()) == "" and shown(TEXT, 9) == ""


def test_hover_of_a_class() -> None:
    text = shown(TEXT, 4, history=[job(partial=True)])
    assert "verified, **2.10× vs torch.compile (1.90 to 2.30)**, 3.41× vs eager" in text
    assert (
        "error against float64: relative 2e-08, absolute 1.5e-07 at most, 0.9 times PyTorch's own; 81% of the roofline"
        in text
    )
    assert "partial: 70% of the time is in generated kernels; PyTorch still runs `aten::sort`" in text
    assert "`freezing = True` is 1.25× torch.compile (1.20 to 1.30)" in text and "job 7" in text
    assert "edited since" not in text
    assert "edited since" in shown(TEXT.replace("tanh", "sinh"), 4, history=[job()])
    assert "no gain was confirmed" in shown(TEXT, 4, history=[job(JobOutcome.no_measurable_gain)])
    assert shown(TEXT, 4) == ""
    state = ClassState(applied=True, kernel_calls=90, fallbacks={"shape": 2, "gradient": 1})
    assert "served 90 calls, the original 3 (gradient 1, shape 2)" in shown(TEXT, 4, state=state)


@pytest.mark.parametrize(
    ("ms", "text"), [(0.0, "0 µs"), (0.0004, "0.4 µs"), (0.99951, "1000 µs"), (12.345, "12.3 ms"), (61_000, "61 s")]
)
def test_durations(ms: float, text: str) -> None:
    assert words.duration(ms) == text
