"""Inline completions where there is something to suggest: the lines that give a class its verified kernels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, Settings
from kernel_assistant.config import resolve
from kernel_assistant.source.build import build_task
from kernel_assistant.store import JobOptions, JobState, Store
from tests.common.results import best, result

if TYPE_CHECKING:
    from bench.lsp import Client

_CLASS = "Block60"


def suggestions(settings: Settings, client: Client, home: Path, path: Path) -> list[Figure]:
    """Measures suggestions; `path` is the long file."""
    _add_result(home, path)
    client.open(path)
    figures = _body(settings, client, path)
    return [*figures, Figure("resident memory after those suggestions", client.memory(), "MB", "", ("≤", 80))]


def _add_result(home: Path, path: Path) -> None:
    """Adds a job to the store that improved a class of `path`, as a session host would; without files of its own."""
    state = resolve(environ={"KERNEL_ASSISTANT_HOME": str(home)})[0].state_dir
    store = Store(state)
    text = f"{path.read_text()}\n\ndef get_inputs():\n    return [torch.randn(2, 64, 512)]\n"
    task = build_task(f"{path}:{_CLASS}", target="cpu", numerics="kernelbench", text=text)
    row = store.add_job(task, JobOptions(), "cpu:0")
    store.mark_running(row.id)
    store.mark_ended(row.id, JobState.done, result=result(task=task.name, best=best()))
    store.close()


def _body(settings: Settings, client: Client, path: Path) -> list[Figure]:
    """Measures after the server has read the store."""
    lines = path.read_text().splitlines()
    where = {"line": lines.index(f"class {_CLASS}(nn.Module):") - 1, "character": 0}
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
        Figure(name, _p95(again) * 1e3, "ms", f"{len(again)} {how}, the text as it was"),
        Figure(f"{name}, after an edit", _p95(edited) * 1e3, "ms", f"{len(edited)} {how}, each parsed anew"),
    ]


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.95 * (len(seconds) - 1))]


def _asked(client: Client, path: Path, where: dict[str, int]) -> tuple[float, list[Any]]:
    document = {"textDocument": {"uri": path.as_uri()}, "position": where, "context": {"triggerKind": 2}}
    seconds, items = client.ask("textDocument/inlineCompletion", document)
    return seconds, items or []
