"""Tests that a program's requirements are visible: interpreters through chains of links, toolkits, compilers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_assistant.errors import MissingError, SandboxError
from kernel_assistant.sandbox.contract import Sandbox, SandboxSpec
from kernel_assistant.sandbox.mounts import MountLayout, inside
from kernel_assistant.sandbox.paths import compiler_paths, interpreter_paths
from kernel_assistant.sandbox.run import run

WHERE = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable]))"


@pytest.fixture
def linked_environment(tmp_path: Path) -> Path:
    """A virtual environment whose python is a link through a linked folder, which is itself reached through a linked
    folder.
    """
    real = tmp_path / "real" / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(real)], check=True)
    hop = tmp_path / "hop"
    hop.mkdir()
    (hop / "python-again").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "hop-link").symlink_to("hop")
    executable = real / "bin" / "python"
    executable.unlink()
    executable.symlink_to(tmp_path / "hop-link" / "python-again")
    (tmp_path / "environment").symlink_to("real/environment")
    return tmp_path / "environment" / "bin" / "python"


def test_a_linked_virtual_environment_works_inside(sandbox: Sandbox, linked_environment: Path) -> None:
    outside = subprocess.run([linked_environment, "-I", "-c", WHERE], capture_output=True, check=True).stdout
    program = str(linked_environment)
    spec = SandboxSpec(argv=(program, "-I", "-c", WHERE), read_only=interpreter_paths(program))
    done = run(sandbox, spec, timeout=60)
    assert done.stderr == b""
    assert json.loads(done.stdout) == json.loads(outside)


def test_a_wrapper_script_leads_to_the_interpreter(sandbox: Sandbox, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    paths = interpreter_paths(str(wrapper))
    done = run(sandbox, SandboxSpec(argv=(paths[0], "-I", "-c", "print('ran')"), read_only=paths), timeout=60)
    assert done.stdout == b"ran\n"


def test_an_interpreter_that_does_not_run_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(MissingError, match="does not run"):
        interpreter_paths(str(broken))
    with pytest.raises(MissingError, match="not found"):
        interpreter_paths(str(tmp_path / "absent"))


def test_a_home_as_prefix_is_not_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", sys.base_prefix)
    interpreter_paths.cache_clear()
    try:
        paths = interpreter_paths(sys.executable)
    finally:
        interpreter_paths.cache_clear()
    assert sys.base_prefix not in paths
    assert f"{sys.base_prefix}/lib" in paths


def test_the_compiler_says_where_it_lives() -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None
    paths = compiler_paths(compiler)
    assert os.path.dirname(os.path.realpath(compiler)) in paths
    assert all(os.path.isdir(path) for path in paths)


def test_a_toolkit_away_from_the_system_works_inside(sandbox: Sandbox, tmp_path: Path, workspace: str) -> None:
    """The compiler is in a hidden folder, behind a link to a wrapper, with another program beside it."""
    toolkit = tmp_path / "toolkit"
    toolkit.mkdir()
    (toolkit / "inner").write_text("#!/bin/sh\necho compiled > product\n")
    (toolkit / "compiler").write_text(f"#!/bin/sh\nexec {toolkit}/inner\n")
    for name in ("inner", "compiler"):
        (toolkit / name).chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cc").symlink_to("../toolkit/compiler")
    argv = (str(tmp_path / "bin" / "cc"),)
    spec = SandboxSpec(argv=argv, workspace=workspace, read_only=(argv[0], str(toolkit)), allow_fork=True)
    assert run(sandbox, spec, timeout=60).returncode == 0
    assert Path(workspace, "product").read_text() == "compiled\n"


def test_a_read_only_folder_around_the_workspace_and_one_inside(tmp_path: Path) -> None:
    layout = MountLayout()
    for folder in ("a", "a/workspace", "a/workspace/plan", "a/workspace/plan/deeper", "a/other"):
        (tmp_path / folder).mkdir()
    for folder in ("a/workspace/plan", "a", "a/other", "a/workspace/plan/deeper"):
        layout.add(str(tmp_path / folder))
    layout.add(str(tmp_path / "a/workspace"), writable=True)
    top = str(tmp_path)
    assert layout.binds == [(f"{top}/a", False), (f"{top}/a/workspace", True), (f"{top}/a/workspace/plan", False)]


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SandboxError, match="symbolic links"):
        MountLayout().add(str(tmp_path / "a" / "file"))


def test_the_whole_machine_is_refused() -> None:
    with pytest.raises(SandboxError, match="whole machine"):
        MountLayout().add("/")


@given(st.lists(st.sampled_from(["a", "b", "c", "ab"]), min_size=1, max_size=5), st.integers(0, 5))
def test_inside_agrees_with_pathlib(parts: list[str], cut: int) -> None:
    path = Path("/", *parts)
    folder = Path("/", *parts[:cut])
    assert inside(str(path), str(folder)) == path.is_relative_to(folder)
    assert not inside(f"{path}x", str(path))
