"""pygls's protocol with our own documents, and with an answer to everything that asks for one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

from kernel_assistant_lsp.documents import Documents

_log = logging.getLogger(__name__)


class Protocol(LanguageServerProtocol):
    """`documents` hold what is open. pygls's own would split lines where editors do not."""

    def __init__(self, server: Any, converter: Any) -> None:
        self.documents = Documents()
        #: A request that was answered before this was loaded (greeting.py).
        self.answered: int | str | None = None
        self._initialized = False
        self._early: dict[int | str, Callable[[], None]] = {}
        super().__init__(server, converter)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Nothing yet: pygls calls this for every object inside a message, whose own fields may look like one."""
        return data

    def handle_message(self, message: Any) -> None:
        """Requests before `initialize`, after `shutdown` and with parameters that cannot be read are refused: the
        protocol wants an answer to each. What is no message is left alone."""
        if not isinstance(message, dict) or message.get("jsonrpc") != self.VERSION:
            _log.warning("ignored what is no message")
            return
        identity, method = message.get("id"), message.get("method")
        if isinstance(identity, (int, str)) and isinstance(method, str):
            self._request(identity, method, message)
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
        """Hand a message on; False where it does not fit its method."""
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
        super()._send_response(msg_id, result, error)

    @contextmanager
    def ended_early_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this lasts, cancelling the request that is being handled calls `stop`, and the request answers with
        what there is by then. pygls would answer with an error and let the work go on."""
        identity = self.msg_id
        assert identity is not None  # a request is being handled
        self._early[identity] = stop
        try:
            yield
        finally:
            del self._early[identity]

    def end_early(self) -> None:
        """Stop what requests have started: nobody is there for their answers any more."""
        for stop in list(self._early.values()):
            stop()

    def _handle_cancel_notification(self, msg_id: int | str) -> None:
        stop = self._early.get(msg_id)
        if stop is None:
            super()._handle_cancel_notification(msg_id)
        else:
            stop()

    def cancel_others(self) -> None:
        """Cancel every request but the one that is being handled, in both directions. pygls does it at `shutdown`, but
        goes through a dict that cancelling changes."""
        self.end_early()
        for identity, future in list(self._request_futures.items()):
            if identity != self.msg_id and not future.done():
                future.cancel()

    def refuse(self, identity: int | str | None, code: types.ErrorCodes, message: str) -> None:
        """Answer with an error; without an identity where the request could not even be read."""
        error = types.ResponseError(code=code.value, message=message)
        if identity is None:
            self._send_data(types.ResponseErrorMessage(id=None, error=error))
        else:
            self._send_response(identity, None, error)

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        document = params.text_document
        self.documents.open(document.uri, document.text, document.version)
        yield from self._told(types.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        document = params.text_document
        self.documents.change(document.uri, params.content_changes, document.version)
        yield from self._told(types.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        self.documents.close(params.text_document.uri)
        yield from self._told(types.TEXT_DOCUMENT_DID_CLOSE, params)

    def _told(self, method: str, params: Any) -> Generator[Any, Any, None]:
        """Have the feature for `method` called, as pygls does for its own documents."""
        if (handler := self.fm.features.get(method)) is not None:
            yield handler, (params,), None


def refused(message: str, data: dict[str, Any]) -> JsonRpcException:
    """RequestFailed: the request was fine, what it asked for cannot be done. One line, and the next step in `data`."""
    return JsonRpcException(message, code=int(types.LSPErrorCodes.RequestFailed), data=data)
