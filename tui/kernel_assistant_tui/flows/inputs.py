"""Give a class inputs: drafted and mended, or recorded from a program. And scans, which rank the whole project."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kernel_assistant.apply.files import check_source, read_bytes, write_atomically
from kernel_assistant.apply.text import decode_source
from kernel_assistant.errors import UsageError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.draft import draft, with_draft
from kernel_assistant_tui.project.module import Module

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_assistant_tui.screens.main import MainScreen


async def inputs(screen: MainScreen) -> None:
    if screen.module is not None:
        await offer(screen, screen.module, "")


async def offer(screen: MainScreen, module: Module, why: str) -> bool:
    """True where the class has inputs now."""
    from kernel_assistant_tui.screens.inputs import InputsDialog

    drafted = await in_thread(lambda: draft(module.spec))
    answer = await screen.app.push_screen_wait(InputsDialog(module, drafted, why))
    if answer is None:
        return False
    if answer.how == "record":
        return await record(screen, module)
    await in_thread(lambda: _write(module.path, answer.text))
    await screen.following.look(frozenset({module.path}))
    screen.say(f"{module.where} declares inputs of {module.name} now")
    return True


async def scan(screen: MainScreen) -> None:
    await record(screen, screen.module)


async def record(screen: MainScreen, module: Module | None) -> bool:
    """Run a program of the user's under the recorder; True where it kept something. Raises what the scan says."""
    from kernel_assistant.session.scan_process import ScanProcess
    from kernel_assistant_tui.screens.scan import ScanDialog

    root = screen.work.root
    folder = root if root.is_dir() else root.parent
    suggested = f"python {shlex.quote(module.where)}" if module is not None else "python -m pytest -q"
    line = await screen.app.push_screen_wait(ScanDialog(suggested, folder))
    if not line:
        return False
    screen.say(f"scanning: {line}; cancel stops it and keeps what was called until then")
    settings = screen.work.settings_for(root)
    process = await ScanProcess.start(_words(line), folder, module.path if module else root, settings)
    screen.scanning = process
    try:
        found = await process.answer()
    finally:
        screen.scanning = None
        screen.refresh_keys()
    await screen.following.look(None)
    classes = found["classes"]
    ours = f"{len(classes)} classes" + (f", {classes[0]['name']} first" if classes else "")
    screen.say(f"scan {found['id']}: {ours}; the modules are in its order now")
    return bool(classes)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r} is no command: {error}", "quote it as in a shell") from error


def _write(path: Path, text: str) -> None:
    check_source(path)
    source = decode_source(read_bytes(path), path.name)
    write_atomically(path, source.encode(with_draft(source.text, text)))
