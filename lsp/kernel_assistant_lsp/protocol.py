"""The protocol of the package pygls, changed in two ways: documents are of our own class, and every request gets an
answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

from kernel_assistant_lsp.encoded import EncodedResult
from kernel_assistant_lsp.text.documents import Documents

_log = logging.getLogger(__name__)


class Protocol(LanguageServerProtocol):
    """The protocol of the server. `documents` are the open documents. The document class of pygls is not used, because
    it splits lines at characters where editors do not."""

    def __init__(self, server: Any, converter: Any) -> None:
        self.documents = Documents()
        #: Id of the request that initial_request.py has answered already.
        self.answered: int | str | None = None
        self._initialized = False
        self._writes: set[asyncio.Future[Any]] = set()
        self._early: dict[int | str, Callable[[], None]] = {}
        super().__init__(server, converter)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Returns `data`, a decoded JSON message, unchanged. The base class would also convert nested objects that look
        like messages."""
        return data

    def handle_message(self, message: Any) -> None:
        """Handle a message. Requests before `initialize`, after `shutdown` or with invalid parameters are refused,
        since every request needs an answer. Anything that is not a message is ignored."""
        if not isinstance(message, dict) or message.get("jsonrpc") != self.VERSION:
            _log.warning("ignored what is no message")
            return
        identity, method = message.get("id"), message.get("method")
        if isinstance(identity, (int, str)) and isinstance(method, str):
            self._request(identity, method, message)
        elif isinstance(identity, (int, str)) and method is not None:
            self.refuse(identity, types.ErrorCodes.InvalidRequest, "the method is no string")
        elif identity is not None or self._initialized or method == types.EXIT:
            self._structured(message)

    def _request(self, identity: int | str, method: str, message: dict[str, Any]) -> None:
        if self._shutdown:
            self.refuse(identity, types.ErrorCodes.InvalidRequest, "the server is shutting down")
        elif method == types.INITIALIZE and self._initialized:
            self.refuse(identity, types.ErrorCodes.InvalidRequest, "the server is initialized already")
        elif method != types.INITIALIZE and not self._initialized:
            self.refuse(identity, types.ErrorCodes.ServerNotInitialized, "the server is not initialized yet")
        elif self._structured(message):
            self._initialized = True
        else:
            self.refuse(identity, types.ErrorCodes.InvalidParams, f"the parameters of {method} cannot be read")

    def _structured(self, message: dict[str, Any]) -> bool:
        """Pass a message to pygls. Return False if its parameters do not fit its method."""
        try:
            structured = super().structure_message(message)
        except JsonRpcException as error:
            _log.warning("cannot read %s: %s", message.get("method"), error)
            return False
        super().handle_message(structured)
        return True

    def _send_response(
        self, msg_id: int | str, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        if self.answered is not None and msg_id == self.answered:
            self.answered = None
            return
        if isinstance(result, EncodedResult):
            self._result_types.pop(msg_id, None)
            self._send_text(f'{{"jsonrpc": "{self.VERSION}", "id": {json.dumps(msg_id)}, "result": {result.text}}}')
            return
        super()._send_response(msg_id, result, error)

    def _send_text(self, body: str) -> None:
        """Send an encoded message in the same way as pygls."""
        if self.writer is None:
            return
        header = f"Content-Length: {len(body)}\r\nContent-Type: {self.CONTENT_TYPE}; charset={self.CHARSET}\r\n\r\n"
        written = self.writer.write((header + body).encode("ascii"))
        if inspect.isawaitable(written):
            self._writes.add(write := asyncio.ensure_future(written))
            write.add_done_callback(self._writes.discard)

    @contextmanager
    def ended_early_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """During the `with` block, a cancellation of the current request calls `stop`, and the request answers with its
        partial result. Without it, pygls would answer with an error and let the work go on."""
        identity = self.msg_id
        assert identity is not None  # a request is being handled
        self._early[identity] = stop
        try:
            yield
        finally:
            del self._early[identity]

    def end_early(self) -> None:
        """Stops the work that running requests have registered by `ended_early_by`, because the client has
        disconnected."""
        for stop in list(self._early.values()):
            stop()

    def _handle_cancel_notification(self, msg_id: int | str) -> None:
        stop = self._early.get(msg_id)
        if stop is None:
            super()._handle_cancel_notification(msg_id)
        else:
            stop()

    def cancel_others(self) -> None:
        """Cancel every request except the current one, in both directions. pygls does this at `shutdown`, but
        iterates over a dict that changes when requests are cancelled."""
        self.end_early()
        for identity, future in list(self._request_futures.items()):
            if identity != self.msg_id and not future.done():
                future.cancel()

    def refuse(self, identity: int | str | None, code: types.ErrorCodes, message: str) -> None:
        """Answer a request with an error. `identity` is the id of the request, None if it could not be read."""
        if identity is None:
            # Sent as a dict: pygls's type omits an id of None, but an answer must have one.
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": {"code": code.value, "message": message}})
        else:
            self._send_response(identity, None, types.ResponseError(code=code.value, message=message))

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        document = params.text_document
        self.documents.open(document.uri, document.text, document.version, document.language_id)
        yield from self._call_feature(types.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        document = params.text_document
        self.documents.change(document.uri, params.content_changes, document.version)
        yield from self._call_feature(types.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        self.documents.close(params.text_document.uri)
        yield from self._call_feature(types.TEXT_DOCUMENT_DID_CLOSE, params)

    def _call_feature(self, method: str, params: Any) -> Generator[Any, Any, None]:
        """Yield the registered handler of `method` for pygls to call."""
        if (handler := self.fm.features.get(method)) is not None:
            yield handler, (params,), None


def refused(message: str, data: dict[str, Any]) -> JsonRpcException:
    """Returns the JSON-RPC error RequestFailed, for a valid request that cannot be carried out. `data` is sent to the
    client and has the next step for the user."""
    return JsonRpcException(message, code=int(types.LSPErrorCodes.RequestFailed), data=data)
