"""Documents that are incomplete: with a syntax error from the beginning, unsaved, or cells of a notebook."""

from __future__ import annotations

import pytest
from pygls.exceptions import JsonRpcException

from tests.lsp.editor import MODEL

pytestmark = pytest.mark.asyncio

OPTIMIZE = "Optimize with Kernel Assistant"
OTHER = "\n\nclass Other(nn.Module):\n    def forward(self, x):\n        return x * 2\n"


async def test_a_file_that_was_never_whole_has_its_lenses(start_editor, model):
    editor = await start_editor(shows=model, text=MODEL.replace("torch.relu(x)", "torch.relu((x)", 1) + OTHER)
    assert await editor.titles(model) == ["syntax error on line 7: '(' was never closed", OPTIMIZE]
    (optimize,) = [one for one in await editor.actions(model, 5) if one.title.startswith("Optimize")]
    assert optimize.disabled.reason == "syntax error on line 7: '(' was never closed"
    with pytest.raises(JsonRpcException, match=r"model.py:7: '\(' was never closed"):
        await editor.command("optimize", model, "Gate")
    editor.type(model, "relu((x)", "relu(x)")
    assert await editor.titles(model) == [OPTIMIZE, OPTIMIZE]


async def test_what_is_known_of_a_class_is_known_in_a_broken_file_after_a_restart(applied, start_editor, model):
    text = applied.text(model)
    await applied.close()
    again = await start_editor(shows=model, text=text.replace("import torch\n", "import torch\nx = (\n", 1) + OTHER)
    titles = await again.until_lens(model, "Undo")
    assert titles == ["2.0× vs torch.compile · verified · show", "Kernels", "Undo", OPTIMIZE]
    again.type(model, "torch.tanh(x)", "torch.tanh((x)")
    titles = await again.until_lens(model, "syntax error on line")
    assert titles[1:] == ["Show", "Undo", OPTIMIZE]


async def test_a_document_that_is_in_no_file_says_what_to_do(start_editor, model):
    editor = await start_editor()
    untitled = "untitled:Untitled-1"
    editor.open_uri(untitled, MODEL)
    assert await editor.titles_of(untitled) == ["Kernel Assistant: save this as a .py file to optimize Gate"]
    with pytest.raises(JsonRpcException, match="Gate is in a document that is not saved") as refused:
        await editor.command("optimize", untitled, "Gate")
    assert refused.value.data["nextStep"] == "save this as a .py file to optimize Gate"


async def test_a_cell_of_a_notebook_says_what_to_do(start_editor, workspace):
    notebook = (workspace / "a.ipynb").as_uri().replace("file:", "vscode-notebook-cell:")
    editor = await start_editor()
    editor.open_uri(f"{notebook}#first", "%matplotlib inline\nimport torch\nfrom torch import nn")
    editor.open_uri(f"{notebook}#second", MODEL.partition("nn\n\n\n")[2])
    says = "Kernel Assistant: move Gate from the notebook to a .py file to optimize it"
    assert await editor.titles_of(f"{notebook}#second") == [says]
    assert await editor.titles_of(f"{notebook}#first") == []
    with pytest.raises(JsonRpcException, match="Gate is in a notebook"):
        await editor.command("optimize", f"{notebook}#second", "Gate")


async def test_classes_without_a_lens_are_told_with_what_hinders_them(start_editor, model):
    inner = "\n\ndef make():\n    class Inner(nn.Module):\n        def forward(self, x): ...\n"
    editor = await start_editor()
    editor.open(model, MODEL.replace("class Gate", "# kernel-assistant: ignore\nclass Gate") + inner)
    assert await editor.titles(model) == []
    gate, nested = await editor.command("classes", model)
    assert gate == {"class": "Gate", "line": 5, "hindrance": ""}
    assert nested["class"] == "Inner" and "inside a function" in nested["hindrance"]
