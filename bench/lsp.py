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
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Self

import psutil

from bench.figures import Aim, Figure, Settings, p95
from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client as Host
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.results import best, result

_ROOT = Path(__file__).resolve().parent.parent
_END = "\n"
_HEAD = "import torch\nfrom torch import nn\n\n\n"
_INPUTS = "def get_inputs():\n    return [torch.randn(2, 64, 512)]\n"
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
    """A language server on its standard streams, with the time of each answer. It ends with the block."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kernel_assistant", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "KERNEL_ASSISTANT_HOME": str(home), "PYTHONPATH": f"{_ROOT}:{_ROOT / 'lsp'}"},
        )
        threading.Thread(target=self._read, daemon=True).start()
        folders = [{"uri": folder.as_uri(), "name": "bench"}]
        capabilities = {"workspace": {"applyEdit": True, "didChangeWatchedFiles": {"dynamicRegistration": True}}}
        params = {"processId": None, "rootUri": None, "workspaceFolders": folders, "capabilities": capabilities}
        self.ask("initialize", params | {"initializationOptions": {"progress": "client"}})
        #: Seconds from starting the process to the answer to `initialize`.
        self.start_seconds = time.perf_counter() - began
        self.tell("initialized", {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def ask(self, method: str, params: dict[str, Any]) -> tuple[float, Any]:
        """Seconds until the answer, and the answer's result."""
        number = len(self._answers) + 1
        self._answers[number] = queue.Queue()
        began = time.perf_counter()
        self._send({"id": number, "method": method, "params": params})
        message = self._answers[number].get(timeout=120)
        taken = time.perf_counter() - began
        if "error" in message:
            raise RuntimeError(message["error"]["message"])
        return taken, message["result"]

    def lens(self, path: Path) -> float:
        """Seconds until the answer to a request for the lenses of a document."""
        return self.ask("textDocument/codeLens", {"textDocument": {"uri": path.as_uri()}})[0]

    def completion(self, path: Path, where: dict[str, int]) -> tuple[float, Any]:
        """Seconds until the answer to a request for an inline completion, and its items."""
        document = {"textDocument": {"uri": path.as_uri()}, "position": where, "context": {"triggerKind": 2}}
        return self.ask("textDocument/inlineCompletion", document)

    def command(self, name: str, argument: dict[str, Any]) -> Any:
        command = {"command": f"kernelAssistant.{name}", "arguments": [argument]}
        return self.ask("workspace/executeCommand", command)[1]

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def open(self, path: Path) -> None:
        item = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}
        self.tell("textDocument/didOpen", {"textDocument": item})

    def edit(self, path: Path, version: int, line: int, character: int, text: str) -> None:
        """Inserts a text into a document."""
        here = {"line": line, "character": character}
        changes = [{"range": {"start": here, "end": here}, "text": text}]
        document = {"uri": path.as_uri(), "version": version}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    def until_job(self, states: Collection[str]) -> None:
        """Waits until a job has told of one of these states."""
        while not any(event["state"] in states for event in self.events):
            time.sleep(0.05)

    def memory(self, when: str, how: str, aim: Aim | None = ("≤", 80)) -> Figure:
        """Resident memory in MB."""
        resident = psutil.Process(self._process.pid).memory_info().rss / 1e6
        return Figure(f"resident memory{when}", float(resident), "MB", how, aim)

    def settle(self) -> None:
        """Waits until the server has finished the work that opening a document causes."""
        process = psutil.Process(self._process.pid)
        for _ in range(120):
            if process.cpu_percent(0.5) < 5.0:
                return

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            while stream.readline() != b"\r\n":
                pass
            message = json.loads(stream.read(int(header.split(b":")[1])))
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
        long.write_text(_long_text(_LINES))
        figures = _start(settings, home, folder)
        with Client(home, folder) as client:
            figures += _requests(settings, client, folder, long)
        with Client(home, folder) as client:
            figures += _very_long(settings, client, folder)
        with Client(home, folder) as client:
            figures += _suggestions(settings, client, home, long)
        figures.append(_workspace(home, Path(name, "many")))
        Host(resolve(environ={"KERNEL_ASSISTANT_HOME": str(home)})[0]).shutdown()
        return figures


def _start(settings: Settings, home: Path, folder: Path) -> list[Figure]:
    taken, first = [], []
    path = folder / "small.py"
    path.write_text(_HEAD + _CLASS.format(number=1))
    for _ in range(settings.count(15, 3)):
        began = time.perf_counter()
        with Client(home, folder) as client:
            taken.append(client.start_seconds)
            client.open(path)
            client.lens(path)
            first.append(time.perf_counter() - began)
    return [
        Figure("start to the answer to initialize", statistics.median(taken) * 1e3, "ms", "median", ("≤", 300)),
        Figure("start to the first lens", statistics.median(first) * 1e3, "ms", "median"),
    ]


def _requests(settings: Settings, client: Client, folder: Path, path: Path) -> list[Figure]:
    """Requests in a long file, at rest, while somebody types and while a job runs."""
    client.open(path)
    where = {"line": 2500, "character": 0}
    place = {"textDocument": {"uri": path.as_uri()}, "range": {"start": where, "end": where}}
    asked: dict[str, Callable[[], float]] = {
        "code lens": lambda: client.lens(path),
        "code actions": lambda: client.ask("textDocument/codeAction", {**place, "context": {"diagnostics": []}})[0],
        "inline completion": lambda: client.completion(path, where)[0],
    }
    for ask in asked.values():
        ask()
    time.sleep(2.0)
    times = settings.count(200, 20)
    aims = {"code lens": 30, "code actions": 30}
    figures = [
        _p95(f"{name} in {_LINES:,} lines, p95", [ask() for _ in range(times)], aims.get(name))
        for name, ask in asked.items()
    ]
    figures.append(_p95("code lens while 50 characters a second are typed, p95", _typing(client, path), None))
    figures.append(client.memory(", that file open", "after those requests"))
    job = folder / "job.py"
    job.write_text(_HEAD + _CLASS.format(number=7) + _INPUTS)
    client.open(job)
    number = client.command("optimize", {"uri": job.as_uri(), "class": "Block7"})["job"]
    client.until_job(["running"])
    taken: dict[str, list[float]] = {name: [] for name in aims}
    for _ in range(settings.count(150, 10)):
        for name, seconds in taken.items():
            seconds.append(asked[name]())
        time.sleep(0.05)
    client.command("cancel", {"job": number})
    client.until_job([state.value for state in JobState if not state.active])
    return [*figures, *(_p95(f"{name} while a job runs, p95", seconds, 100) for name, seconds in taken.items())]


def _very_long(settings: Settings, client: Client, folder: Path) -> list[Figure]:
    """A file of extreme length, idle and while somebody types in it."""
    path, what = folder / "very_long.py", f"code lens in {_VERY_MANY_LINES:,} lines"
    path.write_text(_long_text(_VERY_MANY_LINES))
    began = time.perf_counter()
    client.open(path)
    client.lens(path)
    first = time.perf_counter() - began
    client.settle()
    rest, typed = [client.lens(path) for _ in range(settings.count(200, 20))], _typing(client, path)
    return [
        Figure(f"first lens in {_VERY_MANY_LINES:,} lines, from opening it", first, "s", "once"),
        _p95(f"{what}, p95", rest, 100, _VERY_MANY_LINES),
        _p95(f"{what} while 50 characters a second are typed, p95", typed, 100, _VERY_MANY_LINES),
        client.memory(f", {_VERY_MANY_LINES:,} lines open", "after those requests", None),
    ]


def _typing(client: Client, path: Path) -> list[float]:
    """Seconds of each code lens request between the keystrokes of eight seconds."""
    seconds, began = [], time.perf_counter()
    for stroke in range(400):
        client.edit(path, stroke + 2, 40, stroke % 60, "x" if stroke % 7 else "(")
        seconds.append(client.lens(path))
        time.sleep(max(0.0, began + (stroke + 1) / 50 - time.perf_counter()))
    return seconds


def _suggestions(settings: Settings, client: Client, home: Path, path: Path) -> list[Figure]:
    """Inline completions where there is something to suggest: the lines that give a class of the long file `path` its
    verified kernels, after the server has read the store."""
    _add_result(home, path)
    client.open(path)
    lines = path.read_text().splitlines()
    where = {"line": lines.index(f"class {_SUGGESTED}(nn.Module):") - 1, "character": 0}
    deadline = time.monotonic() + 60
    while not client.completion(path, where)[1]:
        if time.monotonic() > deadline:
            raise RuntimeError("the server does not suggest the result that is in the store")
        time.sleep(0.1)
    again = [client.completion(path, where)[0] for _ in range(settings.count(200, 20))]
    edited = []
    for version in range(2, settings.count(22, 7)):
        client.edit(path, version, len(lines), 0, "x = 1\n")
        edited.append(client.completion(path, where)[0])
    name, how = "inline completion of a verified body, p95", f"requests in {len(lines):,} lines"
    return [
        Figure(name, p95(again), "ms", f"{len(again)} {how}, the text as it was"),
        Figure(f"{name}, after an edit", p95(edited), "ms", f"{len(edited)} {how}, each parsed anew"),
        client.memory(" after those suggestions", ""),
    ]


def _add_result(home: Path, path: Path) -> None:
    """Adds a job to the store that improved a class of `path`, as a session host would; without files of its own."""
    store = Store(resolve(environ={"KERNEL_ASSISTANT_HOME": str(home)})[0].state_dir)
    text = f"{path.read_text()}\n\n{_INPUTS}"
    task = build_task(f"{path}:{_SUGGESTED}", target="cpu", numerics="kernelbench", text=text)
    row = store.add_job(task, JobOptions(), "cpu:0")
    store.mark_running(row.id)
    store.mark_ended(row.id, JobState.done, result=result(task=task.name, best=best()))
    store.close()


def _workspace(home: Path, folder: Path) -> Figure:
    """A workspace of a thousand files, with one of them open."""
    for number in range(_FILES):
        path = folder / f"part{number % 20}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_HEAD + _CLASS.format(number=number))
    began, path = time.perf_counter(), folder / "part0" / "file0.py"
    with Client(home, folder) as client:
        client.open(path)
        client.lens(path)
        taken = time.perf_counter() - began
    return Figure(f"a workspace of {_FILES:,} files, to the first lens", taken, "s", "once", ("≤", 2))


def _long_text(lines: int) -> str:
    return _HEAD + "".join(_CLASS.format(number=number) for number in range(lines // _CLASS.count(_END)))


def _p95(name: str, seconds: list[float], aim: float | None, lines: int = _LINES) -> Figure:
    how = f"{len(seconds)} requests, {lines // _CLASS.count(_END)} module classes"
    return Figure(name, p95(seconds), "ms", how, None if aim is None else ("≤", aim))
