"""A forked worker uses the GPU like a worker that imported torch itself."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from kernel_assistant.environment.template_key import VARIABLE
from tests.worker.test_template import OFF, seen, started, template_of

pytestmark = pytest.mark.gpu

ON_GPU = """
import torch
found = [torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda._is_in_bad_fork()]
from torch._inductor.runtime.benchmarking import benchmarker
found.append(type(benchmarker).__name__)
left = torch.arange(256 * 256, device="cuda", dtype=torch.float32).reshape(256, 256) / 65536
found.append(torch.compile(lambda one: (one @ one.T).relu().sum(1))(left).cpu().tolist())
"""


def test_it_computes_what_a_worker_with_a_process_of_its_own_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    seconds = []
    with ExitStack() as held:
        expected = seen(held.enter_context(started(**OFF)), tmp_path, ON_GPU)
        assert expected[0]
        for _ in range(3):
            began = time.perf_counter()
            worker = held.enter_context(started())
            seconds.append(time.perf_counter() - began)
            assert seen(worker, tmp_path, ON_GPU) == expected
            assert not devices_of(template_of(worker))
    with capsys.disabled():
        sys.stdout.write(f"\n  seconds until a forked worker answers: {', '.join(f'{one:.2f}' for one in seconds)}\n")


def devices_of(process: psutil.Process) -> list[str]:
    links = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
    return [link for link in links if link.startswith("/dev/nvidia")]
