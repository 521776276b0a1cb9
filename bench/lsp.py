"""The language server as an editor sees it: start, requests in a long file, requests while a job runs, memory."""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Figure, Settings, p95
from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client as Host
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.results import best, result

_ROOT = Path(__file__).resolve().parent.parent
_END = "\n"
_HEAD = "import torch\nfrom torch import nn\n\n\n"
#: A class of typical length.
_CLASS = """class Block{number}(nn.Module):
    \"\"\"Attention, then a gated feed-forward part, each with its norm before it and its sum behind.

    `width` is what goes in and out, `heads` share it, `hidden` is the inner width of the gated part.
    \"\"\"

    def __init__(self, width=512, heads=8, hidden=1024, dropout=0.0, eps=1e-6):
        super().__init__()
        self.heads = heads
        self.eps = eps
        self.queries = nn.Linear(width, width)
        self.keys = nn.Linear(width, width)
        self.values = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.scale1 = nn.Parameter(torch.ones(width))
        self.scale2 = nn.Parameter(torch.ones(width))
        self.dropout = nn.Dropout(dropout)

    def norm(self, x, scale):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * scale

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def attend(self, x):
        queries, keys, values = map(self.split, (self.queries(x), self.keys(x), self.values(x)))
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def feed(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.norm(x, self.scale1)))
        return x + self.dropout(self.feed(self.norm(x, self.scale2)))


"""
_LINES = 5000
_VERY_MANY_LINES = 50_000
_FILES = 1000
#: The class of the long file that has a result in the store.
_SUGGESTED = "Block60"


class Client:
    """A language server on its standard streams, with the time of each answer."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.folder = folder
        paths = os.pathsep.join(str(_ROOT / name) for name in (".", "lsp"))
        self._environment = {**os.environ, "KERNEL_ASSISTANT_HOME": str(home), "PYTHONPATH": paths}
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self._number = 0

    def start(self) -> float:
        """Seconds from starting the process to the answer to `initialize`."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernel_assistant", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        threading.Thread(target=self._read, daemon=True).start()
        folders = [{"uri": self.folder.as_uri(), "name": "bench"}]
        capabilities = {"workspace": {"applyEdit": True, "didChangeWatchedFiles": {"dynamicRegistration": True}}}
        options = {"progress": "client"}
        params = {"processId": None, "rootUri": None, "workspaceFolders": folders}
        self.ask("initialize", {**params, "capabilities": capabilities, "initializationOptions": options})
        taken = time.perf_counter() - began
        self.tell("initialized", {})
        return taken

    def ask(self, method: str, params: dict[str, Any]) -> tuple[float, Any]:
        """Seconds until the answer, and the answer's result."""
        self._number += 1
        self._answers[self._number] = queue.Queue()
        began = time.perf_counter()
        self._send({"id": self._number, "method": method, "params": params})
        message = self._answers[self._number].get(timeout=120)
        taken = time.perf_counter() - began
        if "error" in message:
            raise RuntimeError(message["error"]["message"])
        return taken, message["result"]

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def open(self, path: Path) -> None:
        item = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}
        self.tell("textDocument/didOpen", {"textDocument": item})

    def memory(self) -> float:
        """Resident memory in MB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def settle(self) -> None:
        """Waits until the server has finished the work that opening a document causes."""
        process = psutil.Process(self.process.pid)
        for _ in range(120):
            if process.cpu_percent(0.5) < 5.0:
                return

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = int(header.split(b":")[1])
            while stream.readline() != b"\r\n":
                pass
            message = json.loads(stream.read(length))
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": None})
            elif message.get("method") == "kernelAssistant/job":
                self.events.append(message["params"])
            elif "id" in message:
                self._answers[message["id"]].put(message)


def measure(settings: Settings) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="ka-lsp-") as name:
        home, folder = Path(name, "home"), Path(name, "workspace")
        folder.mkdir()
        long = folder / "long.py"
        long.write_text(_long_text())
        figures = _start(settings, home, folder)
        figures += _requests(settings, home, folder, long)
        figures += _very_long(settings, home, folder)
        client = Client(home, folder)
        client.start()
        figures += _suggestions(settings, client, home, long)
        client.stop()
        figures += _workspace(home, Path(name, "many"))
        _stop_host(home)
        return figures


def _start(settings: Settings, home: Path, folder: Path) -> list[Figure]:
    taken, first = [], []
    path = folder / "small.py"
    path.write_text(_HEAD + _CLASS.format(number=1))
    for _ in range(settings.count(15, 3)):
        client = Client(home, folder)
        began = time.perf_counter()
        taken.append(client.start())
        client.open(path)
        client.ask("textDocument/codeLens", {"textDocument": {"uri": path.as_uri()}})
        first.append(time.perf_counter() - began)
        client.stop()
    return [
        Figure("start to the answer to initialize", statistics.median(taken) * 1e3, "ms", "median", ("≤", 300)),
        Figure("start to the first lens", statistics.median(first) * 1e3, "ms", "median"),
    ]


def _requests(settings: Settings, home: Path, folder: Path, path: Path) -> list[Figure]:
    client = Client(home, folder)
    client.start()
    client.open(path)
    uri = {"textDocument": {"uri": path.as_uri()}}
    where = {"start": {"line": 2500, "character": 0}, "end": {"line": 2500, "character": 0}}
    asked: dict[str, Callable[[], float]] = {
        "code lens": lambda: client.ask("textDocument/codeLens", uri)[0],
        "code actions": lambda: client.ask(
            "textDocument/codeAction", {**uri, "range": where, "context": {"diagnostics": []}}
        )[0],
        "inline completion": lambda: client.ask(
            "textDocument/inlineCompletion", {**uri, "position": where["start"], "context": {"triggerKind": 2}}
        )[0],
    }
    for ask in asked.values():
        ask()
    time.sleep(2.0)
    times = settings.count(200, 20)
    aims: dict[str, float | None] = {"code lens": 30, "code actions": 30, "inline completion": None}
    figures = [
        _p95(
            f"{name} in {_LINES:,} lines, p95",
            [ask() for _ in range(times)],
            aims[name],
        )
        for name, ask in asked.items()
    ]
    figures.append(_p95("code lens while 50 characters a second are typed, p95", _typing(client, path, asked), None))
    figures.append(Figure("resident memory, that file open", client.memory(), "MB", "after those requests", ("≤", 80)))
    figures += _with_job(settings, client, folder, asked)
    client.stop()
    return figures


def _very_long(settings: Settings, home: Path, folder: Path) -> list[Figure]:
    """A file of extreme length, idle and while somebody types in it."""
    path = folder / "very_long.py"
    path.write_text(_long_text(_VERY_MANY_LINES))
    client = Client(home, folder)
    client.start()
    began = time.perf_counter()
    client.open(path)
    uri = {"textDocument": {"uri": path.as_uri()}}
    asked = {"code lens": lambda: client.ask("textDocument/codeLens", uri)[0]}
    asked["code lens"]()
    first = time.perf_counter() - began
    client.settle()
    what = f"code lens in {_VERY_MANY_LINES:,} lines"
    rest = [asked["code lens"]() for _ in range(settings.count(200, 20))]
    typed = _typing(client, path, asked)
    figures = [
        Figure(f"first lens in {_VERY_MANY_LINES:,} lines, from opening it", first, "s", "once"),
        _p95(f"{what}, p95", rest, 100, _VERY_MANY_LINES),
        _p95(f"{what} while 50 characters a second are typed, p95", typed, 100, _VERY_MANY_LINES),
        Figure(f"resident memory, {_VERY_MANY_LINES:,} lines open", client.memory(), "MB", "after those requests"),
    ]
    client.stop()
    return figures


def _typing(client: Client, path: Path, asked: dict[str, Callable[[], float]]) -> list[float]:
    """Seconds of each code lens request between the keystrokes of eight seconds."""
    seconds, version = [], 1
    began = time.perf_counter()
    for stroke in range(400):
        version += 1
        here = {"line": 40, "character": stroke % 60}
        change = {"range": {"start": here, "end": here}, "text": "x" if stroke % 7 else "("}
        document = {"uri": path.as_uri(), "version": version}
        client.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        seconds.append(asked["code lens"]())
        time.sleep(max(0.0, began + (stroke + 1) / 50 - time.perf_counter()))
    return seconds


def _with_job(settings: Settings, client: Client, folder: Path, asked: dict[str, Callable[[], float]]) -> list[Figure]:
    path = folder / "job.py"
    block = _CLASS.format(number=7)
    inputs = "def get_inputs():\n    return [torch.randn(2, 64, 512)]\n"
    path.write_text(_HEAD + block + inputs)
    client.open(path)
    argument = {"uri": path.as_uri(), "class": "Block7"}
    command = {"command": "kernelAssistant.optimize", "arguments": [argument]}
    _, answer = client.ask("workspace/executeCommand", command)
    while not any(event["state"] == "running" for event in client.events):
        time.sleep(0.05)
    names = ("code lens", "code actions")
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(settings.count(150, 10)):
        for name in names:
            taken[name].append(asked[name]())
        time.sleep(0.05)
    stop = {"command": "kernelAssistant.cancel", "arguments": [{"job": answer["job"]}]}
    client.ask("workspace/executeCommand", stop)
    while not any(event["state"] not in ("queued", "running") for event in client.events):
        time.sleep(0.05)
    return [_p95(f"{name} while a job runs, p95", taken[name], 100) for name in names]


def _suggestions(settings: Settings, client: Client, home: Path, path: Path) -> list[Figure]:
    """Inline completions where there is something to suggest: the lines that give a class of the long file `path` its
    verified kernels."""
    _add_result(home, path)
    client.open(path)
    figures = _body(settings, client, path)
    return [*figures, Figure("resident memory after those suggestions", client.memory(), "MB", "", ("≤", 80))]


def _add_result(home: Path, path: Path) -> None:
    """Adds a job to the store that improved a class of `path`, as a session host would; without files of its own."""
    state = resolve(environ={"KERNEL_ASSISTANT_HOME": str(home)})[0].state_dir
    store = Store(state)
    text = f"{path.read_text()}\n\ndef get_inputs():\n    return [torch.randn(2, 64, 512)]\n"
    task = build_task(f"{path}:{_SUGGESTED}", target="cpu", numerics="kernelbench", text=text)
    row = store.add_job(task, JobOptions(), "cpu:0")
    store.mark_running(row.id)
    store.mark_ended(row.id, JobState.done, result=result(task=task.name, best=best()))
    store.close()


def _body(settings: Settings, client: Client, path: Path) -> list[Figure]:
    """Measures after the server has read the store."""
    lines = path.read_text().splitlines()
    where = {"line": lines.index(f"class {_SUGGESTED}(nn.Module):") - 1, "character": 0}
    deadline = time.monotonic() + 60
    while not _asked(client, path, where)[1]:
        if time.monotonic() > deadline:
            raise RuntimeError("the server does not suggest the result that is in the store")
        time.sleep(0.1)
    again = [_asked(client, path, where)[0] for _ in range(settings.count(200, 20))]
    edited = []
    for version in range(2, settings.count(22, 7)):
        start = {"line": len(lines), "character": 0}
        change = {"range": {"start": start, "end": start}, "text": "x = 1\n"}
        document = {"uri": path.as_uri(), "version": version}
        client.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        edited.append(_asked(client, path, where)[0])
    name, how = "inline completion of a verified body, p95", f"requests in {len(lines):,} lines"
    return [
        Figure(name, p95(again), "ms", f"{len(again)} {how}, the text as it was"),
        Figure(f"{name}, after an edit", p95(edited), "ms", f"{len(edited)} {how}, each parsed anew"),
    ]


def _asked(client: Client, path: Path, where: dict[str, int]) -> tuple[float, list[Any]]:
    document = {"textDocument": {"uri": path.as_uri()}, "position": where, "context": {"triggerKind": 2}}
    seconds, items = client.ask("textDocument/inlineCompletion", document)
    return seconds, items or []


def _workspace(home: Path, folder: Path) -> list[Figure]:
    """A workspace of a thousand files, with one of them open."""
    folder.mkdir()
    for number in range(_FILES):
        part = folder / f"part{number % 20}"
        part.mkdir(exist_ok=True)
        (part / f"file{number}.py").write_text(
            f"import torch\nfrom torch import nn\n\n\n{_CLASS.format(number=number)}"
        )
    client = Client(home, folder)
    path = folder / "part0" / "file0.py"
    began = time.perf_counter()
    client.start()
    client.open(path)
    client.ask("textDocument/codeLens", {"textDocument": {"uri": path.as_uri()}})
    taken = time.perf_counter() - began
    client.stop()
    return [Figure(f"a workspace of {_FILES:,} files, to the first lens", taken, "s", "once", ("≤", 2))]


def _long_text(lines: int = _LINES) -> str:
    count = lines // _CLASS.count(_END)
    return _HEAD + "".join(_CLASS.format(number=number) for number in range(count))


def _p95(name: str, seconds: list[float], aim: float | None, lines: int = _LINES) -> Figure:
    how = f"{len(seconds)} requests, {lines // _CLASS.count(_END)} module classes"
    return Figure(name, p95(seconds), "ms", how, None if aim is None else ("≤", aim))


def _stop_host(home: Path) -> None:
    Host(resolve(environ={"KERNEL_ASSISTANT_HOME": str(home)})[0]).shutdown()
