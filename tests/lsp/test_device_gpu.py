"""Tests that an editor gets the same figures of a busy GPU as nvidia-smi reports."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from kernel_assistant.errors import MissingError
from kernel_assistant.targets.cuda import compiler
from tests.common.gpu_load import MIB, busy_gpu, nvidia_smi

# Other tests' work on the GPU comes and goes between two looks.
pytestmark = [pytest.mark.asyncio, pytest.mark.gpu, pytest.mark.timed]

#: Statuses that may be looked at until one says the same; they come every two seconds.
TRIES = 10
#: Part of the memory in use that may have come or gone meanwhile.
SLACK = 0.02


@pytest.fixture
def load():
    with busy_gpu() as found:
        yield found


@pytest_asyncio.fixture
async def watching(load, model, monkeypatch, start_editor):
    """An editor that watches the device with the load."""
    try:
        compiler()
    except MissingError as missing:
        pytest.skip(f"the device is the CPU: {missing.cause}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", load.uuid)
    editor = await start_editor()
    editor.client.protocol.notify("kernelAssistant/watchStatus", {"on": True})
    return editor


async def test_the_gpu_is_told_as_nvidia_smi_tells_it(watching, load):
    tried = []
    for _ in range(TRIES):
        before = await asyncio.to_thread(nvidia_smi, load.uuid)
        status = await later(watching)
        after = await asyncio.to_thread(nvidia_smi, load.uuid)
        assert status["device"] == before.name
        assert status["memory_used"] >= load.held
        assert abs(status["memory_total"] - before.memory_total) <= MIB
        near = SLACK * after.memory
        if before.memory - near <= status["memory_used"] <= after.memory + near and (
            before.busy is None or status["utilisation"] > 0.5
        ):
            break
        tried.append((status, before, after))
    else:
        raise AssertionError(tried)
    load.end()
    for _ in range(TRIES):
        status = await later(watching)
        if status["memory_used"] < load.held / 2 and (status["utilisation"] or 0.0) < 0.1:
            return
    raise AssertionError(status)


async def later(editor, seconds=30):
    """The next status that arrives."""
    known = len(editor.statuses)
    for _ in range(int(seconds / 0.05)):
        if len(editor.statuses) > known:
            return editor.statuses[-1]
        await asyncio.sleep(0.05)
    raise AssertionError(f"no status within {seconds} s")
