"""Quick fixes: the comment silences exactly the chosen hint, and the file can still be parsed."""

from __future__ import annotations

import pytest
from lsprotocol.types import CodeActionKind

from kernel_assistant_lsp.features import diagnostics, fixes
from kernel_assistant_lsp.features.ghost import LABEL
from kernel_assistant_lsp.text.snapshot import Snapshot
from tests.lsp.features.records import snapshot

SLOW = """\
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        y = (
            x.exp()
            .max().item()
        )
        return x.sum().item() + y
"""


def taken(here: Snapshot, number: int) -> str:
    """The text after the fix of hint number `number`."""
    hints = diagnostics.find(here, None)
    (action,) = fixes.of_hints(here, [hints[number]], versioned=False)
    assert action.kind is CodeActionKind.QuickFix and action.diagnostics == [hints[number]]
    assert action.edit is not None and action.edit.changes is not None
    (edit,) = action.edit.changes[here.uri]
    start, end = here.offset(edit.range.start), here.offset(edit.range.end)
    return here.text[:start] + edit.new_text + here.text[end:]


@pytest.mark.parametrize("text", [SLOW, SLOW.replace("\n", "\r\n")])
@pytest.mark.parametrize("number", [0, 1])
def test_the_comment_silences_its_hint_alone(text: str, number: int) -> None:
    before = diagnostics.find(snapshot(text), None)
    assert [hint.code for hint in before] == ["KA005", "KA005"]
    after = taken(snapshot(text), number)
    compile(after, "net.py", "exec")
    (left,) = diagnostics.find(snapshot(after), None)
    assert left.range.start.line == before[1 - number].range.start.line + (number == 0)


def test_none_for_others_hints_and_behind_a_backslash() -> None:
    here = snapshot(SLOW.replace("return x", "return \\\n            x"))
    first, last = diagnostics.find(here, None)
    assert fixes.of_hints(here, [last], versioned=False) == []
    first.source = "ruff"
    assert fixes.of_hints(here, [first], versioned=False) == []


def test_labels_go_once_the_source_has_passed() -> None:
    here = snapshot(f"int a;  {LABEL}\nint b;\n", "k.cu")
    assert fixes.of_labels(here, passed=False, versioned=False) == []
    assert fixes.of_labels(snapshot("int a;\n", "k.cu"), passed=True, versioned=False) == []
    (action,) = fixes.of_labels(here, passed=True, versioned=False)
    assert action.edit is not None and action.edit.changes is not None
    (edit,) = action.edit.changes[here.uri]
    assert edit.new_text == "int a;\n"
