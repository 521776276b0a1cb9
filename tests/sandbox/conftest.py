"""Backends that work on this machine, each tested once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.sandbox.choose import choose, probe
from kernel_assistant.sandbox.contract import Sandbox

ISOLATING = [status.backend for status in probe() if status.usable]


@pytest.fixture(params=ISOLATING)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each backend that isolates."""
    return choose(request.param)


@pytest.fixture(params=[*ISOLATING, "none"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return choose(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return str(folder)
