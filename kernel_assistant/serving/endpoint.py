"""Finds the endpoint of the model in use. Everything that needs a model uses this."""

from __future__ import annotations

import atexit
import threading
from dataclasses import dataclass

from kernel_assistant.config import Settings
from kernel_assistant.errors import MissingError
from kernel_assistant.serving.local import LocalEngine
from kernel_assistant.serving.plan import plan
from kernel_assistant.serving.registry import ModelEntry, ModelKind, find, key_of
from kernel_assistant.serving.request import ServeRequest
from kernel_assistant.serving.state import running
from kernel_assistant.serving.supervisor import ServerStatus


@dataclass(frozen=True)
class Endpoint:
    """The address of a served model. `url` ends with the version (`/v1`), `key` is "" if none is needed, `model` is the
    name to send.

    `engine` is endpoint, vllm or llama.cpp; `compact` is True if the model needs the compact prompt profile.
    """

    url: str
    key: str
    model: str
    engine: str
    compact: bool = False


#: The llama.cpp processes that belong to this process, by file; they end with it.
_local: dict[str, LocalEngine] = {}
_lock = threading.Lock()


def endpoint_for(settings: Settings, endpoint: str = "") -> Endpoint:
    """Returns the endpoint for a model: for `endpoint` (a URL or a registered name) or, if that is "", for the model in
    use. For a model that is not behind a URL, this is the running server, or else a llama.cpp process that is started
    here and ends with this process. Later calls are cheap; they restart a llama.cpp process that has ended.

    Raises NoModelError, ModelNotFoundError, MissingError and EngineError.
    """
    entry = find(endpoint, settings)
    if entry.kind is ModelKind.endpoint:
        return Endpoint(entry.where, key_of(entry), entry.remote_name or entry.name, "endpoint", entry.compact)
    server = running(settings)
    if server is not None and server.status is ServerStatus.ready and server.source == entry.where:
        return Endpoint(server.url, server.key, server.model, server.engine, entry.compact)
    if entry.kind is not ModelKind.gguf:
        raise MissingError(f"{entry.where} is not being served", "kernel-assistant serve --detach")
    spec = local_engine(entry, settings).running()
    return Endpoint(spec.url, spec.key, spec.model, spec.engine, entry.compact)


def local_engine(entry: ModelEntry, settings: Settings) -> LocalEngine:
    """Returns the llama.cpp process for a GGUF file, without starting it. Raises MissingError and UsageError."""
    with _lock:
        if entry.where not in _local:
            spec = plan(ServeRequest(model=entry.where, engine="llama.cpp"), settings)
            _local[entry.where] = LocalEngine(spec)
        return _local[entry.where]


@atexit.register
def close() -> None:
    """Ends the processes that `endpoint_for` started."""
    while _local:
        _local.popitem()[1].stop()
