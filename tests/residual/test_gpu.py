"""PyTorch's own calls between kernels and libraries on a GPU: a whole evaluation, and the applied loader."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernel_assistant.environment.session import open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Tier, to_builtins
from kernel_assistant.targets import cuda
from kernel_assistant.worker.applied.binaries import Binaries
from kernel_assistant.worker.applied.launch import AppliedLauncher
from kernel_assistant.worker.applied.parts import Parts
from tests.common.tasks import task_of
from tests.generator.harness import bindings, export
from tests.residual.modules import ATTENTION, HEADS, LIBRARY

pytestmark = pytest.mark.gpu

STAYS = {
    "Attention": (ATTENTION, "scaled_dot_product_attention"),
    "Heads": (HEADS, "scaled_dot_product_attention"),
    "Turned": (LIBRARY, "residual_modules::turned"),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    running = WorkerClient(sys.executable)
    running.start(threading.Event())
    yield running
    running.close()


@pytest.mark.parametrize("name", STAYS)
def test_evaluated_and_launched(name: str, worker: WorkerClient, tmp_path: Path) -> None:
    text, operator = STAYS[name]
    path = tmp_path / "modules.py"
    path.write_text(text)
    task = task_of(path, text, name, target="cuda")
    device = cuda.idle_gpu(cuda.gpus())
    with open_environment(
        task,
        device=device,
        worker=worker,
        sandbox_mode="auto",
        cache_dir=tmp_path / "cache",
        cancel=threading.Event(),
        emit=lambda event: None,
    ) as environment:
        candidate = emit(environment.graph, initial(environment.graph, "cuda", device)[0])
        for tier in Tier:
            (found,) = environment.evaluate([candidate], tier)
            assert found.correct, found.message
            if tier is not Tier.verify:  # which times nothing
                assert 0.0 < found.share_in_our_kernels < 1.0
        assert [one.partition(" ")[0] for one in found.residual] == [operator]
        for file, content in environment.binaries(candidate).items():
            (tmp_path / file).write_bytes(content)
    _check_launch(candidate.plan, text, name, tmp_path)


def _check_launch(plan: object, text: str, name: str, folder: Path) -> None:
    """Runs the applied loader on another stream, at another batch size, and inside a CUDA graph."""
    names: dict[str, object] = {}
    exec(compile(text, "modules.py", "exec"), names)
    model = names[name]().eval().cuda()  # type: ignore[operator]
    (x,) = names["get_inputs"]()  # type: ignore[operator]
    x = x.cuda()
    graph = export(copy.deepcopy(model).cpu(), x.cpu())
    rows = 5
    fresh = torch.randn(rows, *x.shape[1:], device="cuda")
    values = bindings(graph, model, (fresh,))
    document = to_builtins(plan)
    outputs = [to_builtins(graph.spec(one)) for one in graph.outputs]
    device = torch.device("cuda", torch.cuda.current_device())
    binaries = Binaries(Parts(str(folder.parent), folder.name), "", "cuda", [])
    launch = AppliedLauncher(document, outputs, {"B": rows}, binaries, device, 16)
    tensors = [values[spec["name"]] for spec in document["inputs"]]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        (got,) = launch(tensors)
        stream.synchronize()
        torch.testing.assert_close(got, model(fresh), atol=1e-4, rtol=1e-4)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured, stream=stream):
        (kept,) = launch(tensors)
    fresh.mul_(0.5)
    captured.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        torch.testing.assert_close(kept, model(fresh), atol=1e-4, rtol=1e-4)
