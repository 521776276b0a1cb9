"""For each test an endpoint that is scripted, and a registry of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_assistant.serving.registry import registry_file
from tests.policy.endpoint import Endpoint, served


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served() as server:
        yield server


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A function: the text of the registry of models in a home for this test alone."""
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path))
    registry_file().parent.mkdir(parents=True)
    return registry_file().write_text
