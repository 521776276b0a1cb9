"""Watches for files that change outside the editor. The client reports the changes; if it cannot, the package
`watchdog` does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_assistant.apply import is_installed
from kernel_assistant.apply.package import MANIFEST
from kernel_assistant.session.threads import in_thread, tell
from kernel_assistant_lsp.context import Context

_PATTERNS = ("**/*.py", f"**/*_kernels/{MANIFEST}", f"**/kernels_for_*/{MANIFEST}", "**/pyproject.toml")


async def watch_outside(context: Context) -> None:
    """Starts watching the Python files, kernel packages and settings of the workspace. The client is asked to watch
    them; if it cannot or refuses, this process watches the workspace's folders. After a change, `changed_outside`
    updates the open documents that it affects."""
    if not context.abilities.watches_files:
        await in_thread(lambda: None)
        _watch_ourselves(context)
        return
    watchers = [types.FileSystemWatcher(glob_pattern=pattern) for pattern in _PATTERNS]
    registration = types.Registration(
        id="kernel-assistant/files",
        method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
        register_options=types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers),
    )
    try:
        await context.server.client_register_capability_async(types.RegistrationParams(registrations=[registration]))
    except JsonRpcException:
        _watch_ourselves(context)


def changed_outside(context: Context, paths: Iterable[Path]) -> None:
    """Update the open documents whose file, package or settings are among `paths`."""
    folders = {path.parent.name if path.name == MANIFEST else path.stem for path in paths}
    everything = any(path.name == "pyproject.toml" for path in paths)
    library = any(folder.startswith("kernels_for_") for folder in folders)
    for snapshot in context.documents.all():
        stem = snapshot.path.stem
        if everything or (library and is_installed(snapshot.path)) or stem in folders or f"{stem}_kernels" in folders:
            context.look_soon(snapshot.uri)


def _watch_ourselves(context: Context) -> None:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    loop = asyncio.get_running_loop()

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            paths = [Path(str(name)) for name in (event.src_path, event.dest_path) if name]
            if any(_matters(path) for path in paths) and event.event_type != "opened":
                tell(loop, changed_outside, context, paths)

    observer: Any = Observer()
    observer.daemon = True
    for folder in context.folders():
        if folder.is_dir():
            observer.schedule(Handler(), str(folder), recursive=True)
    observer.start()


def _matters(path: Path) -> bool:
    return path.suffix == ".py" or path.name in (MANIFEST, "pyproject.toml")
