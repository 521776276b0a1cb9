"""A forked worker uses the GPU like a worker that imported torch itself."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from kernel_assistant.environment.template_key import VARIABLE
from kernel_assistant.environment.worker_client import WorkerClient
from tests.worker.test_template import seen, template_of

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
    own = WorkerClient(sys.executable, env={VARIABLE: "off"})
    workers = [WorkerClient(sys.executable) for _ in range(3)]
    seconds = []
    try:
        own.start()
        expected = seen(own, tmp_path, ON_GPU)
        assert expected[0]
        for worker in workers:
            began = time.perf_counter()
            worker.start()
            seconds.append(time.perf_counter() - began)
            assert seen(worker, tmp_path, ON_GPU) == expected
            assert not devices_of(template_of(worker))
    finally:
        for worker in (own, *workers):
            worker.kill()
    with capsys.disabled():
        sys.stdout.write(f"\n  seconds until a forked worker answers: {', '.join(f'{one:.2f}' for one in seconds)}\n")


def devices_of(process: psutil.Process) -> list[str]:
    links = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
    return [link for link in links if link.startswith("/dev/nvidia")]
