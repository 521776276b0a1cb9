"""Tests that the line suggested by an editor is the line that apply writes: applying afterwards adds only the block."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol.types import Position
from msgspec.structs import replace

from kernel_assistant.apply import apply_result, undo
from kernel_assistant.apply.edit import BLOCK
from kernel_assistant.errors import UsageError
from kernel_assistant_lsp.features import ghost
from kernel_assistant_lsp.text.snapshot import Snapshot
from tests.lsp.features.records import job


def test_suggestion_then_apply_then_undo(model: Path, result: Path, user_file: str) -> None:
    row = job(content=user_file)
    row = replace(row, task=replace(row.task, class_name="Gate", path=str(model)))
    here = Snapshot(model.as_uri(), model, user_file, 1)
    above = next(number for number in range(len(here.starts)) if here.line(number).startswith("class Gate")) - 1
    (item,) = ghost.body(here, Position(above, 0), row)
    assert item.range is not None and isinstance(item.insert_text, str)
    start, end = here.offset(item.range.start), here.offset(item.range.end)
    taken = user_file[:start] + item.insert_text + user_file[end:]
    applied = apply_result(result, model, text=taken)
    assert applied.text.replace(f"\n{BLOCK}\n", "") == taken and (applied.package / "manifest.json").is_file()
    model.write_text(applied.text)
    assert undo(model).classes == ("Gate",)
    assert model.read_text().split() == user_file.split() and not applied.package.exists()
    with pytest.raises(UsageError):
        apply_result(result, model, text=taken.replace("self.scale", "2 * self.scale"))
