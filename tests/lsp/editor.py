"""An editor without a screen: pytest-lsp's client, buffers that apply edits as editors do, and a file system."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from importlib import resources

import pytest_lsp.clients
from lsprotocol import types
from lsprotocol.converters import get_converter
from pytest_lsp import make_test_lsp_client

from tests.common.modules import GATE

SERVER = [sys.executable, "-m", "kernel_assistant", "lsp", "--stdio"]

MODEL = GATE


def capabilities(name):
    """The capabilities of a real editor, from pytest-lsp's collection."""
    text = resources.files(pytest_lsp.clients).joinpath(f"{name}.json").read_text()
    return get_converter().structure(json.loads(text)["capabilities"], types.ClientCapabilities)


async def until(condition, seconds=20):
    """What `condition`, a function or a coroutine function, gives once that is true."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.1)


class Editor:
    """One editor with one server. `events` has every notification `kernelAssistant/job`."""

    def __init__(self):
        self.client = make_test_lsp_client()
        self.buffers = {}
        self.events = []
        self.statuses = []
        self.unsuggested = []
        self.refuse_edits = ""
        self._listen()

    async def start(self, folders, *, of="visual_studio_code_v1.65.2", options=None, change=None):
        found = capabilities(of)
        if change is not None:
            change(found)
        await self.client.start_io(*SERVER)
        workspace = [types.WorkspaceFolder(uri=folder.as_uri(), name=folder.name) for folder in folders]
        params = types.InitializeParams(
            capabilities=found,
            workspace_folders=workspace,
            root_uri=folders[0].as_uri(),
            initialization_options={"progress": "client"} if options is None else options,
        )
        await self.client.initialize_session(params)
        return self

    async def close(self):
        if self.client._server.returncode is None:
            await self.client.shutdown_session()
        await self.client.stop()

    async def kill(self):
        self.client._server.kill()
        await self.client._server.wait()
        await self.client.stop()

    # buffers

    def open(self, path, text=None):
        self.open_uri(path.as_uri(), path.read_bytes().decode() if text is None else text)

    def open_uri(self, uri, text):
        self.buffers[uri] = [text, 1]
        item = types.TextDocumentItem(uri=uri, language_id="python", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))

    def text(self, path):
        return self.buffers[path.as_uri()][0]

    def type(self, path, before, after):
        """Replaces the first `before` in the buffer by one incremental change."""
        text, version = self.buffers[path.as_uri()]
        start = text.index(before)
        where = types.Range(start=position(text, start), end=position(text, start + len(before)))
        self.buffers[path.as_uri()] = [text.replace(before, after, 1), version + 1]
        document = types.VersionedTextDocumentIdentifier(uri=path.as_uri(), version=version + 1)
        change = types.TextDocumentContentChangePartial(range=where, text=after)
        params = types.DidChangeTextDocumentParams(text_document=document, content_changes=[change])
        self.client.text_document_did_change(params)

    def save(self, path):
        path.write_bytes(self.text(path).encode())
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(text_document=document_of(path)))

    def shut(self, path):
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(text_document=document_of(path)))

    # requests

    async def lenses(self, path):
        params = types.CodeLensParams(text_document=document_of(path))
        return await self.client.text_document_code_lens_async(params)

    async def titles(self, path):
        return await self.titles_of(path.as_uri())

    async def titles_of(self, uri):
        params = types.CodeLensParams(text_document=types.TextDocumentIdentifier(uri=uri))
        return [lens.command.title for lens in await self.client.text_document_code_lens_async(params)]

    async def until_lens(self, path, part, seconds=30):
        """Waits until a lens contains `part`; returns the titles of all lenses."""
        deadline = time.monotonic() + seconds
        while True:
            titles = await self.titles(path)
            if any(part in title for title in titles):
                return titles
            assert time.monotonic() < deadline, titles
            await asyncio.sleep(0.1)

    async def completions(self, path, line, character=0):
        """The inline completions that the server offers at a position."""
        params = types.InlineCompletionParams(
            text_document=document_of(path),
            position=types.Position(line, character),
            context=types.InlineCompletionContext(trigger_kind=types.InlineCompletionTriggerKind.Automatic),
        )
        return await self.client.text_document_inline_completion_async(params)

    async def rename(self, old, new):
        """The renames that the server requests together with the renaming of a file."""
        names = types.RenameFilesParams(files=[types.FileRename(old_uri=old.as_uri(), new_uri=new.as_uri())])
        return await self.client.workspace_will_rename_files_async(names)

    async def actions(self, path, line, only=None):
        where = types.Range(types.Position(line, 0), types.Position(line, 0))
        params = types.CodeActionParams(
            text_document=document_of(path),
            range=where,
            context=types.CodeActionContext(diagnostics=[], only=only),
        )
        return await self.client.text_document_code_action_async(params)

    async def command(self, name, path=None, class_name=None, **more):
        argument = dict(more)
        if path is not None:
            argument["uri"] = path if isinstance(path, str) else path.as_uri()
        if class_name is not None:
            argument["class"] = class_name
        params = types.ExecuteCommandParams(command=f"kernelAssistant.{name}", arguments=[argument])
        return plain(await self.client.workspace_execute_command_async(params))

    async def apply(self, path, class_name="Gate"):
        """Applies the kernels of a class and saves its file."""
        await self.command("apply", path, class_name)
        self.save(path)

    async def optimize(self, path, class_name="Gate"):
        """The number of a new job of a class."""
        return (await self.command("optimize", path, class_name))["job"]

    async def until_message(self, part, seconds=20):
        """The messages to the user with `part`, once there is one."""
        return await until(lambda: [one for one in self.client.messages if part in one.message], seconds)

    async def until_job(self, job, *states, seconds=120):
        """Waits for the first event of `job` in one of `states`."""
        deadline = time.monotonic() + seconds
        while True:
            for event in self.events:
                if event["job"] == job and event["state"] in states:
                    return event
            assert time.monotonic() < deadline, self.events[-3:]
            await asyncio.sleep(0.05)

    # what the server asks and tells

    def _listen(self):
        @self.client.feature(types.WORKSPACE_APPLY_EDIT)
        def apply_edit(params: types.ApplyWorkspaceEditParams):
            if self.refuse_edits:
                return types.ApplyWorkspaceEditResult(applied=False, failure_reason=self.refuse_edits)
            return types.ApplyWorkspaceEditResult(applied=self.take(params.edit))

        @self.client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
        def refresh(params):
            return None

        @self.client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params):
            return None

        # pygls gives unknown messages fields of its own naming, where one is called `class`.
        structure = self.client.protocol.structure_message

        def keep(data):
            kept = {
                "kernelAssistant/job": self.events,
                "kernelAssistant/status": self.statuses,
                "kernelAssistant/unsuggested": self.unsuggested,
            }.get(data.get("method"))
            if kept is not None:
                kept.append(data["params"])
            return structure(data)

        self.client.protocol.structure_message = keep
        for name in ("kernelAssistant/job", "kernelAssistant/status"):
            self.client.feature(name)(lambda params: None)

    def take(self, edit):
        """Applies an edit to the buffers; returns False for an edit of another version."""
        changes = {uri: (None, edits) for uri, edits in (edit.changes or {}).items()}
        for one in edit.document_changes or ():
            changes[one.text_document.uri] = (one.text_document.version, one.edits)
        if any(version not in (None, self.buffers[uri][1]) for uri, (version, _) in changes.items()):
            return False
        for uri, (_, edits) in changes.items():
            text, version = self.buffers[uri]
            for one in sorted(
                edits, key=lambda each: (each.range.start.line, each.range.start.character), reverse=True
            ):
                start, end = offset(text, one.range.start), offset(text, one.range.end)
                text = text[:start] + one.new_text + text[end:]
            self.buffers[uri] = [text, version + 1]
            document = types.VersionedTextDocumentIdentifier(uri=uri, version=version + 1)
            whole = types.TextDocumentContentChangeWholeDocument(text=text)
            params = types.DidChangeTextDocumentParams(text_document=document, content_changes=[whole])
            self.client.text_document_did_change(params)
        return True


def document_of(path):
    return types.TextDocumentIdentifier(uri=path.as_uri())


def position(text, offset):
    """The UTF-16 position of an offset, computed in another way than in the server."""
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    line = before.rpartition("\n")[2]
    return types.Position(before.count("\n"), len(line.encode("utf-16-le")) // 2)


def offset(text, where):
    lines = [*text.splitlines(keepends=True), ""]
    assert not set(text) & set("\v\f\x1c\x1d\x1e\x85\u2028\u2029")
    line = lines[where.line].encode("utf-16-le")
    return sum(map(len, lines[: where.line])) + len(line[: 2 * where.character].decode("utf-16-le"))


def plain(value):
    """Converts pygls's objects to dictionaries and lists."""
    if hasattr(value, "_asdict"):
        return {key: plain(one) for key, one in value._asdict().items()}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value
