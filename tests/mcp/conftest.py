"""The server in the way in which an agent starts it, and the official client."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from kernel_assistant.config import resolve
from kernel_assistant.session.client import Client as Session
from tests.common.caches import new_cache


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A state folder of its own for the module, whose host ends with it."""
    folder = tmp_path_factory.mktemp("home")
    new_cache(folder / "cache")
    environ = {"KERNEL_ASSISTANT_HOME": str(folder), "KERNEL_ASSISTANT_POLICY": "generator"}
    yield folder
    Session(resolve(None, {}, environ)[0]).shutdown()


@pytest.fixture
def agent(home, tmp_path: Path, python_path: str):
    """`agent(conversation)` runs `conversation(client)` with a new server that is started in `tmp_path`."""

    def talk(conversation: Callable[[Client], Any]) -> Any:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("KERNEL_ASSISTANT_")}
        settings = {"HOME": str(home), "POLICY": "generator", "FREE_WINS": "false", "TURNS": "2"}
        environ |= {f"KERNEL_ASSISTANT_{name}": value for name, value in settings.items()}
        environ["PYTHONPATH"] = python_path
        command = ["-m", "kernel_assistant", "mcp"]
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environ, cwd=tmp_path)

        async def run() -> Any:
            async with Client(stdio_client(parameters)) as client:
                return await conversation(client)

        return anyio.run(run)

    return talk
