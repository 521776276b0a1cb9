"""Drafted inputs: they are run before they are offered, inserted above their class, and asked for once."""

from __future__ import annotations

import pytest
from lsprotocol import types

from kernel_assistant.source.build import build_task
from tests.lsp.editor import until

pytestmark = pytest.mark.asyncio

TWO = """import torch
from torch import nn

class Image(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Conv2d(width, 4, 3)
    def forward(self, x):
        return self.inner(x)

class Rows(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.BatchNorm1d(width)
    def forward(self, x):
        rows, width = x.shape
        return self.inner(x)
"""


@pytest.fixture
def path(workspace):
    path = workspace / "two.py"
    path.write_text(TWO)
    return path


async def test_two_drafts_in_a_file_run_and_leave_each_other_alone(start_editor, path):
    editor = await start_editor(shows=path)
    for name in ("Image", "Rows"):
        found = await editor.command("inputs", path, name, how="draft")
        assert found["inserted"] and found["problem"] == "" and found["job"] is None
    tasks = {
        name: build_task(f"{path}:{name}", target="cpu", numerics="kernelbench", text=editor.text(path))
        for name in ("Image", "Rows")
    }
    assert tasks["Image"].workloads[0].args == "(torch.randn(8, 256, 32, 32),)" and tasks["Image"].init == "(256,)"
    assert tasks["Rows"].workloads[0].args == "(torch.randn(8, 256),)"


async def test_a_draft_that_does_not_run_says_so(start_editor, path):
    path.write_text(TWO.replace("rows, width = x.shape", "assert x.dtype == torch.int8, 'bytes alone'"))
    editor = await start_editor(shows=path)
    found = await editor.command("inputs", path, "Rows", how="draft", insert=False)
    assert "bytes alone" in found["problem"] and not found["inserted"] and editor.text(path) == path.read_text()


async def test_other_editors_ask_once_and_begin(start_editor, tiny_host, path):
    path.write_text(f"# wait\n{TWO}")
    editor = await start_editor(of="neovim_v0.11.0", options={})
    asked = []

    @editor.client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def ask(params: types.ShowMessageRequestParams):
        asked.append([one.title for one in params.actions])
        return params.actions[0]

    editor.open(path)
    assert (await editor.command("optimize", path, "Rows"))["needs"] == "inputs"

    async def jobs():
        return [one for one in await editor.command("jobs") if one["active"]]

    active = await until(jobs)
    assert [one["class"] for one in active] == ["Rows"]
    assert asked == [["Optimize with inputs=(torch.randn(8, 256),) init=(256,)", "Record them from a program"]]
    assert "# kernel-assistant: inputs=(torch.randn(8, 256),) init=(256,)\nclass Rows" in editor.text(path)
    await editor.command("cancel", job=active[0]["active"]["job"])
