"""Tests that no action of a model or of the sandbox's shell leads out of the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_assistant.agent.tools.workspace import MAX_FILE, PathRefused, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(tmp_path / "inside")


def test_what_is_written_is_read_and_listed(workspace):
    workspace.write("kernel.cpp", "one\n")
    workspace.write("./notes/a.txt", "two")
    workspace.write("kernel.cpp", "3")
    assert workspace.read("kernel.cpp") == "3"
    assert [(entry.path, entry.size) for entry in workspace.files()] == [("kernel.cpp", 1), ("notes/a.txt", 3)]
    assert [entry.path for entry in workspace.files("notes")] == ["notes/a.txt"]


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "", ".", "..", "a\0b"])
def test_paths_that_lead_elsewhere_are_refused(workspace, path):
    for attempt in (workspace.read, lambda name: workspace.write(name, "mine"), workspace.files):
        if attempt == workspace.files and path in ("", "."):
            continue
        with pytest.raises(PathRefused):
            attempt(path)
    assert (workspace.folder.parent / "secret.txt").read_text() == "secret"


def test_links_are_not_followed(workspace):
    outside = workspace.folder.parent
    (workspace.folder / "link.txt").symlink_to(outside / "secret.txt")
    (workspace.folder / "folder").symlink_to(outside)
    for path in ("link.txt", "folder/secret.txt"):
        with pytest.raises(PathRefused):
            workspace.read(path)
        with pytest.raises(PathRefused):
            workspace.write(path, "mine")
    with pytest.raises(PathRefused):
        workspace.files("folder")
    assert workspace.files() == []
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_pipe_does_not_block(workspace):
    os.mkfifo(workspace.folder / "pipe")
    with pytest.raises(PathRefused):
        workspace.read("pipe")
    with pytest.raises(PathRefused):
        workspace.write("pipe", "mine")


def test_what_is_too_large_or_no_text_is_refused(workspace):
    with pytest.raises(PathRefused, match="1 MiB"):
        workspace.write("large.txt", "x" * (MAX_FILE + 1))
    (workspace.folder / "large.bin").write_bytes(b"x" * (MAX_FILE + 1))
    (workspace.folder / "other.bin").write_bytes(b"\xff\xfe")
    for path, why in (("large.bin", "larger"), ("other.bin", "UTF-8"), ("missing.cpp", "not there")):
        with pytest.raises(PathRefused, match=why):
            workspace.read(path)


def test_reference_files_are_for_reading(workspace):
    workspace.add_reference("graph.txt", "graph")
    with pytest.raises(PathRefused, match="reading"):
        workspace.write("reference/graph.txt", "mine")
    assert workspace.read("reference/graph.txt") == "graph"
