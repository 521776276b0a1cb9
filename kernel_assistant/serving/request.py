"""What `serve` was asked for."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class ServeRequest(Record, frozen=True, kw_only=True):
    """`model`: a registered name, file, folder or hub name; "" for the one in use. `engine`: auto, vllm or llama.cpp.

    `port` 0 is any free one; `gpu_memory_share` 0 the default; `context` in tokens, 0 for what the model was made for.
    `engine_arguments` go to vLLM as they are.
    """

    model: str = ""
    engine: str = "auto"
    host: str = "127.0.0.1"
    port: int = 0
    gpu_memory_share: float = 0.0
    context: int = 0
    engine_arguments: tuple[str, ...] = ()
