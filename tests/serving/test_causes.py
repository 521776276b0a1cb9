"""Logged messages of engines, and the causes derived from them."""

from __future__ import annotations

import pytest

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant.serving.causes import explain
from kernel_assistant.serving.errors import EngineShortOfMemoryError, ModelNotFoundError
from kernel_assistant.serving.plan import GpuMemory, check_memory

SHORT, ABSENT = EngineShortOfMemoryError, ModelNotFoundError
LOGGED = [
    (
        (
            "Free memory on device cuda:0 (13.2/139.8 GiB) on startup is less than desired GPU memory utilization "
            "(0.5, 69.9 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
        *(SHORT, "the GPU has 13.2 of 139.8 GiB free, the server's share is 69.9 GiB"),
    ),
    (
        (
            "ValueError: Available memory on node 0 (15.2/23.4 GiB) on kv cache allocation is less than requested "
            "memory for kv (512.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU"
        ),
        *(SHORT, "the machine has 15.2 of 23.4 GiB free, the server wants 512.0 GiB"),
    ),
    (
        (
            "ValueError: Available memory on node 0 (0.8/23.4 GiB) on startup is less than desired CPU memory "
            "utilization (0.05, 1.17 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls"
        ),
        *(SHORT, "the machine has 0.8 of 23.4 GiB free, the server wants 1.17 GiB"),
    ),
    (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        *(SHORT, "holds the model, but not its cache"),
    ),
    (
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), 64.0 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (1.2 GiB)."
        ),
        *(SHORT, "holds the model, but not its cache"),
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        *(SHORT, "memory was short while org/name was loaded"),
    ),
    (
        "OSError: org/name is not a local folder and is not a valid model identifier listed on the hub",
        *(ABSENT, "org/name is neither a local model nor one of the hub"),
    ),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", ABSENT, "without an account"),
    ("OSError: We couldn't connect to the hub to load this file", ABSENT, "the hub cannot be reached for org/name"),
    ("OSError: [Errno 98] Address already in use", UsageError, "port 8000 is taken"),
    ("ModuleNotFoundError: No module named 'vllm'", MissingError, "vllm is not installed"),
    (
        "ValueError: Model architectures ['FancyForCausalLM'] are not supported for now.",
        *(ABSENT, "does not know the architecture"),
    ),
]


@pytest.mark.parametrize(("line", "kind", "cause"), LOGGED, ids=[line[:30] for line, _, _ in LOGGED])
def test_known_messages(line, kind, cause):
    error = explain(f"INFO 11-21 starting\nTraceback (most recent call last):\n{line}\nINFO bye", "org/name", 8000)
    assert type(error) is kind and cause in error.cause
    assert error.next_step and "\n" not in error.cause


def test_other_messages_are_not_guessed_at():
    assert explain("RuntimeError: Engine core initialization failed. See root cause above.", "m", 1) is None


def test_the_first_known_message_counts():
    both = LOGGED[0][0] + "\n" + LOGGED[3][0]
    assert "13.2 of 139.8" in explain(both, "m", 1).cause


def test_memory_is_looked_at_before_vllm_starts():
    gpu = GpuMemory(free=20 << 30, total=80 << 30)
    check_memory(0.25, gpu)
    with pytest.raises(EngineShortOfMemoryError, match=r"is 40\.0 GiB, and 20\.0 are free") as caught:
        check_memory(0.5, gpu)
    assert "--gpu-memory-share 0.23" in caught.value.next_step
