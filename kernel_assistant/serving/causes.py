"""Finds out from the last lines of an engine's log why the engine ended. Restarting the engine does not help against a
known cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_assistant.errors import KernelAssistantError, MissingError, UsageError
from kernel_assistant.serving.errors import EngineShortOfMemoryError, ModelNotFoundError

_LESS = "--gpu-memory-share, --context N, or a smaller model; nvidia-smi shows who holds the memory"


@dataclass(frozen=True)
class _Cause:
    pattern: re.Pattern[str]
    kind: type[KernelAssistantError]
    cause: str
    next_step: str


def _cause(pattern: str, kind: type[KernelAssistantError], cause: str, next_step: str) -> _Cause:
    return _Cause(re.compile(pattern, re.IGNORECASE), kind, cause, next_step)


#: Messages of vLLM 0.26 to 0.32, of huggingface_hub and of llama.cpp of autumn 2026. The first match is used.
_CAUSES = (
    _cause(
        r"free memory on device \S+ \(([\d.]+)/([\d.]+) GiB\).*?utilization \([\d.]+, ([\d.]+) GiB\)",
        EngineShortOfMemoryError,
        "the GPU has {0} of {1} GiB free, the server's share is {2} GiB",
        _LESS,
    ),
    _cause(
        r"available memory on node \S+ \(([\d.]+)/([\d.]+) GiB\).*? \((?:[\d.]+, )?([\d.]+)(?:/[\d.]+)? GiB\)",
        EngineShortOfMemoryError,
        "the machine has {0} of {1} GiB free, the server wants {2} GiB",
        "VLLM_CPU_KVCACHE_SPACE=N with fewer GiB, a smaller model, or end what holds the memory",
    ),
    _cause(
        r"no available memory for the cache blocks|larger than the available kv cache memory",
        EngineShortOfMemoryError,
        "the share of the GPU's memory holds the model, but not its cache",
        "a larger --gpu-memory-share, or --context N with a smaller N",
    ),
    _cause(
        r"cuda out of memory|outofmemoryerror|cuda error: out of memory|std::bad_alloc|failed to allocate|"
        r"cannot allocate memory|unable to allocate",
        EngineShortOfMemoryError,
        "memory was short while {model} was loaded",
        _LESS,
    ),
    _cause(
        r"gatedrepoerror|gated repo|401 client error",
        ModelNotFoundError,
        "the hub does not hand out {model} without an account",
        "accept its licence there and set HF_TOKEN, or name a local folder",
    ),
    _cause(
        r"repositorynotfounderror|repository not found|not a valid model identifier|invalid repository id or local dir|"
        r"does not appear to have a file named",
        ModelNotFoundError,
        "{model} is neither a local model nor one of the hub",
        "check the name, or name a folder with config.json",
    ),
    _cause(
        r"localentrynotfounderror|offlinemodeisenabled|couldn't connect to|max retries exceeded|name resolution",
        ModelNotFoundError,
        "the hub cannot be reached for {model}",
        "name a local folder, or check the network and HF_HUB_OFFLINE",
    ),
    _cause(
        r"address already in use|couldn't bind|failed to bind",
        UsageError,
        "port {port} is taken",
        "--port N with another one, or leave it out",
    ),
    _cause(
        r"no module named '?(vllm|xllamacpp)\b",
        MissingError,
        "{0} is not installed",
        "vllm: kernel-assistant serve --install; llama.cpp: pip install xllamacpp",
    ),
    _cause(
        r"model architectures .*? are not supported",
        ModelNotFoundError,
        "the engine does not know the architecture of {model}",
        "a newer engine, or another model",
    ),
    _cause(
        r"invalid magic|failed to load model|error loading model|exiting due to model loading error",
        ModelNotFoundError,
        "{model} is not a GGUF file that llama.cpp can read",
        "check the file: kernel-assistant models info FILE",
    ),
)


def explain(tail: str, model: str, port: int) -> KernelAssistantError | None:
    """Returns the error for the known cause that the last lines of an engine's log (`tail`) show; None if they show
    none."""
    for known in _CAUSES:
        match = known.pattern.search(tail)
        if match:
            return known.kind(known.cause.format(*match.groups(), model=model, port=port), known.next_step)
    return None
