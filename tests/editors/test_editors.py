"""Neovim: lens, optimize with progress, cancel, apply, write, undo. Then Emacs (eglot) and Helix on the same result.

`make test-editors` installs the editors and sets KERNEL_ASSISTANT_TEST_TOOLS; without it the tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editors.helix import Helix

HERE = Path(__file__).parent
_HELIX = os.environ.get("KERNEL_ASSISTANT_TEST_HELIX") or shutil.which("hx") or ""
EXAMPLE = HERE.parents[1] / "examples" / "masked_cumsum.py"

pytestmark = [
    pytest.mark.editor,
    pytest.mark.slow,
    pytest.mark.skipif(
        "KERNEL_ASSISTANT_TEST_TOOLS" not in os.environ, reason="make test-editors installs the editors"
    ),
    pytest.mark.timeout(420),
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One project folder and one state folder: the job that Neovim runs is offered to Emacs."""
    folder = tmp_path_factory.mktemp("my models ü")
    shutil.copy(EXAMPLE, folder)
    yield folder
    stop = [_server(), "-m", "kernel_assistant", "host", "stop"]
    subprocess.run(stop, env={**os.environ, "KERNEL_ASSISTANT_HOME": str(folder / ".assistant")}, check=True)


def _server() -> str:
    """The Python that has the server installed."""
    return os.environ.get("KERNEL_ASSISTANT_TEST_SERVER", sys.executable)


def _run(workspace: Path, *command: str) -> list[str]:
    """The names of the steps that the editor's script has printed."""
    python = os.environ.get("KERNEL_ASSISTANT_TEST_PYTHON", sys.executable)
    environ = {
        **os.environ,
        "KERNEL_ASSISTANT_HOME": str(workspace / ".assistant"),
        "SERVER": json.dumps([_server(), "-P", "-m", "kernel_assistant", "lsp"]),
        "SETTINGS": json.dumps({"target": "cpu", "interpreter": python, "budget": {"seconds": 90}}),
        "FILE": str(workspace / EXAMPLE.name),
        "CLASS": "MaskedCumsum",
    }
    done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd=workspace, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).split()


def test_neovim_optimizes_cancels_applies_and_undoes(workspace: Path) -> None:
    steps = _run(workspace, "nvim", "--headless", "-u", "NONE", "-c", f"luafile {HERE / 'neovim.lua'}")
    wanted = ["lens", "progress", "cancelled", "finished", "told", "result", "applied", "undone"]
    assert [step for step in steps if step in wanted] == wanted
    assert (workspace / EXAMPLE.name).read_text() == EXAMPLE.read_text()


def test_eglot_is_offered_the_result_applies_and_undoes(workspace: Path) -> None:
    steps = _run(workspace, "emacs", "--quick", "--batch", "-l", str(HERE / "emacs.el"))
    wanted = ["result", "applied", "undone"]
    assert [step for step in steps if step in wanted] == wanted
    assert (workspace / EXAMPLE.name).read_text() == EXAMPLE.read_text()


@pytest.mark.skipif(not _HELIX, reason="Helix is a package from Debian 13 on; KERNEL_ASSISTANT_TEST_HELIX names one")
def test_helix_is_offered_the_result_applies_and_undoes(workspace: Path, tmp_path: Path) -> None:
    file = workspace / EXAMPLE.name
    config = (
        f"[language-server.kernel-assistant]\ncommand = {json.dumps(_server())}\n"
        'args = ["-P", "-m", "kernel_assistant", "lsp"]\n'
        '[[language]]\nname = "python"\nlanguage-servers = ["kernel-assistant"]\n'
    )
    environ = {**os.environ, "KERNEL_ASSISTANT_HOME": str(workspace / ".assistant")}
    line = EXAMPLE.read_text().splitlines().index("class MaskedCumsum(nn.Module):") + 1
    with Helix(_HELIX, file, line, config, tmp_path, environ) as helix:
        helix.until(lambda: helix.said("textDocument/publishDiagnostics") > 0)
        helix.wait(2.0)  # and what the store has
        helix.action(3)
        helix.until(lambda: helix.said('"method": "workspace/applyEdit"') == 1)
        helix.save()
        helix.until(lambda: "_kernels/load.py" in file.read_text())
        helix.wait(2.0)
        helix.action(2)
        helix.until(lambda: helix.said('"method": "workspace/applyEdit"') == 2)
        helix.save()
        helix.until(lambda: file.read_text() == EXAMPLE.read_text())
        helix.until(lambda: not (workspace / "masked_cumsum_kernels").exists())
