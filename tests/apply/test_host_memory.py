"""Results of applied kernels on the CPU: their memory is reused once nothing refers to it, and never before."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernel_assistant.worker.applied import host_memory
from kernel_assistant.worker.applied.host_memory import HostMemory, host_allocator, host_bytes

SIZE = host_memory.LEAST_BYTES


def _tensor(memory: HostMemory, value: float, size: int = SIZE) -> torch.Tensor:
    tensor = torch.empty(0).set_(memory.storage(size), 0, (size // 4,), (1,))  # type: ignore[call-overload]
    return tensor.fill_(value)


def test_memory_is_reused_once_the_last_view_is_gone() -> None:
    memory = HostMemory()
    first = _tensor(memory, 1.0)
    address, view = first.data_ptr(), first[5:9]
    del first
    second = _tensor(memory, 2.0)
    assert second.data_ptr() != address
    assert view.tolist() == [1.0] * 4
    assert memory.free_bytes() == 0
    del view
    assert memory.free_bytes() == SIZE
    third = _tensor(memory, 3.0)
    assert third.data_ptr() == address
    assert (second.unique().tolist(), third.unique().tolist()) == ([2.0], [3.0])


def test_a_tensor_of_numpy_keeps_the_memory() -> None:
    pytest.importorskip("numpy")
    memory = HostMemory()
    array = _tensor(memory, 1.0).numpy()
    other = _tensor(memory, 2.0)
    assert array.max() == 1.0
    assert other.max() == 2.0


def test_small_ones_are_pytorchs() -> None:
    memory = HostMemory()
    storage = memory.storage(SIZE - 1)
    assert storage.nbytes() == SIZE - 1
    del storage
    assert memory.free_bytes() == 0


def test_free_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "MOST_FREE_BYTES", 3 * SIZE)
    memory = HostMemory()
    tensors = [_tensor(memory, 0.0) for _ in range(5)]
    tensors.clear()
    assert memory.free_bytes() == 3 * SIZE
    large = _tensor(memory, 0.0, 8 * SIZE)
    del large
    # One block is kept however large it is; others go.
    assert memory.free_bytes() == 8 * SIZE


def test_results_of_ever_new_sizes_do_not_keep_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "MOST_FREE_BYTES", 3 * SIZE)
    memory = HostMemory()
    for number in range(8):
        large = _tensor(memory, 0.0, 8 * SIZE + 4096 * number)
        assert memory.free_bytes() == 0
        del large
        assert memory.free_bytes() == 8 * SIZE + 4096 * number
    assert len(memory._free) == 1


def test_the_garbage_collector_may_free_while_blocks_are_counted() -> None:
    """What is wrong in a callback is only written to standard error."""
    memory, before, problems = HostMemory(), gc.get_threshold(), list[object]()
    hook, sys.unraisablehook = sys.unraisablehook, problems.append
    gc.set_threshold(30)
    try:
        for number in range(200):
            cycle: list[object] = [_tensor(memory, 0.0, SIZE + 4096 * (number % 50))]
            cycle.append(cycle)
            del cycle
            memory.free_bytes()
    finally:
        gc.set_threshold(*before)
        sys.unraisablehook = hook
    assert problems == []


def test_threads_and_the_garbage_collector_may_free_at_any_time() -> None:
    """Each thread keeps some tensors in cycles; no two that live share memory."""
    memory, wrong = HostMemory(), list[str]()

    def work(number: int) -> None:
        for turn in range(16):
            mine = [_tensor(memory, number * 100 + turn + part / 4) for part in range(3)]
            mine.append(mine)  # type: ignore[arg-type]
            if any(float(mine[part].max()) != number * 100 + turn + part / 4 for part in range(3)):
                wrong.append(f"thread {number}, turn {turn}")
            del mine
            if turn == 8:
                gc.collect()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert wrong == []


def test_a_forked_child_has_memory_of_its_own() -> None:
    memory = HostMemory()
    kept, freed = _tensor(memory, 1.0), _tensor(memory, 2.0)
    del freed
    child = os.fork()
    if not child:
        # Few elements: OpenMP's threads are not there in a forked child.
        kept[:4] = 9.0
        other = torch.empty(0).set_(memory.storage(SIZE), 0, (4,), (1,))  # type: ignore[call-overload]
        other[:] = 9.0
        os._exit(0)
    os.waitpid(child, 0)
    assert kept.max() == 1.0
    assert memory.free_bytes() == SIZE


def test_results_are_ordinary_tensors() -> None:
    spec = {"name": "out0", "dtype": "bf16", "shape": ["B", "512", "1024"], "strides": ["524288", "1", "512"]}
    tensor = host_allocator(spec, {"B": 3})()
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((3, 512, 1024), (524288, 1, 512), torch.bfloat16)
    assert not tensor._is_view()
    tensor.zero_()
    assert torch.equal(pickle.loads(pickle.dumps(tensor)), tensor)
    assert copy.deepcopy(tensor).data_ptr() != tensor.data_ptr()
    tensor.requires_grad_()
    assert host_allocator({**spec, "shape": ["B", "0"], "strides": None}, {"B": 3})().shape == (3, 0)
    with torch.inference_mode():
        assert host_allocator(spec, {"B": 2})().is_inference()
    assert host_bytes(SIZE).shape == (SIZE,)
    with torch.device("meta"):
        made = [host_allocator(spec, {"B": size})() for size in (1, 0)] + [host_bytes(SIZE), host_bytes(64)]
    assert {tensor.device.type for tensor in made} == {"cpu"}


def test_without_memory_pytorch_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise OSError

    monkeypatch.setattr(host_memory.mmap, "mmap", refuse)
    assert HostMemory().storage(SIZE).nbytes() == SIZE
