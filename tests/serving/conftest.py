"""A tiny model in both forms, made once, and an engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.config import Settings, resolve
from kernel_assistant.serving.convert_run import convert
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.request import ServeRequest
from tests.serving import tiny as tiny_module


@dataclass(frozen=True)
class Tiny:
    """`module` is tests/serving/tiny.py, `model` the trained model in float32."""

    module: Any
    model: Any
    folder: Path
    gguf: Path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    model = tiny_module.make(folder)
    gguf = folder.with_name("tiny.gguf")
    convert("to-gguf", folder, gguf)
    return Tiny(tiny_module, model, folder, gguf)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for this test alone."""
    monkeypatch.setenv("KERNEL_ASSISTANT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def settings(home: Path) -> Settings:
    return resolve()[0]


@pytest.fixture(scope="session")
def engine(tiny: Tiny, own_folders: Path) -> Iterator[LocalEngine]:
    """llama.cpp with the tiny model."""
    spec = plan(ServeRequest(model=str(tiny.gguf), engine="llama.cpp", context=512), resolve()[0])
    engine = LocalEngine(spec)
    yield engine
    engine.stop()
