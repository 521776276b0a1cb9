"""pygls's protocol with our own documents, and with an answer to everything that asks for one."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCRequestMessage
from pygls.protocol.language_server import lsp_method

from kernel_assistant_lsp.documents import Documents

_log = logging.getLogger(__name__)

_NOT_INITIALIZED = -32002
_INVALID_REQUEST = -32600
#: What a request that cannot be read is taken for.
_UNREADABLE = "$/unreadable"


class Protocol(LanguageServerProtocol):
    """`documents` hold what is open. pygls's own would split lines where editors do not."""

    def __init__(self, server: Any, converter: Any) -> None:
        self.documents = Documents()
        #: A request that was answered before this was loaded (greeting.py).
        self.answered: int | str | None = None
        self._initialized = False
        super().__init__(server, converter)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """A request whose parameters are not what they should be gets an error instead of silence."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "jsonrpc" in data and "id" in data and "method" in data:
                return JsonRPCRequestMessage(data["id"], _UNREADABLE, "2.0", {"method": data["method"]})
            raise error

    def handle_message(self, message: Any) -> None:
        """Requests before `initialize` and after `shutdown` are refused; the protocol wants an answer to each."""
        method, identity = getattr(message, "method", None), getattr(message, "id", None)
        if method is None or identity is None:
            if isinstance(message, (dict, list, str, int, float)) or message is None:
                _log.warning("ignored what is no message")
                return
            if method is None or self._initialized or method == types.EXIT:
                super().handle_message(message)
            return
        if self._shutdown:
            self._refuse(identity, _INVALID_REQUEST, "the server is shutting down")
        elif method == _UNREADABLE:
            self._refuse(identity, -32602, f"the parameters of {message.params['method']} cannot be read")
        elif method == types.INITIALIZE and self._initialized:
            self._refuse(identity, _INVALID_REQUEST, "the server is initialized already")
        elif method != types.INITIALIZE and not self._initialized:
            self._refuse(identity, _NOT_INITIALIZED, "the server is not initialized yet")
        else:
            self._initialized = True
            super().handle_message(message)

    def _send_response(
        self, msg_id: int | str, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        if self.answered is not None and msg_id == self.answered:
            self.answered = None
            return
        super()._send_response(msg_id, result, error)

    def _refuse(self, identity: int | str, code: int, message: str) -> None:
        self._send_response(identity, None, types.ResponseError(code=code, message=message))

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


def internal(error: Exception) -> JsonRpcException:
    return JsonRpcInternalError(f"internal {type(error).__name__}: {error}")
