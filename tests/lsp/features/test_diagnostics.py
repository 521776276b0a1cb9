"""Hints as diagnostics: positions in the client's units, codes, pages."""

from __future__ import annotations

import time

import pytest
from lsprotocol.types import DiagnosticSeverity

from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_lsp.features import diagnostics
from tests.lsp.features.records import snapshot

TEXT = """\
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x.exp() if "😀" else x.exp().item()
"""


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 38), ("utf-16", 36), ("utf-32", 35)])
def test_positions_count_as_the_client_does(encoding: str, column: int) -> None:
    (found,) = diagnostics.find(snapshot(TEXT, encoding=encoding), None)
    assert (found.range.start.line, found.range.start.character) == (5, column)
    assert found.range.end.character - found.range.start.character == len("x.exp().item()")


def test_fields() -> None:
    (found,) = diagnostics.find(snapshot(TEXT), None)
    assert found.severity is DiagnosticSeverity.Hint
    assert (found.code, found.source, found.data) == ("KA005", "kernel-assistant", {"class": "Net"})
    assert found.code_description is not None and found.code_description.href.endswith("diagnostics.md#ka005")


def test_settings_and_device() -> None:
    assert diagnostics.find(snapshot(TEXT), None, ignore=["KA005"]) == []
    product = TEXT.replace('x.exp() if "😀" else x.exp().item()', "x @ x.mT")
    gpu = DeviceFacts(target="cuda", name="H200", arch="sm_90")
    (found,) = diagnostics.find(snapshot(product), gpu, tf32_gain="measured here")
    assert found.code == "KA001" and "measured here" in found.message
    assert diagnostics.find(snapshot(product), None) == []


def test_what_was_seen_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file with many classes, a keystroke parses only the class that contains it."""
    many = "from torch import nn\n\n\n" + "\n\n".join(
        TEXT.partition("\n\n\n")[2].replace("Net", f"Net{number}") for number in range(300)
    )
    assert len(diagnostics.find(snapshot(many), None)) == 300
    from kernel_assistant.source.lint import chunks, find

    parsed: list[str] = []
    real = chunks.parse_piece

    def parse(text: str) -> object:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(chunks, "parse_piece", parse)
    monkeypatch.setattr(find, "parse_piece", parse)
    marker = f"{time.time_ns()}"
    changed = many.replace("class Net150", f"# {marker}\n\n\nclass Net150")
    assert len(diagnostics.find(snapshot(changed), None)) == 300
    assert 1 <= len(parsed) <= 4 and all(marker in text or "Net150" in text for text in parsed)
