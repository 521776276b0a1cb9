"""Gets inputs for a class: a draft that the user edits, or a recording of a program. Also scans programs: runs them and
ranks their modules by time."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kernel_assistant.apply import is_installed
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
    """Asks the user for the inputs of a class: a draft to edit, or a program to record. Returns whether the class has
    inputs now. `why` is shown as the title of the dialog. Raises UsageError for a class of an installed library."""
    from kernel_assistant_tui.dialogs.questions import InputsDialog

    if is_installed(module.path):
        raise UsageError(
            f"{module.name} is of an installed library, whose file stays as it is",
            "record its inputs: scan a program that uses it",
        )
    drafted = await in_thread(lambda: draft(module.spec))
    answer = await screen.app.push_screen_wait(InputsDialog(module, drafted, why))
    if answer is None:
        return False
    if answer.how == "record":
        return await record(screen, module)
    await in_thread(lambda: _write(module.path, module.name, answer.text))
    await screen.following.look(frozenset({module.path}))
    screen.say(f"{module.where} declares inputs of {module.name} now")
    return True


async def scan(screen: MainScreen) -> None:
    await record(screen, screen.module)


async def record(screen: MainScreen, module: Module | None) -> bool:
    """Asks for a program and runs it under the recorder, which times modules and keeps their inputs. Returns whether it
    recorded any class; False if the user cancels. Raises UsageError or MissingError if the program cannot be
    scanned."""
    from kernel_assistant.session.scanning.scan_process import ScanProcess
    from kernel_assistant_tui.dialogs.questions import LineDialog

    root = screen.work.root
    folder = root if root.is_dir() else root.parent
    own = module is not None and not is_installed(module.path)
    suggested = f"python {shlex.quote(module.where)}" if module is not None and own else "python -m pytest -q"
    title = "Run a program and see what its modules cost"
    hint = (
        f"It runs in {folder}, as it always does; python is the project's interpreter. Its classes are "
        "ranked by what kernels could gain, and the inputs of the first ones are kept for optimizing them."
    )
    line = await screen.app.push_screen_wait(LineDialog(title, suggested, hint, yes=("s", "scan")))
    if not line:
        return False
    screen.say(f"scanning: {line}; cancel stops it and keeps what was called until then")
    settings = screen.work.settings_for(root)
    process = await ScanProcess.start(_words(line), folder, module.path if module else root, settings)
    screen.scanning = process
    try:
        recorded = await process.answer()
    finally:
        screen.scanning = None
        screen.refresh_keys()
    await screen.following.look(None)
    classes = recorded["classes"]
    ours = f"{len(classes)} classes" + (f", {classes[0]['name']} first" if classes else "")
    screen.say(f"scan {recorded['id']}: {ours}; the modules are in its order now")
    return bool(classes)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r} is no command: {error}", "quote it as in a shell") from error


def _write(path: Path, class_name: str, text: str) -> None:
    check_source(path)
    source = decode_source(read_bytes(path), path.name)
    write_atomically(path, source.encode(with_draft(source.text, class_name, text)))
