"""Six networks of torchvision through `optimize` and `apply`, beside what PyTorch alone can do: docs/networks.md.

    python -m bench.networks --target cuda --budget 20 --out networks.jsonl

For each network a job, an applied file, and then one process that times everything: eager, the modes of torch.compile,
the applied program, and PyTorch's best known by hand (norms folded, channels last, cuDNN's choice by time, the rest by
inductor, all in one CUDA graph). Times are milliseconds of a call: the median of 50, each waited for, and the mean of
50 in a row (`_in_a_row`). Errors are the distance from float64.
"""

from __future__ import annotations

import copy
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from bench.harness import IsolatedProcess, Row, RowFile, measure_cases
from bench.jobs import SessionHost, session_host
from bench.machine import describe
from kernel_assistant.targets.detect import detect

#: Networks and batch sizes of KernelBench's level 3.
NETWORKS = {
    "resnet18": 2,
    "mobilenet_v2": 10,
    "densenet121": 10,
    "efficientnet_b0": 10,
    "vgg16": 10,
    "resnet101": 10,
}
MODES = {"compile": "default", "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}
SOURCE = """import torch
import torchvision
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torchvision.models.NAME(weights=None)
        for module in self.body.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)

    def forward(self, x):
        return self.body(x)


def get_inputs():
    return [torch.randn(BATCH, 3, 224, 224)]
"""
CALLS, WARM = 50, 5
TIMED_SECONDS = 400.0


@click.command()
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cuda")
@click.option("--budget", default=20.0, help="seconds for each network")
@click.option("--only", default="", help="names of networks, with commas")
@click.option("--modes", default="compile,reduce_overhead", help=f"of torch.compile: {', '.join(MODES)}")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(target: str, budget: float, only: str, modes: str, out: Path) -> None:
    """Writes the rows, one as soon as it is there, and prints them."""
    file = RowFile(out.with_suffix(".jsonl"))
    file.describe({"machine": describe(detect(target)), "budget": budget})
    cases = [({"network": name, "batch": NETWORKS[name]}, name) for name in (only.split(",") if only else NETWORKS)]
    row = partial(_row, modes=[mode for mode in modes.split(",") if mode])
    for found in measure_cases(cases, row, file, [session_host(target, budget)]):
        click.echo(found)


def _row(name: str, host: SessionHost, modes: list[str]) -> Row:
    """The job of a network, and the times of its applied program."""
    folder = host.home / name
    folder.mkdir()
    text = SOURCE.replace("NAME", name).replace("BATCH", str(NETWORKS[name]))
    for file in ("original.py", "network.py"):
        (folder / file).write_text(text)
    network = f"{folder / 'network.py'}:Network"
    row = host.job(network)
    applied = host.command("apply", network, "--force", "--json")
    if applied.returncode:
        row["applied"] = " ".join(applied.stderr.split())[-300:]
    with IsolatedProcess(TIMED_SECONDS) as process:
        for part, call in [("times", times), *((mode, partial(time_of_mode, mode)) for mode in modes)]:
            try:
                row[part] = process.call(call, folder, host.target)
            except Exception as error:  # noqa: BLE001 - what else was measured of a network is worth having
                row[part] = f"{type(error).__name__}: {error}"[-500:]
    return row


def times(folder: Path, target: str) -> dict[str, Any]:
    """Times and errors of eager, ours and PyTorch's best by hand, each on the same weights and inputs."""
    model, x = _opened(folder / "original.py", target)
    ours, _ = _opened(folder / "network.py", target)
    exact = copy.deepcopy(model).double()(x.double())
    found: dict[str, Any] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        result = call()
        found.update(_timed(name, call, target))
        found[f"{name}_error"] = float((result.double() - exact).norm() / exact.norm())

    note("eager", lambda: model(x))
    found["eager_mib"] = _peak(lambda: model(x), target)
    note("ours", lambda: ours(x))
    found["ours_mib"] = _peak(lambda: ours(x), target)
    if target == "cuda":
        for name, call in _by_hand(model, x):
            note(name, call)
    package = folder / "network_kernels" / "__init__.py"
    found["calls"] = _loaded(package).counters() if package.is_file() else "not applied"
    return found


def time_of_mode(mode: str, folder: Path, target: str) -> dict[str, float]:
    """The time of a mode of `torch.compile`."""
    model, x = _opened(folder / "original.py", target)
    torch._dynamo.reset()
    compiled = torch.compile(model, mode=MODES[mode])
    for _ in range(3):
        compiled(x)
    return _timed(mode, lambda: compiled(x), target)


def _opened(path: Path, target: str) -> tuple[Any, Any]:
    """The network of a file in evaluation mode, and its input."""
    torch.set_grad_enabled(False)
    module = _loaded(path)
    (x,) = module.get_inputs()
    return module.Network().to(target).eval(), x.to(target)


def _by_hand(model: Any, x: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """`torch.compile` in one CUDA graph, and the same after folding, with channels last and cuDNN's choice by time:
    with ReLUs by inductor and, where there are some behind convolutions, in cuDNN's convolution."""
    from torch.fx.experimental.optimization import fuse

    last = torch.channels_last
    torch._dynamo.reset()
    compiled = torch.compile(model)
    yield "compile_graph", _graphed(lambda: compiled(x))
    folded = fuse(copy.deepcopy(model)).to(memory_format=last)
    torch.backends.cudnn.benchmark = True
    for name, network in (("folded_graph", folded), ("folded_relu_graph", _with_relus(copy.deepcopy(folded)))):
        if network is None:
            continue
        torch._dynamo.reset()
        again = torch.compile(network)
        yield name, _graphed(lambda again=again: again(x.to(memory_format=last)))  # type: ignore[misc]
    torch.backends.cudnn.benchmark = False


class _ConvolutionReLU(nn.Module):
    """cuDNN's convolution with bias and ReLU."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.convolution
        return torch.cudnn_convolution_relu(x, one.weight, one.bias, one.stride, one.padding, one.dilation, one.groups)


def _with_relus(network: Any) -> Any:
    """The traced network with each ReLU that alone reads a convolution in that convolution; None if there is none."""
    modules, changed = dict(network.named_modules()), 0
    for node in list(network.graph.nodes):
        reader = next(iter(node.users)) if len(node.users) == 1 else None
        convolution = modules.get(node.target) if node.op == "call_module" else None
        if reader is None or not isinstance(convolution, nn.Conv2d) or convolution.groups > 1:
            continue
        called = isinstance(modules.get(reader.target), nn.ReLU) if reader.op == "call_module" else None
        if not (called or (reader.op == "call_function" and reader.target in (torch.relu, nn.functional.relu))):
            continue
        changed += 1
        network.add_submodule(f"convolution_relu_{changed}", _ConvolutionReLU(convolution))
        with network.graph.inserting_before(node):
            made = network.graph.call_module(f"convolution_relu_{changed}", node.args)
        reader.replace_all_uses_with(made)
        network.graph.erase_node(reader)
        network.graph.erase_node(node)
    network.recompile()
    return network if changed else None


def _graphed(call: Callable[[], Any]) -> Callable[[], Any]:
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def _milliseconds(call: Callable[[], Any], target: str) -> float:
    """Median of the calls, each waited for; on a GPU by its own events."""
    found = []
    for number in range(WARM + CALLS):
        if target == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            milliseconds = begin.elapsed_time(end)
        else:
            began = time.perf_counter()
            call()
            milliseconds = (time.perf_counter() - began) * 1e3
        if number >= WARM:
            found.append(milliseconds)
    return round(statistics.median(found), 4)


def _timed(name: str, call: Callable[[], Any], target: str) -> dict[str, float]:
    return {name: _milliseconds(call, target), f"{name}_in_a_row": _in_a_row(call, target)}


def _in_a_row(call: Callable[[], Any], target: str) -> float:
    """Mean of the calls, one behind the other: what the host does hides behind the device where it takes less time."""
    for _ in range(WARM):
        call()
    if target == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    if target == "cuda":
        torch.cuda.synchronize()
    return round((time.perf_counter() - began) / CALLS * 1e3, 4)


def _peak(call: Callable[[], Any], target: str) -> float | None:
    """Most MiB that are allocated during a call, parameters included."""
    if target != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return round(torch.cuda.max_memory_allocated() / 2**20, 1)


def _loaded(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
