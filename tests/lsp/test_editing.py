"""Texts that change while results exist: unsaved, edited, unusual encodings and line ends, refused edits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.apply.applied import BINARIES
from kernel_assistant.errors import UsageError
from kernel_assistant.session.edits import FileSelection, find_place
from kernel_assistant.store import Store
from tests.lsp.editor import MODEL, until

pytestmark = pytest.mark.asyncio


ODD = {
    "crlf": MODEL.replace("\n", "\r\n").encode(),
    "bom": b"\xef\xbb\xbf" + MODEL.encode(),
    "beyond the basic plane": f"# 🙂 größer\n{MODEL}".encode(),
}


@pytest.mark.parametrize("name", ODD)
async def test_apply_and_undo_go_through_the_buffer(start_editor, model, improved, name):
    model.write_bytes(ODD[name])
    text = ODD[name].decode("utf-8-sig")
    improved(model, text)
    editor = await start_editor(shows=model, text=text)
    await editor.until_lens(model, "2.0× vs torch.compile · verified")
    diff = await editor.command("diff", model, "Gate")
    applied = await editor.command("apply", model, "Gate")
    assert applied["edited"] and model.read_bytes() == ODD[name]
    assert editor.text(model) == diff["after"] != text
    assert diff["after"].count("\r") == ("\r" in text) * diff["after"].count("\n")
    package = model.parent / "model_kernels"
    assert (package / "load.py").is_file()
    await editor.until_lens(model, "Undo")
    await editor.command("undo", model, "Gate")
    assert editor.text(model) == text and package.is_dir()
    editor.save(model)
    await until(lambda: not package.exists())


async def test_an_editor_that_quits_after_saving_leaves_no_package_behind(applied, model):
    await applied.command("undo", model, "Gate")
    applied.save(model)
    await applied.close()
    assert not (model.parent / "model_kernels").exists()


COMMENTED = MODEL.partition("def get_inputs")[0].replace(
    "class Gate", "# kernel-assistant: inputs=(torch.randn(8, 64),)\nclass Gate"
)


async def complete(editor, path, line):
    """Accepts the inline completion on an empty line as an editor does: first its text, then its command."""
    (item,) = await editor.completions(path, line)
    lines = editor.text(path).splitlines(keepends=True)
    lines[line] = item.insert_text + lines[line]
    editor.type(path, editor.text(path), "".join(lines))
    (argument,) = item.command.arguments
    params = types.ExecuteCommandParams(command=item.command.command, arguments=[argument])
    return await editor.client.workspace_execute_command_async(params)


async def test_a_completion_puts_in_what_apply_does_and_undo_takes_it_out(start_editor, model, improved):
    model.write_text(COMMENTED)
    improved(model, COMMENTED)
    editor = await start_editor(shows=model)
    await editor.until_lens(model, "verified")
    wanted = (await editor.command("diff", model, "Gate"))["after"]
    above = COMMENTED[: COMMENTED.index("class Gate")].count("\n")
    editor.type(model, "class Gate", "\nclass Gate")
    await complete(editor, model, above)
    assert editor.text(model) == wanted
    editor.save(model)
    await editor.command("undo", model, "Gate")
    editor.save(model)
    assert model.read_text() == COMMENTED
    await until(lambda: not (model.parent / "model_kernels").exists())


async def test_a_completion_that_cannot_be_applied_takes_its_line_out_again(editor, model, settings):
    (settings.jobs_dir / "1" / "result" / "plan.json").unlink()
    editor.type(model, "class Gate", "\nclass Gate")
    with pytest.raises(JsonRpcException):
        await complete(editor, model, 4)
    assert editor.text(model) == MODEL and not (model.parent / "model_kernels").exists()


async def test_edits_elsewhere_keep_their_place_and_after_one_of_the_class_the_report_of_it_is_stale(editor, model):
    editor.type(model, "import torch\n", "import torch\n\nLIMIT = 3\n")
    assert (await editor.command("show", model, "Gate"))["stale"] == ""
    await editor.command("apply", model, "Gate")
    assert "LIMIT = 3" in editor.text(model) and "_kernels/load.py" in editor.text(model)
    editor.type(model, "* 0.5", "* 0.25")
    titles = await editor.until_lens(model, "stale: Gate has been edited since its kernels were verified")
    assert titles[0].endswith("optimize again")
    await editor.command("undo", model, "Gate")
    await editor.until_lens(model, "stale: Gate was edited since job 1")
    assert (await editor.command("show", model, "Gate"))["stale"] == "Gate was edited since job 1"
    with pytest.raises(JsonRpcException, match="has changed since the job") as refused:
        await editor.command("apply", model, "Gate")
    assert refused.value.code == -32803
    editor.type(model, "* 0.25", "* 0.5")
    await editor.until_lens(model, "verified")


async def test_jobs_that_their_file_takes_as_it_is_are_appliable(start_editor, model, improved):
    first, second = improved(model, MODEL), improved(model, MODEL.replace("0.5", "0.25"))
    editor = await start_editor()

    async def appliable():
        return {one["job"] for one in await editor.command("jobs") if one["appliable"]}

    assert await appliable() == {first}
    editor.open(model)
    editor.type(model, "0.5", "0.25")
    assert await appliable() == {second}
    await editor.command("apply", model, "Gate", job=second)
    assert await appliable() == set()
    await editor.command("undo", model, "Gate")
    editor.type(model, "class Gate", "class (Gate")
    assert await appliable() == set()


@pytest.mark.parametrize("saved", [True, False])
async def test_kernels_that_an_editor_s_own_undo_left_behind_are_cleaned_up(editor, model, saved):
    await editor.command("apply", model, "Gate")
    if saved:
        editor.save(model)
    editor.type(model, editor.text(model), MODEL)
    titles = await editor.until_lens(model, "its kernels are left behind, unused · clean up")
    assert titles[:4] == ["2.0× vs torch.compile · verified · show", "Kernels", "Review", "Apply"]
    assert "Clean up the unused kernels of Gate" in [one.title for one in await editor.actions(model, 5)]
    undone = await editor.command("undo", model, "Gate")
    package = model.parent / "model_kernels"
    assert undone["undone"] == ["Gate"] and undone["edited"] is saved and package.exists() is saved
    if saved:
        assert "clean up" not in str(await editor.titles(model))  # the package goes with the next save
        editor.save(model)
        await until(lambda: not package.exists())
    assert "clean up" not in str(await editor.until_lens(model, "Apply"))


async def test_hints_of_what_kernels_serve_are_not_shown(start_editor, model, improved):
    chain = MODEL.replace(
        "torch.sigmoid(x) * torch.tanh(x) + torch.relu(x) * 0.5",
        "torch.sigmoid(torch.tanh(torch.relu(x).exp() + 1) * 2)",
    )
    model.write_text(chain)
    improved(model, chain)
    editor = await start_editor()

    def codes():
        return [one.code for one in editor.client.diagnostics.get(model.as_uri(), ())]

    editor.open(model)
    await editor.until_lens(model, "verified")
    await until(lambda: "KA002" in codes())
    await editor.command("apply", model, "Gate")
    await until(lambda: "KA002" not in codes())
    editor.type(model, "* 2)", "* 3)")
    await until(lambda: "KA002" in codes())


async def test_an_edit_that_the_file_or_the_editor_refuses_leaves_nothing_behind(editor, model):
    model.chmod(0o444)
    with pytest.raises(JsonRpcException, match="read-only"):
        await editor.command("apply", model, "Gate")
    assert not (model.parent / "model_kernels").exists()
    model.chmod(0o644)
    editor.refuse_edits = "the file is locked"
    with pytest.raises(JsonRpcException, match="the file is locked"):
        await editor.command("apply", model, "Gate")
    assert not (model.parent / "model_kernels").exists() and editor.text(model) == MODEL


async def test_an_editor_without_edits_has_its_saved_file_changed(start_editor, model, improved):
    def without_edits(capabilities):
        capabilities.workspace.apply_edit = False

    improved(model, MODEL)
    editor = await start_editor(change=without_edits, shows=model)
    assert not (await editor.command("apply", model, "Gate"))["edited"]
    assert "_kernels/load.py" in model.read_text()
    await editor.command("undo", model, "Gate")
    assert model.read_text() == MODEL
    editor.type(model, "import torch\n", "import torch\n\n")
    with pytest.raises(JsonRpcException, match="unsaved changes"):
        await editor.command("apply", model, "Gate")


async def test_what_was_applied_last_is_what_undo_means_on_the_command_line(applied, model, settings):
    store = Store(settings.state_dir)
    assert find_place(store, "") == FileSelection(model, "Gate")
    model.write_text(MODEL)
    with pytest.raises(UsageError, match="nothing is applied"):
        find_place(store, "")
    store.close()


async def test_discarding_offers_to_optimize_again(editor, start_editor, model):
    await editor.until_lens(model, "Discard")
    assert await editor.command("discard", model, "Gate") == {"discarded": "1"}
    assert await editor.until_lens(model, "Optimize with") == ["Optimize with Kernel Assistant"]
    await editor.close()
    again = await start_editor(shows=model)
    await asyncio.sleep(0.5)
    assert await again.titles(model) == ["Optimize with Kernel Assistant"]


@pytest.mark.parametrize("of", [None, "emacs_v29.1", "neovim_v0.7.0"])
async def test_a_class_is_ignored_by_a_comment_in_the_form_that_an_editor_understands(start_editor, model, of):
    editor = await (start_editor(of=of, options={}) if of else start_editor())
    editor.open(model)
    assert await editor.titles(model) == ["Optimize with Kernel Assistant"]
    found = {one.title: one for one in await editor.actions(model, 5)}
    assert "Optimize this module (Gate)" in found
    action = found["Ignore Gate from now on"]
    if action.edit is None or not of:
        assert action.edit is None
        action = await editor.client.code_action_resolve_async(action)
    assert editor.take(action.edit)
    assert "# kernel-assistant: ignore\nclass Gate" in editor.text(model)
    assert await editor.titles(model) == []


@pytest.mark.parametrize("opens", [True, False])
async def test_editors_without_pages_of_their_own_are_shown_what_they_ask_for(start_editor, model, improved, opens):
    def change(capabilities):
        capabilities.window.show_document = types.ShowDocumentClientCapabilities(support=opens)

    improved(model, MODEL)
    editor = await start_editor(of="neovim_v0.11.0", options={}, change=change, shows=model)
    await editor.until_lens(model, "verified")
    await editor.command("diff", model, "Gate")
    await editor.command("show", model, "Gate")
    await editor.command("kernels", model, "Gate")
    if opens:
        await until(lambda: len(editor.client.shown_documents) == 3)
        shown = [unquote(one.uri).removeprefix("file://") for one in editor.client.shown_documents]
    else:
        await until(lambda: len(editor.client.messages) == 3)
        shown = [one.message.removeprefix("written to ") for one in editor.client.messages]
    texts = {path.suffix: path.read_text() for path in map(Path, shown)}
    assert '+@_with_kernels("' in texts[".diff"]
    assert "+// not for running" in texts[".diff"]
    assert "// replaces: relu" in texts[".cpp"] and texts[".cpp"].endswith("// not for running\n")
    assert "**2.00× vs torch.compile" in texts[".md"] and "gate.cpp" in texts[".md"]


async def test_classes_that_cannot_be_optimized_where_they_stand(start_editor, workspace):
    text = MODEL + "\n\ndef make():\n    class Inner(nn.Module):\n        def forward(self, x):\n            return x\n"
    text += "\n\nclass Gate(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    path = workspace / "many.py"
    path.write_text(text)
    editor = await start_editor(shows=path)
    (lens,) = await editor.lenses(path)
    assert lens.range.start.line == text[: text.rindex("class Gate")].count("\n")
    inside = text[: text.index("class Inner")].count("\n")
    (optimize,) = [one for one in await editor.actions(path, inside + 1) if one.title.startswith("Optimize")]
    assert "inside a function" in optimize.disabled.reason
    with pytest.raises(JsonRpcException, match="nested in a function"):
        await editor.command("optimize", path, "Inner")


async def test_a_class_without_inputs_is_led_to_them(start_editor, workspace):
    path = workspace / "bare.py"
    path.write_text(MODEL.partition("def get_inputs")[0])
    editor = await start_editor(shows=path)
    needed = await editor.command("optimize", path, "Gate")
    assert needed["job"] is None and needed["needs"] == "inputs"
    draft = needed["choices"][0]
    assert draft["title"] == "Draft a stub" and draft["arguments"][0]["how"] == "draft"


async def test_what_one_window_applies_and_undoes_the_other_sees(start_editor, model, improved):
    improved(model, MODEL)
    one, two = await start_editor(), await start_editor()
    for editor in (one, two):
        editor.open(model)
        await editor.until_lens(model, "verified")
    await one.apply(model)
    # An editor reads a file anew that has changed on disk and not in its buffer.
    two.shut(model)
    two.open(model)
    await two.until_lens(model, "Undo")
    undone = await two.command("undo", model, "Gate")
    assert undone["edited"] and two.text(model) == MODEL
    two.save(model)
    await until(lambda: not (model.parent / "model_kernels").exists())
    one.shut(model)
    one.open(model)
    await one.until_lens(model, "Apply")
    # Both at once: the same package, and each buffer with one pair of lines.
    await asyncio.gather(*(editor.command("apply", model, "Gate") for editor in (one, two)))
    assert one.text(model) == two.text(model) and one.text(model).count("_kernels/load.py") == 1
    assert (model.parent / "model_kernels" / "load.py").is_file()


async def test_a_renamed_file_takes_its_kernels_along(start_editor, model, improved):
    improved(model, MODEL)
    editor = await start_editor(change=with_renames, shows=model)
    await editor.until_lens(model, "verified")
    await editor.apply(model)
    moved = model.parent / "deeper" / "größe 🙂.py"
    edit = await editor.rename(model, moved)
    assert [(change.old_uri, change.new_uri) for change in edit.document_changes] == [
        ((model.parent / "model_kernels").as_uri(), (moved.parent / "größe 🙂_kernels").as_uri())
    ]
    (moved.parent).mkdir()
    (model.parent / "model_kernels").rename(moved.parent / "größe 🙂_kernels")
    editor.shut(model)
    model.rename(moved)
    editor.open(moved)
    titles = await editor.until_lens(moved, "verified")
    assert titles[-1] == "Undo" and not any("stale" in title for title in titles)
    assert await editor.rename(model, moved) is None
    await editor.command("undo", moved, "Gate")
    editor.save(moved)
    assert moved.read_text() == MODEL


def with_renames(capabilities):
    capabilities.workspace.workspace_edit.resource_operations = [types.ResourceOperationKind.Rename]


async def test_the_lens_says_which_kernels_are_missing_or_damaged(applied, model):
    package, away = model.parent / "model_kernels", model.parent / "away"
    await applied.until_lens(model, "Undo")
    package.rename(away)
    applied.save(model)
    await applied.until_lens(model, "model_kernels is missing; the original runs")
    away.rename(package)
    applied.save(model)
    await applied.until_lens(model, "verified")
    binary = next(path for path in package.rglob("*") if path.suffix in BINARIES)
    data = binary.read_bytes()
    binary.write_bytes(data[: len(data) // 2])
    applied.save(model)
    await applied.until_lens(model, f"{binary.name} is damaged")
    binary.unlink()
    applied.save(model)
    await applied.until_lens(model, "lacks")
