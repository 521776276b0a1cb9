"""Tests that the server gives one answer to each request and goes on, for any messages in any order."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from tests.lsp.editor import MODEL

TEXTS = [
    "import torch\nclass A(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
    "class B(nn.Module:\n  def forward(",
    "from torch import nn\r\n\r\n@d\r\nclass Ä(nn.Module):\r\n\tdef forward(self, x): return '🙂'\r\n",
    "\ufeffclass C:\n    '''\n",
    "def f():\n    class Inner(torch.nn.Module):\n        def forward(self, x): ...\n" * 3,
    "a\x0cb\u2028c\x85d\x1ce\rclass D(Module):\n\x00",
    "\ud83d class E(nn.Module): pass",
    "",
]
URIS = [
    "file:///nowhere/a%20b/model.py",
    "file:///nowhere/ä.py",
    "file:///nowhere/kernel.cu",
    "untitled:Untitled-1",
    "git:/x.py?{}",
    "",
    "file://",
    "no uri at all",
]
CLIENT = {"processId": None, "rootUri": None, "capabilities": {}}
LENSES = {"textDocument": {"uri": URIS[0]}}
COMMANDS = ["optimize", "cancel", "apply", "undo", "discard", "verify", "show", "ignore", "diff", "jobs", "inputs", "x"]


class Wire:
    """A server, with all messages that it has sent."""

    def __init__(self, environment):
        command = [sys.executable, "-m", "kernel_assistant", "lsp"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self.answers = Counter()
        self.got = {}
        self.asked = []
        #: Some clients answer what they do not know with an error, some not at all.
        self.keeps_silent = False
        self._arrived = threading.Condition()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._drain)]
        for reader in self._readers:
            reader.start()
        self.stderr = b""

    def raw(self, body, header=None):
        self.process.stdin.write((header or b"Content-Length: %d\r\n\r\n" % len(body)) + body)
        self.process.stdin.flush()

    def send(self, **message):
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def answer(self, identity, seconds=30):
        with self._arrived:
            assert self._arrived.wait_for(lambda: identity in self.got or self.process.poll() is not None, seconds)
        assert identity in self.got, self.stderr.decode()[-2000:]
        return self.got[identity]

    def until_asked(self, method, seconds=30):
        with self._arrived:
            assert self._arrived.wait_for(lambda: method in self.asked, seconds)

    def start(self, capabilities=None, **options):
        params = {**CLIENT, "capabilities": capabilities or {}, "initializationOptions": options}
        self.send(id="start", method="initialize", params=params)
        self.answer("start")
        self.send(method="initialized", params={})

    def lenses(self, identity):
        """The answer to a request for the lenses of a file."""
        self.send(id=identity, method="textDocument/codeLens", params=LENSES)
        return self.answer(identity)

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def _drain(self):
        for line in self.process.stderr:
            self.stderr += line

    def _read(self):
        stream = self.process.stdout
        while header := stream.readline():
            length = int(header.split(b":")[1]) if header.lower().startswith(b"content-length") else 0
            while stream.readline() not in (b"\r\n", b""):
                pass
            message = json.loads(stream.read(length))
            with self._arrived:
                if "method" in message and "id" in message:
                    self.asked.append(message["method"])
                    if not self.keeps_silent:
                        threading.Thread(target=self._refuse, args=(message["id"],), daemon=True).start()
                elif "method" not in message:
                    message.setdefault("id", "none")
                    self.answers[message["id"]] += 1
                    self.got[message["id"]] = message
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def _refuse(self, identity):
        try:
            self.send(id=identity, error={"code": -32601, "message": "no"})
        except (OSError, ValueError):
            pass


@pytest.fixture
def wire(home):
    started = []

    def start():
        started.append(Wire(dict(os.environ)))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end()


def position(chance):
    numbers = [0, 1, 2, 3, 7, 10_000, 2**31 - 1]
    return {"line": chance.choice(numbers), "character": chance.choice(numbers)}


def where(chance):
    return {"start": position(chance), "end": position(chance)}


def request(chance):
    """A method and its parameters, mostly valid and sometimes not."""
    document = {"uri": chance.choice(URIS)}
    argument = {**document, "class": chance.choice(["A", "Ä", "", "Inner"]), "job": chance.choice(["1", "x"])}
    if chance.random() < 0.3:
        argument.pop(chance.choice(list(argument)))
    command = {"command": f"kernelAssistant.{chance.choice(COMMANDS)}"}
    asked = {"textDocument": document, "range": where(chance), "context": {"diagnostics": []}}
    action = {"title": "t", "data": chance.choice([None, 1, {"do": "ignore", "uri": document["uri"], "class": "A"}])}
    return chance.choice(
        [
            ("textDocument/codeLens", {"textDocument": document}),
            ("textDocument/codeAction", asked),
            ("codeAction/resolve", action),
            ("workspace/executeCommand", {**command, "arguments": [argument]}),
            ("workspace/executeCommand", {**command, "arguments": chance.choice([[], [3], None])}),
            ("textDocument/hover", {"textDocument": document, "position": position(chance)}),
            ("textDocument/codeLens", chance.choice([None, [], {"textDocument": 3}, {}])),
            ("made/up", {"jsonrpc": "2.0", "id": 7}),
            ("initialize", CLIENT),
        ]
    )


def notification(chance):
    uri = chance.choice(URIS)
    versioned = {"uri": uri, "version": chance.choice([1, 2, -5, None])}
    text = chance.choice(TEXTS)
    item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    settings = chance.choice([None, 5, {"kernelAssistant": {"budget": "?"}}])
    change = chance.choice([{"text": text}, {"range": where(chance), "text": text[: chance.randrange(9)]}])
    return chance.choice(
        [
            ("textDocument/didOpen", {"textDocument": item}),
            ("textDocument/didOpen", {"textDocument": item}),
            ("textDocument/didChange", {"textDocument": versioned, "contentChanges": [change, change]}),
            ("textDocument/didChange", {"textDocument": versioned, "contentChanges": [change]}),
            ("textDocument/didSave", {"textDocument": {"uri": uri}}),
            ("textDocument/didClose", {"textDocument": {"uri": uri}}),
            ("workspace/didChangeConfiguration", {"settings": settings}),
            ("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]}),
            ("window/workDoneProgress/cancel", {"token": chance.choice([1, "kernel-assistant/job/1"])}),
            ("kernelAssistant/watchStatus", chance.choice([{"on": True}, {"on": False}, None, 3])),
            ("$/cancelRequest", {"id": chance.randrange(200)}),
            ("$/setTrace", {"value": "verbose"}),
            ("made/up", chance.choice([None, [], {"a": 1}])),
        ]
    )


BROKEN = [
    b"{",
    b"\xff\xfe{}",
    b"[]",
    b"null",
    b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"1.0","method":"x"}',
    b'{"id":3}',
    '{"jsonrpc":"2.0","method":"ä"}'.encode("utf-16"),
]


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_json_is_answered_as_such_and_the_server_goes_on(wire, first):
    server = wire()
    if not first:
        server.start()
    bodies = [b"{", b"\xff\xfe{}", b'{"jsonrpc":"2.0",}', DEEP]
    for body in bodies:
        server.raw(body)
    if first:
        server.start()
    assert server.lenses(1)["result"] == [] and server.answers[None] == len(bodies)
    refused = server.got[None]
    assert "id" in refused and refused["jsonrpc"] == "2.0" and refused["error"]["code"] == -32700
    server.send(id=2, method=7)
    assert server.answer(2)["error"]["code"] == -32600
    server.end()
    assert "Traceback" not in server.stderr.decode()


def test_a_header_that_says_too_little_costs_one_message(wire):
    server = wire()
    server.start()
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "textDocument/codeLens"}).encode()
    server.raw(message, b"Content-Length: %d\r\n\r\n" % (len(message) - 3))
    question = {"jsonrpc": "2.0", "method": "textDocument/codeLens", "params": LENSES}
    for identity, header in enumerate([b"Content-Length: %d\r\n\r\n", b"content-length:%d\r\n\r\n"], 2):
        body = json.dumps({**question, "id": identity}).encode()
        server.raw(body, header % len(body))
        assert server.answer(identity)["result"] == []
    assert server.got[None]["error"]["code"] == -32700


@pytest.mark.parametrize("seed", range(3))
def test_every_request_is_answered_once(wire, seed):
    chance = random.Random(seed)
    server = wire()
    server.start(progress=chance.choice(["client", None]))
    for identity in range(200):
        for _ in range(chance.randrange(4)):
            method, params = notification(chance)
            server.send(method=method, params=params)
        if chance.random() < 0.15:
            server.raw(chance.choice(BROKEN))
        method, params = request(chance)
        server.send(id=identity, method=method, params=params)
    for identity in range(200):
        server.answer(identity)
    assert "result" in server.lenses("last")
    server.send(id="shutdown", method="shutdown")
    server.send(id="late", method="textDocument/codeLens", params=LENSES)
    assert server.answer("shutdown")["result"] is None
    assert server.answer("late")["error"]["code"] == -32600
    server.send(method="exit")
    server.end()
    assert {count for identity, count in server.answers.items() if identity is not None} == {1}
    assert "Traceback" not in server.stderr.decode()


def test_before_initialize_there_is_an_answer_too(wire):
    server = wire()
    server.send(method="textDocument/didOpen", params={"textDocument": {}})
    assert server.lenses(1)["error"]["code"] == -32002
    server.start()
    assert server.lenses(2)["result"] == []


@pytest.mark.parametrize("half", [b"", b"Content-Le", b"Content-Length: 400\r\n\r\n{", b"\r\n\r\n\r\n"])
def test_a_client_that_vanishes_takes_the_server_along(wire, half):
    server = wire()
    server.start()
    server.process.stdin.write(half)
    server.end()
    assert server.process.returncode == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_what_is_typed_is_what_the_server_has(wire, model, improved, encoding):
    """Random incremental edits, in the units of the encoding, of a docstring without meaning."""
    chance = random.Random(5)
    improved(model, MODEL)
    server, uri = wire(), model.as_uri()
    capabilities = {"general": {"positionEncodings": [encoding]}, "workspace": {"applyEdit": True}}
    server.send(id="start", method="initialize", params={**CLIENT, "capabilities": capabilities})
    assert server.answer("start")["result"]["capabilities"]["positionEncoding"] == encoding
    said = "ä first line\r\nand 🙂 more\n"
    item = {"uri": uri, "languageId": "python", "version": 1, "text": f'"""{said}"""\n{MODEL}'}
    server.send(method="textDocument/didOpen", params={"textDocument": item})
    for version in range(2, 120):
        text = f'"""{said}"""\n{MODEL}'
        first, last = sorted(chance.randrange(len(said) + 1) for _ in "ab")
        if "\r\n" in (said[first - 1 : first + 1], said[last - 1 : last + 1]):
            continue
        put = chance.choice(["", "é", "🙂", "\n", "\r\n", "\r", "\x0c", "\u2028", "\x85", "    ", "x = 1"])
        change = {"range": {"start": at(text, first + 3, encoding), "end": at(text, last + 3, encoding)}, "text": put}
        said = said[:first] + put + said[last:]
        document = {"uri": uri, "version": version}
        server.send(method="textDocument/didChange", params={"textDocument": document, "contentChanges": [change]})
    argument = {"uri": uri, "class": "Gate"}
    params = {"command": "kernelAssistant.diff", "arguments": [argument]}
    server.send(id="text", method="workspace/executeCommand", params=params)
    assert server.answer("text")["result"]["before"] == f'"""{said}"""\n{MODEL}'


def at(text, offset, encoding):
    lines = text[:offset].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    name = encoding if encoding == "utf-8" else f"{encoding}-le"
    return {"line": len(lines) - 1, "character": len(lines[-1].encode(name)) // size}


def test_one_client_over_tcp(home):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "kernel_assistant", "lsp", "--tcp", str(port)])
    deadline = time.monotonic() + 60
    while True:
        try:
            stream = socket.create_connection(("127.0.0.1", port), timeout=60)
            break
        except ConnectionRefusedError:
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    with stream, stream.makefile("rb") as answers:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}).encode()
        stream.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        length = int(answers.readline().split(b":")[1])
        while answers.readline() != b"\r\n":
            pass
        assert json.loads(answers.read(length))["result"]["serverInfo"]["name"] == "kernel-assistant"
    assert server.wait(60) == 0


def test_shutdown_is_answered_while_the_server_waits_for_answers(wire, model, improved):
    improved(model, model.read_text())
    server = wire()
    server.keeps_silent = True
    watching = {"didChangeWatchedFiles": {"dynamicRegistration": True}, "applyEdit": True}
    server.start(capabilities={"workspace": watching})
    text = {"uri": model.as_uri(), "languageId": "python", "version": 1, "text": model.read_text()}
    server.send(method="textDocument/didOpen", params={"textDocument": text})
    arguments = [{"uri": model.as_uri(), "class": "Gate"}]
    params = {"command": "kernelAssistant.apply", "arguments": arguments}
    server.send(id=1, method="workspace/executeCommand", params=params)
    server.until_asked("workspace/applyEdit")
    server.send(id=2, method="shutdown")
    assert server.answer(2).get("error") is None
    assert "error" in server.answer(1)
