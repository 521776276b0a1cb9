"""Processes and servers that the tests examine."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def below(pid: int) -> list[int]:
    """The living processes below `pid`, parents first."""
    found = []
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for number in map(int, child.read_text().split()):
            if is_alive(number):
                found += [number, *below(number)]
    return found


def eventually(what: Callable[[], object], seconds: float = 60.0) -> bool:
    """Waits until `what` becomes true; the limit only ends a test that hangs."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def chat(server: Any, **body: object) -> Any:
    """The choice of a server, an endpoint or a state of one, for a chat completion without randomness."""
    request = urllib.request.Request(
        f"{server.url}/chat/completions",
        data=json.dumps({"model": server.model, "temperature": 0, **body}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]


def environment() -> dict[str, str]:
    """The environment of a child process that runs this checkout's code."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
