"""Library launches on a GPU: values, precision, streams, capture, the applied loader, and a whole evaluation."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernel_assistant.environment.session import Environment, open_environment
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.plan.partition import FIRST_FORM
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Tier
from kernel_assistant.targets import cuda
from kernel_assistant.worker.applied.binaries import Binaries
from kernel_assistant.worker.applied.launch import AppliedLauncher
from kernel_assistant.worker.applied.parts import Parts
from kernel_assistant.worker.runner import libraries
from kernel_assistant.worker.runner.cuda_driver import Driver, Events
from kernel_assistant.worker.runner.operations.choosing import Algorithm, Words
from kernel_assistant.worker.runner.operations.kept_algorithms import KeptAlgorithms
from tests.common.tasks import task_of
from tests.generator.harness import Built, Tensors, as_list, bindings, export, resized
from tests.generator.library_modules import convolutions, products
from tests.generator.test_cuda import H200

pytestmark = pytest.mark.gpu

PRODUCTS, CONVOLUTIONS = list(products()), list(convolutions())
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
#: Largest error as a part of the largest value; "tf32" is float32 where PyTorch's flag allows that.
BOUNDS = {"f64": 1e-12, "f32": 3e-5, "tf32": 3e-3, "f16": 4e-3, "bf16": 2e-2}
IN_HALF = ("linear, relu", "linear, tanh gelu, linear", "bmm, right transposed", "transposed result", "addmm")
CONVOLVED_IN_HALF = (
    *("conv1d", "conv2d, bias, relu", "conv2d, channels last", "conv2d, channels last, silu", "conv3d"),
    "transposed 2d, groups",
    *("conv2d, bias, residual, relu", "conv2d, residual"),
)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled binary of a candidate without kernels."""
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "kernel.cu").write_text("// No kernels.\n")
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    target = folder / f"kernels.{arch}.cubin"
    subprocess.run([cuda.compiler(), "-cubin", f"-arch={arch}", "kernel.cu", "-o", target], cwd=folder, check=True)
    return target


@pytest.fixture
def exact_convolutions() -> Iterator[None]:
    """float32 convolutions without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def case(name: str, dtype: str = "f32") -> tuple[nn.Module, Tensors]:
    model, _, args = {**products(), **convolutions()}[name]
    return model.to(DTYPES[dtype]), tuple(arg.to(DTYPES[dtype]) for arg in args)


def built(model: nn.Module, args: Tensors, cubin: Path) -> Built:
    graph = export(model, *args)
    return Built(graph, initial(graph, "cuda", H200)[0], cubin.parent, cubin)


def error(model: nn.Module, args: Tensors, got: list[torch.Tensor]) -> float:
    """The largest error against float64, divided by the largest value."""
    with torch.no_grad():
        want = as_list(copy.deepcopy(model).double()(*(arg.double() for arg in args)))
    pairs = list(zip(got, want, strict=True))
    assert all(mine.shape == exact.shape for mine, exact in pairs)
    return max(float((mine.double().cpu() - exact).abs().max() / exact.abs().max()) for mine, exact in pairs)


def close(name: str, dtype: str, cubin: Path, bound: str) -> None:
    model, args = case(name, dtype)
    made = built(model, args, cubin)
    sizes = [args, resized(args, 4)] if made.graph.dims and name != "mm, both transposed" else [args]
    for given in sizes:
        got = made(bindings(made.graph, model, given))
        assert got[0].dtype == DTYPES[dtype]
        assert error(model, given, got) < BOUNDS[bound]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, cubin: Path) -> None:
    close(name, "f32", cubin, "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", IN_HALF)
def test_products_in_half(name: str, dtype: str, cubin: Path) -> None:
    close(name, dtype, cubin, dtype)


@pytest.mark.parametrize("name", ["linear", "bmm", "conv2d with bias", "transposed 1d"])
def test_double(name: str, cubin: Path) -> None:
    close(name, "f64", cubin, "f64")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, cubin: Path, exact_convolutions: None) -> None:
    close(name, "f32", cubin, "f32")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_each_algorithm_computes_silu(
    dtype: str, cubin: Path, exact_convolutions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that fuse it, and those behind which passes of their own add the bias and compute SiLU."""
    model, args = case("conv2d, channels last, silu", dtype)
    algorithms: list[Algorithm] = []

    def choose_any(
        driver: Driver, events: Events, ways: Sequence[Algorithm], spans: Sequence[int]
    ) -> tuple[Algorithm, bool]:
        algorithms.extend(ways)
        return Algorithm("any", max(way.workspace for way in ways), run_current), True

    def run_current(words: Words, stream: int) -> int:
        return current.attempt(words, stream)

    monkeypatch.setattr(libraries, "choose", choose_any)
    made = built(model, args, cubin)
    shared = made.module._libraries  # type: ignore[union-attr]
    monkeypatch.setattr(shared, "kept", KeptAlgorithms())
    monkeypatch.setattr(shared, "_chosen", {})
    bound, pointers, outputs, alive = made.bind(bindings(made.graph, model, args))
    for current in algorithms:
        outputs[0].fill_(float("nan"))
        bound.run(pointers)
        torch.cuda.synchronize()
        assert error(model, args, outputs) < BOUNDS[dtype], current.name
    assert {"fused" in way.name for way in algorithms} == {True, False}
    del alive


@pytest.mark.parametrize("name", ["conv2d with bias", "conv2d, channels last, silu", "transposed 3d"])
def test_convolutions_follow_the_flag(name: str, cubin: Path) -> None:
    close(name, "f32", cubin, "tf32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", CONVOLVED_IN_HALF)
def test_convolutions_in_half(name: str, dtype: str, cubin: Path) -> None:
    close(name, dtype, cubin, dtype)


def test_products_use_tf32_only_where_the_flag_says_so(cubin: Path) -> None:
    model, args = nn.Linear(512, 256, bias=False), (torch.randn(256, 512),)
    before = torch.backends.cuda.matmul.fp32_precision
    found = {}
    for precision in ("ieee", "tf32"):
        torch.backends.cuda.matmul.fp32_precision = precision
        made = built(model, args, cubin)
        found[precision] = error(model, args, made(bindings(made.graph, model, args)))
    torch.backends.cuda.matmul.fp32_precision = before
    assert found["ieee"] < 1e-5 < found["tf32"] < BOUNDS["tf32"]


def test_binding_again_chooses_the_same(cubin: Path) -> None:
    model, args = case("conv2d, bias, relu")
    made = built(model, args, cubin)
    values = bindings(made.graph, model, args)
    first, second = (made.bind(values)[0].algorithms for _ in range(2))
    assert first == second
    assert all(name.startswith("cudnn ") for name in first.values())


def test_deterministic_algorithms_give_the_same_bits(
    cubin: Path, exact_convolutions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN's fastest engine here adds in another order each time; with PyTorch's setting it is not used."""
    model = nn.ConvTranspose3d(32, 32, (3, 5, 7), 2, (1, 2, 3), groups=4, bias=False)
    args = (torch.rand(8, 32, 12, 24, 48),)
    graph = export(model, *args)
    (alone,) = [one for one in initial(graph, "cuda", H200) if FIRST_FORM in one.forms()]
    for deterministic in (False, True):
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", deterministic)
        made = Built(graph, alone, cubin.parent, cubin)
        bound, pointers, outputs, alive = made.bind(bindings(graph, model, args))
        found = []
        for _ in range(3):
            bound.run(pointers)
            torch.cuda.synchronize()
            found.append(outputs[0].clone())
        assert error(model, args, outputs) < BOUNDS["f32"]
        assert not deterministic or all(torch.equal(found[0], other) for other in found[1:])
        del alive


@pytest.mark.parametrize("name", ["linear, relu", "conv2d, bias, relu", "conv2d, channels last, silu", "transposed 2d"])
def test_on_another_stream_and_inside_a_capture(name: str, cubin: Path, exact_convolutions: None) -> None:
    model, args = case(name)
    made = built(model, args, cubin)
    bound, pointers, outputs, alive = made.bind(bindings(made.graph, model, args))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    bound.run(pointers, stream.cuda_stream)
    stream.synchronize()
    assert error(model, args, outputs) < BOUNDS["f32"]
    for output in outputs:
        output.fill_(float("nan"))
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded, stream=stream):
        bound.run(pointers, stream.cuda_stream)
    recorded.replay()
    torch.cuda.synchronize()
    assert error(model, args, outputs) < BOUNDS["f32"]
    del alive


def test_two_streams_with_different_biases(cubin: Path) -> None:
    """The bias is part of a descriptor that both calls share."""
    model, args = case("linear, relu")
    made = built(model, args, cubin)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].bias.add_(3.0)  # type: ignore[index]
    bound, *one = made.bind(bindings(made.graph, model, args))
    _, *two = made.bind(bindings(made.graph, other, args))
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, (pointers, *_) in zip(streams, (one, two), strict=True):
            bound.run(pointers, stream.cuda_stream)
    torch.cuda.synchronize()
    assert error(model, args, one[1]) < BOUNDS["f32"]
    assert error(other, args, two[1]) < BOUNDS["f32"]


@pytest.mark.parametrize("name", ["linear, relu", "conv2d, bias, relu", "two"])
def test_the_applied_loader_runs_the_same_plan(name: str, cubin: Path) -> None:
    model, args = case(name)
    made = built(model, args, cubin)
    values = bindings(made.graph, model, args)
    device = torch.device("cuda", torch.cuda.current_device())
    outputs = [dict(spec) for spec in made.plan["outputs"]]
    dims = dict.fromkeys(made.graph.dims, args[0].shape[0])
    binaries = Binaries(Parts(str(cubin.parent.parent), cubin.parent.name), "", "cuda", [])
    launch = AppliedLauncher(made.plan, outputs, dims, binaries, device, 16)
    tensors = [values[spec["name"]].to(device) for spec in made.plan["inputs"]]
    assert error(model, args, launch(tensors)) < BOUNDS["tf32"]
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        assert error(model, args, launch(tensors)) < BOUNDS["f32"]
    finally:
        torch.backends.cudnn.allow_tf32 = before


MODULES = """
import torch
from torch import nn

class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512))

    def forward(self, x):
        return self.body(x)

class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(16, 32, 3)
        self.shift = nn.Parameter(torch.randn(32, 1, 1))

    def forward(self, x):
        return torch.relu(self.inner(x)) + self.shift

def get_inputs():
    return [torch.randn(SHAPE)]
"""
SHAPES = {"Dense": "512, 256", "Picture": "16, 16, 64, 64"}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    running = WorkerClient(sys.executable)
    running.start(threading.Event())
    yield running
    running.close()


@pytest.mark.parametrize("name", SHAPES)
def test_a_whole_evaluation(name: str, worker: WorkerClient, tmp_path: Path) -> None:
    path, text = tmp_path / "modules.py", MODULES.replace("SHAPE", SHAPES[name])
    path.write_text(text)
    task = task_of(path, text, name, target="cuda")
    settings: dict[str, Any] = {"sandbox_mode": "auto", "cache_dir": tmp_path / "cache", "cancel": threading.Event()}
    device = cuda.idle_gpu(cuda.gpus())
    with open_environment(task, device=device, worker=worker, emit=lambda event: None, **settings) as environment:
        evaluate(environment)


def evaluate(environment: Environment) -> None:
    graph = environment.graph
    candidate = emit(graph, initial(graph, "cuda", environment.device)[0])
    assert {bool(launch.library) for launch in candidate.plan.launches} == {True, False}
    for tier in Tier:
        (found,) = environment.evaluate([candidate], tier)
        assert found.correct, found.message
        if tier is not Tier.verify:  # which times nothing
            assert 0.0 < found.share_in_our_kernels < 1.0
