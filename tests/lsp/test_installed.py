"""Classes of installed libraries in an editor: the library's files do not change, and a program of the user gets a
line.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.common.vendor import LAYERS, PROGRAM, installed
from tests.lsp.editor import MODEL

pytestmark = pytest.mark.asyncio
IMPORT = "import kernels_for_vendor"


@pytest.fixture
def library(workspace):
    return installed(workspace)[0]


@pytest.fixture
def program(library, workspace):
    """A program beside the library's folder."""
    return workspace / "main.py"


@pytest.fixture
def verified(library, improved):
    """A job that improved the library's class."""
    library.write_text(MODEL)
    improved(library, MODEL)


@pytest_asyncio.fixture
async def editor(start_editor, library, verified):
    editor = await start_editor(shows=library)
    await editor.until_lens(library, "Apply")
    return editor


async def test_apply_asks_for_a_program_and_undo_takes_its_line_back(editor, library, program, workspace):
    shown = await editor.command("diff", library, "Gate")
    assert shown["before"] == shown["after"] == MODEL and "sources/gate.cpp" in shown["kernels"]

    needed = await editor.command("apply", library, "Gate")
    assert needed["applied"] is None and needed["needs"] == "program"
    assert "whose file stays as it is" in needed["message"]
    assert needed["choices"][-1]["arguments"][0]["into"] == ""
    assert not (workspace / "kernels_for_vendor").exists()

    applied = await editor.command("apply", library, "Gate", into=program.as_uri())
    assert applied["applied"] == "Gate" and not applied["edited"] and applied["path"] == str(program)
    assert IMPORT in program.read_text() and library.read_text() == MODEL
    titles = await editor.until_lens(library, "Undo")
    assert not any("Apply" in title for title in titles), titles

    undone = await editor.command("undo", library, "Gate")
    assert undone["undone"] == ["Gate"] and not undone["edited"]
    assert program.read_text() == PROGRAM and not (workspace / "kernels_for_vendor").exists()
    await editor.until_lens(library, "Apply")
    with pytest.raises(JsonRpcException, match="no kernels are applied to Gate in this workspace"):
        await editor.command("undo", library, "Gate")


async def test_a_program_with_unsaved_changes_is_left_alone(editor, library, program, workspace):
    editor.open(program)
    editor.type(program, "range(3)", "range(4)")
    with pytest.raises(JsonRpcException, match=r"main\.py has unsaved changes"):
        await editor.command("apply", library, "Gate", into=program.as_uri())
    assert not (workspace / "kernels_for_vendor").exists()
    editor.save(program)
    await editor.command("apply", library, "Gate", into=program.as_uri())
    assert IMPORT in program.read_text() and "range(4)" in program.read_text()


async def test_kernels_that_somebody_else_applied_are_seen(editor, start_editor, library, program, workspace):
    """Applied without a program: its line is told."""
    applied = await editor.command("apply", library, "Gate", into="")
    assert applied["importLine"].startswith(IMPORT) and program.read_text() == PROGRAM
    manifest = workspace / "kernels_for_vendor" / "manifest.json"
    assert manifest.is_file()
    await editor.until_lens(library, "Undo")
    other = await start_editor(shows=library)
    await other.until_lens(library, "Undo")
    package = manifest.parent.rename(workspace / "away")
    change = types.FileEvent(uri=manifest.as_uri(), type=types.FileChangeType.Deleted)
    other.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(changes=[change]))
    await other.until_lens(library, "Apply")
    assert package.is_dir()


async def test_an_editor_without_questions_of_its_own_asks_which_program(start_editor, library, program, verified):
    editor = await start_editor(options={})
    asked = []

    @editor.client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def ask(params: types.ShowMessageRequestParams):
        asked.append(params)
        return params.actions[-1]

    editor.open(library)
    await editor.until_lens(library, "Apply")
    await editor.command("apply", library, "Gate")
    await editor.until_message(f"add this line to your program: {IMPORT}")
    assert "whose file stays as it is" in asked[0].message
    assert program.read_text() == PROGRAM


async def test_nothing_is_drafted_into_a_librarys_file(start_editor, library):
    editor = await start_editor(shows=library)
    needed = await editor.command("optimize", library, "Gate")
    assert [one["arguments"][0]["how"] for one in needed["choices"]] == ["record"]
    assert needed["message"] == "Gate is of an installed library, and no scan kept inputs of it"
    with pytest.raises(JsonRpcException, match="whose file stays as it is"):
        await editor.command("inputs", library, "Gate", how="draft")
    assert editor.text(library) == LAYERS


@pytest.mark.programs
@pytest.mark.slow
async def test_from_a_scan_to_the_programs_kernels_and_back(
    start_editor, library, program, workspace, monkeypatch, python_path
):
    for name, value in {"TURNS": "1", "BUDGET": "300", "FREE_WINS": "false", "PYTHON": sys.executable}.items():
        monkeypatch.setenv(f"KERNEL_ASSISTANT_{name}", value)
    monkeypatch.setenv("PYTHONPATH", f"{library.parents[1]}:{python_path}")  # a worker finds what is installed
    editor = await start_editor()
    found = await editor.command("scan", program, program=["python", "main.py"])
    assert [(row["name"], row["path"]) for row in found["classes"]] == [("Gate", str(library))]

    editor.open(library)
    begun = await editor.command("optimize", library, "Gate")
    ended = await editor.until_job(begun["job"], "finished", "failed", seconds=400)
    assert ended["state"] == "finished", str(ended)
    named = {"job": begun["job"], "force": True}
    needed = await editor.command("apply", library, "Gate", **named)
    first = needed["choices"][0]
    assert first["title"] == "Into main.py"
    await editor.command("apply", **first["arguments"][0])
    await editor.until_lens(library, "Undo")
    run = [sys.executable, program]
    ran = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=True)
    assert "'Gate': {'kernel': 3" in ran.stdout, ran.stdout + ran.stderr

    checked = await editor.command("verify", library, "Gate")
    await editor.until_job(checked["job"], "finished", "failed", seconds=400)
    (verdict,) = await editor.until_message("vendor.layers:Gate: ")
    assert ": ok: " in verdict.message or ": slower: " in verdict.message
    await editor.command("undo", library, "Gate")
    assert program.read_text() == PROGRAM and library.read_text() == LAYERS
    assert not (workspace / "kernels_for_vendor").exists()
