"""The packaged program in a real terminal: tests what a test inside its process cannot see."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from kernel_assistant.session.client import Client
from kernel_assistant.store import JobState
from tests.tui.terminal import Terminal

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (apt install tmux)"),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory, root):
    """The wheel, unpacked as pip would install it."""
    folder = tmp_path_factory.mktemp("site-packages")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=root, capture_output=True, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def tiny_host(installed, start_host, monkeypatch):
    """A host from the same wheel, because a host ends if a client of newer code connects."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    return start_host("tiny_host.py")


@pytest.fixture
def open_terminal(installed, project):
    """A function: size and environment → a terminal with the program, which shows the class."""
    opened = []

    def start(width=120, height=40, **environ):
        command = [sys.executable, "-m", "kernel_assistant", "tui", str(project)]
        environ = {"PYTHONPATH": str(installed), "LANG": "C.UTF-8", "LC_ALL": "", "NO_COLOR": "", **environ}
        wanted = {name: text for name, text in environ.items() if text}
        kept = [name for name in ("LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR") if name not in wanted]
        unset = [word for name in kept for word in ("-u", name)]
        opened.append(Terminal(["env", *unset, *command], cwd=project, width=width, height=height, environ=wanted))
        opened[-1].until("Gate")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def ended(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"{pid} goes on"
        time.sleep(0.05)
    return True


def test_a_job_from_start_to_end_and_out_without_torch_and_numpy(open_terminal, tiny_host, steered):
    steered("tick 50")
    terminal = open_terminal(80, 24)
    terminal.press("s", sees="turn 1")
    terminal.until("ended:")
    libraries = {Path(one.path).name for one in psutil.Process(terminal.pid).memory_maps()}
    assert any("python" in name or "libc" in name for name in libraries)
    assert not [name for name in libraries if "torch" in name or "numpy" in name]
    terminal.press("1", sees="modules")
    terminal.press("q")
    assert terminal.until_ended() == 0


def test_a_window_that_is_closed_leaves_the_job_and_no_process(open_terminal, tiny_host, steered, settings):
    steered("wait")
    first = open_terminal()
    first.press("s", sees="started on")
    pid = first.pid
    first.hang_up()
    assert ended(pid)
    assert [row.state for row in Client(settings).jobs()] == [JobState.running]
    second = open_terminal()
    second.until("started on", "1 Gate")
    second.press("x", sees="ended: cancelled")


def test_without_colours_everything_is_grey(open_terminal):
    """Every colour that the terminal gets has equal red, green and blue; the chosen row is still visible."""
    grey = open_terminal(NO_COLOR="1")
    assert colours(grey) and all(red == green == blue for red, green, blue in colours(grey))
    usual = open_terminal()
    assert not all(red == green == blue for red, green, blue in colours(usual))


def colours(terminal):
    """The red, green and blue values of all colours that the terminal got; the numbered colours are not used."""
    told = re.findall(r"\x1b\[([0-9;]+)m", terminal.text(colours=True))
    assert not [one for one in told if re.fullmatch(r"(?:\d;)*[349][1-6]", one)]
    return {tuple(map(int, found)) for one in told for found in re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", one)}


def test_without_utf8_everything_is_ascii(open_terminal, tiny_host, steered):
    steered("tick 5", "ascii.py")
    terminal = open_terminal(LANG="C", LC_ALL="C")
    shown = terminal.press("s", sees="ended:")
    for key, seen in (("?", "esc back"), ("h", "History"), ("o", "who writes kernels")):
        terminal.press(key)
        shown += terminal.until(seen)
        terminal.press("escape")
        terminal.until_gone(seen)
    assert shown.isascii(), {character for character in shown if not character.isascii()}


def test_an_editor_gets_the_terminal_and_gives_it_back(open_terminal, project):
    editor = project / "editor"
    script = 'echo editing; read word; sed -i "s/Gate/$word/" "$1"'
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o755)
    terminal = open_terminal(EDITOR=shlex.quote(str(editor)), VISUAL="")
    terminal.press("e", sees="editing")
    terminal.write("Edited")
    terminal.press("enter")
    terminal.until("Edited", "modules")
    assert "class Edited" in (project / "model.py").read_text()


def test_an_editor_that_is_not_there_is_told_of(open_terminal):
    terminal = open_terminal(EDITOR="no-such-editor", VISUAL="")
    terminal.press("e")
    terminal.until("no-such-editor cannot be started", "modules")
    terminal.press("2")
    assert terminal.status is None
