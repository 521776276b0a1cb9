"""Copy what the pane shows, through the terminal (OSC 52): over SSH too, where the terminal allows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_assistant.session.threads import in_thread

if TYPE_CHECKING:
    from kernel_assistant_tui.jobs import OpenJob
    from kernel_assistant_tui.screens.main import MainScreen

_SOURCES = (".cu", ".cuh", ".cpp", ".h")


async def copy(screen: MainScreen) -> None:
    """Text that is marked with the mouse; else the class, the transcript, or the kernel's source."""
    marked = screen.get_selected_text()
    if marked:
        _copy(screen, marked, "what is marked")
        return
    job, pane = screen.job, screen.pane
    if pane == "episode" and job is not None:
        _copy(screen, "\n".join(line.text for line in job.view.lines), "the transcript")
    elif pane == "result" and job is not None and job.has_kernels:
        text = await in_thread(lambda: sources_of(job))
        _copy(screen, text, "the kernel's source")
    elif screen.module is not None:
        _copy(screen, screen.module.spec, screen.module.spec)


def sources_of(job: OpenJob) -> str:
    """The best candidate's sources, each below its name."""
    artifacts = job.view.result.artifacts if job.view.result is not None else {}
    parts = []
    for name, path in artifacts.items():
        if name.endswith(_SOURCES) and Path(path).is_file():
            parts.append(f"// {name}\n{Path(path).read_text(encoding='utf-8')}")
    return "\n".join(parts)


def _copy(screen: MainScreen, text: str, what: str) -> None:
    screen.app.copy_to_clipboard(text)
    screen.say(f"copied {what}")
