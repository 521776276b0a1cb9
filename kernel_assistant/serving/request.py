"""The request of the command `serve`."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class ServeRequest(Record, frozen=True, kw_only=True):
    """A request to serve a model. `model`: a registered name, file, folder or hub name; "" for the model in use.
    `engine`: auto, vllm or llama.cpp. `port` 0 is any free one; `gpu_memory_share` 0 is the default; `context` in
    tokens, 0 for the model's own context. `engine_arguments` are passed to vLLM unchanged."""

    model: str = ""
    engine: str = "auto"
    host: str = "127.0.0.1"
    port: int = 0
    gpu_memory_share: float = 0.0
    context: int = 0
    engine_arguments: tuple[str, ...] = ()
