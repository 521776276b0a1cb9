"""Tests applying and undoing on disk, without running the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.apply import AppliedOptions, applied_variants, apply_result, undo
from kernel_assistant.apply import files as file_functions
from kernel_assistant.apply.edit import BLOCK, IMPORT_LINE, plan_edit
from kernel_assistant.errors import UsageError
from kernel_assistant.worker.applied.parts import Parts, pack_texts, unpack_texts
from tests.apply.conftest import MakeResult, snapshot


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


def test_package_holds_what_it_should(model: Path, result: Path) -> None:
    applied = apply_result(result, model, options=AppliedOptions(min_elements=7))
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


def test_own_edits_survive_undo(model: Path, result: Path, user_file: str) -> None:
    apply_result(result, model)
    shutil.rmtree(result)

    def edited(text: str) -> str:
        return "# mine\n" + text.replace("scale: float = 1.5", "scale: float = 2.5") + "\nLAST = 1\n"

    model.write_text(edited(model.read_text()))
    assert not undo(model).restored
    assert model.read_text() == edited(user_file)


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
    """A file that an older version edited, without a block, is accepted, and gets the block with new kernels."""
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


def test_undo_without_the_package(model: Path, result: Path, user_file: str) -> None:
    apply_result(result, model)
    shutil.rmtree(model.parent / "model_kernels")
    assert undo(model).classes == ("Gate",)
    assert model.read_text() == user_file


def test_undo_without_the_file(model: Path, result: Path) -> None:
    apply_result(result, model)
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


def test_changed_class_is_refused(model: Path, result: Path, user_file: str) -> None:
    model.write_text(user_file.replace("self.weight * self.scale", "self.weight / self.scale"))
    refuse(model, result, "has changed since the job")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        *(("a.ipynb", "notebook"), ("a.zip/model.py", "archive"), ("b.py", "not a file"), ("locked.py", "read-only")),
        *(("link.py", "symbolic link"), ("kept.py", "in the way")),
    ],
)
def test_odd_files_are_refused(name: str, cause: str, model: Path, result: Path, user_file: str) -> None:
    folder = model.parent
    for there in ("a.ipynb", "a.zip", "locked.py", "kept.py"):
        (folder / there).write_text(user_file)
    (folder / "locked.py").chmod(0o444)
    (folder / "link.py").symlink_to(model)
    (folder / "kept_kernels").mkdir()
    (folder / "kept_kernels" / "mine.py").write_text("")
    refuse(folder / name, result, cause)


def test_a_full_disk_leaves_everything_as_it_was(model: Path, result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        if b"_with_kernels" in Path(f"/proc/self/fd/{descriptor}").read_bytes()[:400]:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_functions.os, "fsync", fsync)
    refuse(model, result, "No space left")


def test_variants_do_not_touch_the_file(model: Path, result: Path, user_file: str, tmp_path: Path) -> None:
    before = snapshot(model.parent)
    variants = applied_variants(result, model, tmp_path / "timing")
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
