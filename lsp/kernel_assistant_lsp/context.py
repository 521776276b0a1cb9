"""The state that requests and commands share: documents, settings, jobs, history, and access to the client."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant.session.reporting.check_report import CHECK_FILE
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.find import ModuleClass
from kernel_assistant.source.outline import Outline
from kernel_assistant_lsp.client import ClientCapabilities
from kernel_assistant_lsp.configuration import Configuration
from kernel_assistant_lsp.hints import hints
from kernel_assistant_lsp.history import History
from kernel_assistant_lsp.jobs.progress import WorkDone
from kernel_assistant_lsp.jobs.table import Jobs
from kernel_assistant_lsp.jobs.view import EditorJob, at_its_end
from kernel_assistant_lsp.model import ModelProcess
from kernel_assistant_lsp.names import JOB_NOTIFICATION
from kernel_assistant_lsp.text.documents import Documents, path_of
from kernel_assistant_lsp.text.edits import workspace_edit
from kernel_assistant_lsp.text.homeless import outline_of_cell
from kernel_assistant_lsp.text.parsing import SMALL, ParseCache
from kernel_assistant_lsp.text.snapshot import Snapshot

_log = logging.getLogger(__name__)

#: Seconds without a keystroke before a long text is parsed, and before lenses are asked for again.
_PAUSE_S = 0.2
_REFRESH_S = 0.3
#: Seconds that a lens waits for the session host to report its jobs.
_FOLLOW_S = 5.0
#: Number and length (seconds) of the waits for the text of an edit that the client has accepted.
_PATIENCE, _TICK_S = 100, 0.02


class Context:
    """The state that the requests of one server share. Use it in the event loop only."""

    def __init__(self, server: LanguageServer, documents: Documents) -> None:
        self.server = server
        self.documents = documents
        self.abilities = ClientCapabilities()
        self.trusted = True
        self.configuration = Configuration()
        self.parses = ParseCache()
        self.jobs = Jobs()
        self.jobs.listeners.append(self._on_job)
        self.work_done = WorkDone(server.work_done_progress)
        self.model = ModelProcess()
        self.unsuggested: set[str] = set()
        #: Set after the jobs of a session host that already ran have been looked up.
        self.followed = asyncio.Event()
        self.undone_when_saved: dict[Path, set[str]] = {}
        self._history: History | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._first: dict[Path, asyncio.Task[bool]] = {}
        self._parsing: dict[str, asyncio.Lock] = {}
        self._update_locks: dict[str, asyncio.Lock] = {}
        self._refresh: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unfinished: set[Callable[[], None]] = set()

    @property
    def history(self) -> History:
        """The history of the classes in each file. It is created at first use, since its folder is a setting."""
        if self._history is None:
            self._history = History(resolve()[0], self.folders)
        return self._history

    def folders(self) -> list[Path]:
        """Return the folders of the workspace."""
        return [path_of(uri) for uri in self.folder_uris()]

    def folder_uris(self) -> list[str]:
        """Return the URIs of the workspace's folders as the client writes them; pygls uses changed URIs as keys."""
        return [folder.uri for folder in self.server.workspace.folders.values()]

    def settings(self, path: Path | None) -> Settings:
        """Return the settings for `path`. Raises UsageError for an invalid value."""
        return self.configuration.settings(path)

    def outline(self, snapshot: Snapshot) -> Outline:
        """Returns the outline of a document: its module classes and syntax errors. A long text is not parsed for this:
        its last outline is returned, with moved line numbers."""
        if not snapshot.is_python:
            return Outline()
        others = self.documents.other_cells(snapshot)
        return outline_of_cell(snapshot, others) if others else self.parses.outline(snapshot)

    def classes(self, snapshot: Snapshot) -> tuple[ModuleClass, ...]:
        return self.outline(snapshot).classes

    async def first_outline(self, snapshot: Snapshot) -> Outline:
        """Return the outline of a document, after parsing it if it was just opened."""
        if snapshot.is_python and not self.parses.is_known(snapshot):
            await self._parse(snapshot)
        return self.outline(snapshot)

    def states(self, path: Path) -> Mapping[str, ClassState]:
        """Returns a map from class name to state for one file. A class whose kernels will be deleted at the next save
        does not count as one with unused kernels."""
        states, going = self.history.of(path).states, self.undone_when_saved.get(path)
        if not going:
            return states
        return {name: replace(one, unused=one.unused and name not in going) for name, one in states.items()}

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` as a task in the background and logs its exception. Keeps a reference to the task, because the
        event loop itself has only a weak one."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def to_the_end(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread. If the server ends meanwhile, `finish` runs `work` (again, if necessary) before the
        process exits.
        """
        self._unfinished.add(work)
        await in_thread(work)
        self._unfinished.discard(work)

    def finish(self) -> None:
        """Run all work that `to_the_end` has begun and not completed. Called after the event loop has ended."""
        for work in list(self._unfinished):
            work()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal %s", "".join(traceback.format_exception(error)))

    # what changes

    def look_soon(self, uri: str, pause: float = _PAUSE_S) -> None:
        """Parse a document and read its history after a pause of `pause` seconds; a further call for this document
        restarts the pause."""
        self._forget_timer(uri)
        loop = asyncio.get_running_loop()
        self._timers[uri] = loop.call_later(pause, lambda: self.spawn(self.look(uri)))

    async def look(self, uri: str) -> None:
        """Parse a document and read its history now; refresh the lenses if either has changed."""
        self._forget_timer(uri)
        async with self._update_locks.setdefault(uri, asyncio.Lock()):
            snapshot = self.documents.opened(uri)
            if snapshot is not None and snapshot.path.suffix == ".py":
                await self._update(snapshot)

    def _forget_timer(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    async def _update(self, snapshot: Snapshot) -> None:
        long = len(snapshot.text) > SMALL
        moved = await self._parse(snapshot) if long else False
        learned = await self._read_history(snapshot)
        if moved or learned:
            self.refresh()
        if self.trusted:
            await self._publish(snapshot)

    async def _read_history(self, snapshot: Snapshot) -> bool:
        """Read the history of a file. Return whether it changed."""
        try:
            return await in_thread(lambda: self.history.read(snapshot.path, snapshot.text))
        except StoreError as error:
            self.tell(error.cause, types.MessageType.Warning)
            return False

    async def first_history(self, snapshot: Snapshot) -> None:
        """Waits until the history of a file was read and its running jobs are followed. Without this wait, a server
        that has just started would offer to optimize classes with applied kernels, and would show jobs of other servers
        as interrupted."""
        first = self._first.get(snapshot.path)
        if first is None:
            first = self._first[snapshot.path] = asyncio.create_task(self._read_history(snapshot))
        # Several requests wait for this task: cancelling one of them must not cancel it.
        await asyncio.shield(first)
        active = {name for name, state in self.history.of(snapshot.path).states.items() if state.is_active}
        if not self.followed.is_set() and active.difference(self.jobs.running(snapshot.path)):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.followed.wait(), _FOLLOW_S)
            self.followed.set()

    async def _parse(self, snapshot: Snapshot) -> bool:
        """Parse a document unless this text was parsed already. Return whether the outline changed."""
        async with self._parsing.setdefault(snapshot.uri, asyncio.Lock()):
            if self.parses.has(snapshot):
                return False
            return await in_thread(lambda: self.parses.parse(snapshot))

    async def _publish(self, snapshot: Snapshot) -> None:
        """Sends the hints (advice about slow code) of a document to the client as diagnostics; an empty list if they
        are switched off."""
        diagnostics: list[types.Diagnostic] = []
        if self.configuration.is_on(snapshot.path, "diagnostics"):
            diagnostics = await in_thread(lambda: hints(snapshot, self.history, self.configuration))
        if self.is_current(snapshot):
            self.server.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri=snapshot.uri, version=snapshot.version, diagnostics=diagnostics)
            )

    def look_at_all(self) -> None:
        for snapshot in self.documents.all():
            self.look_soon(snapshot.uri, 0.0)

    def refresh(self) -> None:
        """Make the client request lenses and inlay hints again. Several calls within 0.3 s cause one request."""
        if self._refresh is None:
            self._refresh = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh_now)

    def _refresh_now(self) -> None:
        self._refresh = None
        if self.abilities.refreshes_lenses:
            self.server.workspace_code_lens_refresh(None)
        if self.abilities.refreshes_hints:
            self.server.workspace_inlay_hint_refresh(None)

    def _on_job(self, before: EditorJob, view: EditorJob) -> None:
        if self.abilities.job_events:
            self.server.protocol.notify(JOB_NOTIFICATION, view.document())
        elif self.abilities.work_done:
            self.work_done.show(view)
        # The end of a check of applied kernels is reported with its verdict (start.py).
        checked = view.result is not None and CHECK_FILE in view.result.artifacts
        if before.active and not view.active and not checked and not self.abilities.job_events:
            failed = view.status == "failed"
            self.tell(at_its_end(view), types.MessageType.Error if failed else types.MessageType.Info)
        if (before.status, before.best, before.message) != (view.status, view.best, view.message):
            self.refresh()

    # what goes to the client

    def tell(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        self.server.window_show_message(types.ShowMessageParams(type=kind, message=message))

    def is_current(self, snapshot: Snapshot) -> bool:
        """Return whether `snapshot` is still the text in the editor."""
        return self.documents.opened(snapshot.uri) is snapshot

    async def changed_since(self, snapshot: Snapshot) -> None:
        """Waits until the text of the document differs from `snapshot`, for two seconds at most. After accepting an
        edit, the client sends the new text as a change."""
        for _ in range(_PATIENCE):
            if not self.is_current(snapshot):
                return
            await asyncio.sleep(_TICK_S)

    async def edit(self, snapshot: Snapshot, after: str, label: str) -> None:
        """Have the client change an open document to the text `after`. Raises UsageError if the client refuses."""
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
