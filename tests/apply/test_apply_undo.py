"""Tests applying and undoing on disk, without running the result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.apply import AppliedOptions, applied_variants, apply_result, undo
from kernel_assistant.apply import files as file_functions
from kernel_assistant.apply.edit import BLOCK, IMPORT_LINE, plan_edit
from kernel_assistant.errors import UsageError
from kernel_assistant.worker.applied.parts import Parts, pack_texts, unpack_texts

MakeResult = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path, user_file: str) -> Path:
    path = tmp_path / "proj" / "model.py"
    path.parent.mkdir()
    path.write_text(user_file)
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("kind", ["plain", "crlf", "tabs", "bom", "no final newline", "latin-1"])
def test_undo_restores_byte_for_byte(kind: str, model: Path, make_result: MakeResult, user_file: str) -> None:
    text = {
        "crlf": user_file.replace("\n", "\r\n"),
        "tabs": user_file.replace("    ", "\t"),
        "no final newline": user_file.rstrip("\n"),
        "latin-1": "# coding: latin-1\nNAME = 'é'\n" + user_file.replace("from __future__ import annotations\n", ""),
    }.get(kind, user_file)
    data = text.encode("latin-1" if kind == "latin-1" else "utf-8")
    model.write_bytes(b"\xef\xbb\xbf" + data if kind == "bom" else data)
    model.chmod(0o755)
    before = snapshot(model.parent)
    apply_result(make_result(text), model)
    assert snapshot(model.parent) != before
    assert model.stat().st_mode & 0o777 == 0o755
    compile(model.read_bytes(), str(model), "exec")
    undone = undo(model)
    assert undone.restored and undone.kept == () and undone.classes == ("Gate",)
    assert snapshot(model.parent) == before
    assert not (model.parent / "model_kernels").exists()
    assert model.stat().st_mode & 0o777 == 0o755


def test_package_holds_what_it_should(model: Path, make_result: MakeResult, user_file: str) -> None:
    applied = apply_result(make_result(user_file), model, options=AppliedOptions(min_elements=7))
    folder = model.parent / "model_kernels"
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == {*applied.files, "manifest.json"}
    parts = Parts(str(folder), "Gate")
    provenance = json.loads(parts.read("provenance.json"))
    assert provenance["device"]["arch"] == "x86-64-avx2"
    assert provenance["numbers"]["timing"]["speedup_vs_compile_ci"] == [1.9, 2.1]
    assert provenance["guard"]["min_elements"] == 7
    assert provenance["operator"].startswith("gate_")
    assert "return %mul_2" in parts.read("graph.txt").decode()


def test_dry_run_changes_nothing(model: Path, make_result: MakeResult, user_file: str) -> None:
    before = snapshot(model.parent)
    applied = apply_result(make_result(user_file), model, dry_run=True)
    assert snapshot(model.parent) == before
    added = [line for line in applied.diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == len(BLOCK.splitlines()) + 2 and "-" not in {line[:1] for line in applied.diff.splitlines()[2:]}
    apply_result(make_result(user_file), model)
    applied_files = snapshot(model.parent)
    assert undo(model, dry_run=True).removed == applied.files
    assert snapshot(model.parent) == applied_files


def test_own_edits_survive_undo(model: Path, make_result: MakeResult, user_file: str) -> None:
    result = make_result(user_file)
    apply_result(result, model)
    shutil.rmtree(result)
    edited = "# mine\n" + model.read_text().replace("scale: float = 1.5", "scale: float = 2.5") + "\nLAST = 1\n"
    model.write_text(edited)
    undone = undo(model)
    assert not undone.restored
    assert (
        model.read_text() == "# mine\n" + user_file.replace("scale: float = 1.5", "scale: float = 2.5") + "\nLAST = 1\n"
    )


def test_two_classes_are_undone_one_by_one(model: Path, make_result: MakeResult, user_file: str) -> None:
    text = user_file + "\n\nclass Second(Gate):\n    pass\n"
    model.write_text(text)
    before = snapshot(model.parent)
    apply_result(make_result(text, "Gate"), model)
    only_first = snapshot(model.parent)
    apply_result(make_result(text, "Second"), model)
    folder = model.parent / "model_kernels"
    assert (folder / "Gate.txt").is_file() and (folder / "Second.txt").is_file()
    assert undo(model, "Second").classes == ("Second",)
    assert snapshot(model.parent) == only_first
    apply_result(make_result(text, "Second"), model)
    undo(model, "Gate")
    assert not (folder / "Gate.txt").exists() and (folder / "Second.txt").is_file()
    assert undo(model).restored
    assert snapshot(model.parent) == before


def test_applying_again_replaces_the_class(model: Path, make_result: MakeResult, user_file: str) -> None:
    before = snapshot(model.parent)
    apply_result(make_result(user_file), model)
    text = model.read_text()
    apply_result(make_result(text, arch="x86-64"), model)
    assert model.read_text() == text
    names = Parts(str(model.parent / "model_kernels"), "Gate").names()
    assert "kernels.x86-64.so" in names and "kernels.x86-64-avx2.so" not in names
    assert undo(model).restored
    assert snapshot(model.parent) == before


def test_lines_of_before_become_those_of_today(model: Path, make_result: MakeResult, user_file: str) -> None:
    """A file that was edited by an older version, without a block, is accepted, and gets the block together with new
    kernels.
    """
    before = snapshot(model.parent)
    apply_result(make_result(user_file), model)
    today = model.read_text()
    line = '@_run_path(__file__[:-3] + "_kernels/load.py")["accelerated"]("Gate")'
    model.write_text(plan_edit(user_file, "Gate", IMPORT_LINE, line).apply(user_file))
    apply_result(make_result(user_file), model)
    assert model.read_text() == today
    assert undo(model).restored and snapshot(model.parent) == before


def test_files_changed_by_hand_are_left(model: Path, make_result: MakeResult, user_file: str) -> None:
    apply_result(make_result(user_file), model)
    folder = model.parent / "model_kernels"
    (folder / "Gate.txt").write_text("// mine\n")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="changed by hand"):
        apply_result(make_result(user_file), model)
    undone = undo(model)
    assert set(undone.kept) == {"Gate.txt", "notes.txt"}
    assert set(snapshot(folder)) == {"Gate.txt", "notes.txt"}
    assert model.read_text() == user_file


def test_undo_without_the_package(model: Path, make_result: MakeResult, user_file: str) -> None:
    apply_result(make_result(user_file), model)
    shutil.rmtree(model.parent / "model_kernels")
    assert undo(model).classes == ("Gate",)
    assert model.read_text() == user_file


def test_undo_without_the_file(model: Path, make_result: MakeResult, user_file: str) -> None:
    apply_result(make_result(user_file), model)
    model.unlink()
    undo(model)
    assert list(model.parent.iterdir()) == []


def test_nothing_to_undo(model: Path) -> None:
    with pytest.raises(UsageError, match="no kernels"):
        undo(model)


def test_the_user_s_own_import_stays(model: Path, make_result: MakeResult, user_file: str) -> None:
    text = user_file.replace("import torch\n", "from runpy import run_path as _run_path\nimport torch\n", 1)
    model.write_text(text)
    apply_result(make_result(text), model)
    assert model.read_text().count("import run_path") == 1
    assert undo(model).restored
    assert model.read_text() == text


def refuse(model: Path, result: Path, cause: str) -> None:
    before = snapshot(model.parent)
    with pytest.raises(UsageError, match=cause) as caught:
        apply_result(result, model)
    assert caught.value.next_step
    assert snapshot(model.parent) == before


def test_changed_class_is_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    result = make_result(user_file)
    model.write_text(user_file.replace("self.weight * self.scale", "self.weight / self.scale"))
    refuse(model, result, "has changed since the job")


def test_a_change_elsewhere_is_not_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    result = make_result(user_file)
    model.write_text(
        "# comment\n"
        + user_file.replace("return self", "return  (self").replace("scale)\n", "scale ))\n")
        + "\nx = 1\n"
    )
    apply_result(result, model)


def test_a_changed_helper_is_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    text = user_file.replace(
        "class Gate", "FACTOR = 1.0\n\n\ndef act(x):\n    return x * FACTOR\n\n\nclass Gate"
    ).replace("x * torch", "act(x) * torch")
    model.write_text(text.replace("FACTOR = 1.0", "FACTOR = 2.0"))
    refuse(model, make_result(text), "has changed since the job")


def test_read_only_file_is_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    model.chmod(0o444)
    refuse(model, make_result(user_file), "read-only")


def test_symbolic_link_is_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    link = model.parent / "link.py"
    link.symlink_to(model)
    refuse(link, make_result(user_file), "symbolic link")


def test_somebody_else_s_folder_is_refused(model: Path, make_result: MakeResult, user_file: str) -> None:
    (model.parent / "model_kernels").mkdir()
    (model.parent / "model_kernels" / "mine.py").write_text("")
    refuse(model, make_result(user_file), "in the way")


@pytest.mark.parametrize(
    ("name", "cause"), [("a.ipynb", "notebook"), ("a.zip/model.py", "archive"), ("b.py", "not a file")]
)
def test_odd_places_are_refused(name: str, cause: str, model: Path, make_result: MakeResult, user_file: str) -> None:
    for there in ("a.ipynb", "a.zip"):
        (model.parent / there).write_text(user_file)
    refuse(model.parent / name, make_result(user_file), cause)


def test_a_full_disk_leaves_everything_as_it_was(
    model: Path, make_result: MakeResult, user_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        if b"_with_kernels" in Path(f"/proc/self/fd/{descriptor}").read_bytes()[:400]:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_functions.os, "fsync", fsync)
    refuse(model, make_result(user_file), "No space left")


def test_variants_do_not_touch_the_file(model: Path, make_result: MakeResult, user_file: str, tmp_path: Path) -> None:
    before = snapshot(model.parent)
    variants = applied_variants(make_result(user_file), model, tmp_path / "timing")
    assert snapshot(model.parent) == before
    assert variants.original.read_text() == user_file
    assert (variants.applied.parent / "model_kernels" / "Gate.txt").is_file()


@settings(max_examples=100, deadline=None)
@given(
    parts=st.dictionaries(st.text("ab./", min_size=1), st.binary() | st.text("=\n \\\r").map(str.encode), min_size=1)
)
def test_texts_come_out_as_they_went_in(parts: dict[str, bytes]) -> None:
    packed = pack_texts(parts)
    assert unpack_texts(packed, "x") == parts
    for cut in range(len(packed)):
        with pytest.raises(ValueError, match="cut off"):
            unpack_texts(packed[:cut], "x")


def test_no_temporary_files_stay(model: Path, make_result: MakeResult, user_file: str) -> None:
    apply_result(make_result(user_file), model)
    assert not [name for _, _, names in os.walk(model.parent) for name in names if name.startswith(".")]
