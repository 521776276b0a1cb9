"""What requests and commands work with: documents, settings, jobs, history, and the way to the client."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.find import ModuleClass
from kernel_assistant_lsp.client import Abilities
from kernel_assistant_lsp.configuration import Configuration
from kernel_assistant_lsp.documents import Documents, path_of
from kernel_assistant_lsp.edits import workspace_edit
from kernel_assistant_lsp.hints import hints
from kernel_assistant_lsp.history import History
from kernel_assistant_lsp.jobs.progress import WorkDone
from kernel_assistant_lsp.jobs.table import Jobs
from kernel_assistant_lsp.jobs.view import JobView
from kernel_assistant_lsp.model import ModelProcess
from kernel_assistant_lsp.names import JOB_NOTIFICATION
from kernel_assistant_lsp.parsing import SMALL, Parses
from kernel_assistant_lsp.snapshot import Snapshot

_log = logging.getLogger(__name__)

#: Seconds without a keystroke before a long text is parsed, and before lenses are asked for again.
_PAUSE_S = 0.2
_REFRESH_S = 0.3


class Context:
    """One for a server. Everything here is used in the event loop."""

    def __init__(self, server: LanguageServer, documents: Documents) -> None:
        self.server = server
        self.documents = documents
        self.abilities = Abilities()
        self.trusted = True
        self.configuration = Configuration()
        self.parses = Parses()
        self.jobs = Jobs()
        self.jobs.listeners.append(self._on_job)
        self.work_done = WorkDone(server.work_done_progress)
        self.model = ModelProcess()
        self.undone_when_saved: dict[Path, set[str]] = {}
        self._history: History | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._looking: dict[str, asyncio.Lock] = {}
        self._refresh: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def history(self) -> History:
        """Made when it is first needed, since where it lies is a setting."""
        if self._history is None:
            self._history = History(resolve()[0])
        return self._history

    def folders(self) -> list[Path]:
        """The workspace's."""
        return [path_of(uri) for uri in self.folder_uris()]

    def folder_uris(self) -> list[str]:
        """As the client writes them; pygls's own keys are not."""
        return [folder.uri for folder in self.server.workspace.folders.values()]

    def settings(self, path: Path | None) -> Settings:
        """Raises UsageError for a value that does not fit."""
        return self.configuration.settings(path)

    def classes(self, snapshot: Snapshot) -> tuple[ModuleClass, ...]:
        return self.parses.classes(snapshot) if snapshot.path.suffix == ".py" else ()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; the loop alone would forget it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal %s", "".join(traceback.format_exception(error)))

    # what changes

    def look_soon(self, uri: str, pause: float = _PAUSE_S) -> None:
        """Parse a document and read its history when nothing has happened to it for a moment."""
        if uri in self._timers:
            self._timers.pop(uri).cancel()
        loop = asyncio.get_running_loop()
        self._timers[uri] = loop.call_later(pause, lambda: self.spawn(self.look(uri)))

    async def look(self, uri: str) -> None:
        """Parse a document and read its history now; lenses are asked for again where that changed anything."""
        self._timers.pop(uri, None)
        async with self._looking.setdefault(uri, asyncio.Lock()):
            snapshot = self.documents.opened(uri)
            if snapshot is not None and snapshot.path.suffix == ".py":
                await self._look(snapshot)

    async def _look(self, snapshot: Snapshot) -> None:
        long = len(snapshot.text) > SMALL
        moved = await in_thread(lambda: self.parses.parse(snapshot)) if long else False
        if self.trusted:
            await self._publish(snapshot)
        try:
            learned = await in_thread(lambda: self.history.read(snapshot.path, snapshot.text))
        except StoreError as error:
            self.tell(error.cause, types.MessageType.Warning)
            learned = False
        if moved or learned:
            self.refresh()

    async def _publish(self, snapshot: Snapshot) -> None:
        """Hints of a document, or none where they are switched off."""
        found: list[types.Diagnostic] = []
        if self.configuration.is_on(snapshot.path, "diagnostics"):
            found = await in_thread(lambda: hints(snapshot, self.history, self.configuration))
        if self.is_current(snapshot):
            self.server.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri=snapshot.uri, version=snapshot.version, diagnostics=found)
            )

    def look_at_all(self) -> None:
        for snapshot in self.documents.all():
            self.look_soon(snapshot.uri, 0.0)

    def refresh(self) -> None:
        """Have the client ask for lenses and inlay hints again, not more than a few times a second."""
        if self._refresh is None:
            self._refresh = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh_now)

    def _refresh_now(self) -> None:
        self._refresh = None
        if self.abilities.refreshes_lenses:
            self.server.workspace_code_lens_refresh(None)
        if self.abilities.refreshes_hints:
            self.server.workspace_inlay_hint_refresh(None)

    def _on_job(self, before: JobView, view: JobView) -> None:
        if self.abilities.job_events:
            self.server.protocol.notify(JOB_NOTIFICATION, view.document())
        elif self.abilities.work_done:
            self.work_done.show(view)
        if (before.state, before.best, before.message) != (view.state, view.best, view.message):
            self.refresh()

    # what goes to the client

    def tell(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        self.server.window_show_message(types.ShowMessageParams(type=kind, message=message))

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether nothing was typed since `snapshot`."""
        return self.documents.opened(snapshot.uri) is snapshot

    async def edit(self, snapshot: Snapshot, after: str, label: str) -> None:
        """Have the client change an open document. Raises UsageError where it did not."""
        if after == snapshot.text:
            return
        if not self.is_current(snapshot):
            raise UsageError(f"{snapshot.path.name} was edited in the meantime", "try again")
        edit = workspace_edit(snapshot, after, versioned=self.abilities.versioned_edits)
        params = types.ApplyWorkspaceEditParams(edit=edit, label=label)
        try:
            answer = await self.server.workspace_apply_edit_async(params)
        except JsonRpcException as error:
            raise UsageError(f"the editor did not take the edit: {error.message}", "try again") from error
        if not answer.applied:
            reason = answer.failure_reason or "it gave no reason"
            raise UsageError(f"the editor did not take the edit: {reason}", "try again")
