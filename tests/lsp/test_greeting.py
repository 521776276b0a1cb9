"""Tests that the early answer equals the answer of the server."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

import kernel_assistant
from kernel_assistant_lsp.initial_request import answer, greet
from kernel_assistant_lsp.server import Server

CLIENTS = [
    {},
    {"general": {"positionEncodings": ["utf-32", "utf-8"]}, "workspace": {"workspaceFolders": True}},
    {
        "general": {"positionEncodings": ["klingon"]},
        "workspace": {"fileOperations": {"didCreate": True, "willRename": True}, "codeLens": {"refreshSupport": True}},
        "textDocument": {"codeLens": {}, "synchronization": {"didSave": True}, "inlineCompletion": {}},
    },
]


@pytest.mark.parametrize("capabilities", CLIENTS, ids=["nothing", "encodings", "more"])
def test_both_answers_are_the_same(capabilities):
    sent = []

    class Writer:
        def write(self, data):
            sent.append(data)

    server = Server()
    server.protocol.set_writer(Writer())
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    server.protocol.handle_message({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    found = json.loads(sent[-1].partition(b"\r\n\r\n")[2])
    assert found["result"] == answer(params, kernel_assistant.__version__)


def message(body):
    return b"Content-Length: %d\r\nContent-Type: x\r\n\r\n" % len(body) + body


def test_what_was_read_is_read_again_and_then_the_rest():
    body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {"capabilities": {}}}).encode()
    stream = io.BytesIO(message(body) + b"rest\nof it")
    out = io.BytesIO()
    greeted = greet(stream, out, "1")
    assert greeted.identity == 5 and b'"id": 5' in out.getvalue()
    lines = [greeted.stdin.readline() for _ in range(3)]
    assert b"".join(lines) + greeted.stdin.read(len(body)) == message(body)
    assert (greeted.stdin.readline(), greeted.stdin.read(99), greeted.stdin.readline()) == (b"rest\n", b"of it", b"")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"method":"initialize"}', b'{"id":1,"method":"x","params":{}}'])
def test_any_other_beginning_is_left_to_the_server(body):
    out = io.BytesIO()
    greeted = greet(io.BytesIO(message(body)), out, "1")
    assert greeted.identity is None and out.getvalue() == b""
    assert greeted.stdin.readline().startswith(b"Content-Length")


def test_the_answer_is_there_before_the_types_are(python_path):
    code = (
        "import sys, kernel_assistant_lsp.initial_request; print('lsprotocol' in sys.modules, 'pygls' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": python_path}, text=True)
    assert said.split() == ["False", "False"]
