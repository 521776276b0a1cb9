"""Six networks of torchvision through `optimize` and `apply`, beside what PyTorch alone can do: docs/networks.md. Or
files with a class `Model` and `get_inputs`, such as those of bench/language_models.

    python -m bench.networks --target cuda --budget 60 --out networks.jsonl
    python -m bench.networks --budget 150 --out language.jsonl bench/language_models/level1/*.py

For each network a job and an applied file. Then one process times eager, the applied program and PyTorch's best known
by hand (norms folded, channels last, cuDNN's choice by time, the rest by inductor, all in one CUDA graph); each mode of
torch.compile and the memory of each program are measured in a process of their own. Times are milliseconds of a call:
the median of 50, each waited for, and the mean of 50 in a row (`_in_a_row`). Errors are the distance from float64.
"""

from __future__ import annotations

import copy
import importlib.util
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from bench.harness import IsolatedProcess, Row, RowFile, measure_cases
from bench.jobs import SessionHost, session_host
from bench.machine import describe
from kernel_assistant.environment.device_locks import lock_of
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


@dataclass(frozen=True)
class Network:
    """A file's text and its class. PyTorch's best by hand is known for convolutional networks only."""

    name: str
    text: str
    cls: str
    by_hand: bool = False

    @classmethod
    def of_torchvision(cls, name: str) -> Network:
        text = SOURCE.replace("NAME", name).replace("BATCH", str(NETWORKS[name]))
        return cls(name, text, "Network", by_hand=True)

    def opened(self, folder: Path, file: str, target: str) -> tuple[Any, list[Any]]:
        """The network of a file in evaluation mode, and its inputs."""
        torch.set_grad_enabled(False)
        module = _loaded(folder / file)
        torch.manual_seed(1)
        inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: one.to(target), module.get_inputs())
        return getattr(module, self.cls)().to(target).eval(), inputs


ORIGINAL, EDITED = "original.py", "network.py"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cuda")
@click.option("--budget", default=60.0, help="seconds for each network")
@click.option("--only", default="", help="names of networks, with commas")
@click.option("--modes", default="compile,reduce_overhead", help=f"of torch.compile: {', '.join(MODES)}")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="folder of jobs and edited files, kept")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(
    files: tuple[Path, ...], target: str, budget: float, only: str, modes: str, home: Path | None, out: Path
) -> None:
    """Writes the rows, one as soon as it is there, and prints them."""
    file = RowFile(out.with_suffix(".jsonl"))
    file.describe({"machine": describe(detect(target)), "budget": budget})
    networks = [Network(one.stem, one.read_text(), "Model") for one in files]
    networks = networks or [Network.of_torchvision(name) for name in (only.split(",") if only else NETWORKS)]
    cases = [({"network": one.name}, one) for one in networks]
    row = partial(_row, modes=[mode for mode in modes.split(",") if mode])
    for found in measure_cases(cases, row, file, [session_host(target, budget, home)]):
        click.echo(found)


def _row(network: Network, host: SessionHost, modes: list[str]) -> Row:
    """The job of a network, and the times of its applied program."""
    folder = host.home / network.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in (ORIGINAL, EDITED):
        (folder / file).write_text(network.text)
    source = f"{folder / EDITED}:{network.cls}"
    row = host.job(source)
    applied = host.command("apply", str(row.get("job") or source), "--force", "--json")
    if applied.returncode:
        row["applied"] = " ".join(applied.stderr.split())[-300:]
    parts: dict[str, Callable[[Network, Path, str], Any]] = {
        "times": times,
        **{mode: partial(time_of_mode, mode) for mode in modes},
        "eager_mib": partial(peak, ORIGINAL),
        "ours_mib": partial(peak, EDITED),
    }
    for part, measure in parts.items():
        with IsolatedProcess(TIMED_SECONDS) as process:
            try:
                row[part] = process.call(measure, network, folder, host.target)
            except Exception as error:  # noqa: BLE001 - what else was measured of a network is worth having
                row[part] = f"{type(error).__name__}: {error}"[-500:]
        click.echo(f"{network.name}, {part}: {row[part]}")
    return row


def times(network: Network, folder: Path, target: str) -> dict[str, Any]:
    """Times and errors of eager, ours and PyTorch's best by hand, each on the same weights and inputs."""
    model, inputs = network.opened(folder, ORIGINAL, target)
    ours, _ = network.opened(folder, EDITED, target)
    ours.load_state_dict(model.state_dict())
    exact = _first(copy.deepcopy(model).double()(*_in_double(inputs)))
    found: dict[str, Any] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        result = _first(call())
        found.update(_timed(name, call, target))
        found[f"{name}_error"] = float((result.double() - exact).norm() / exact.norm())

    note("eager", lambda: model(*inputs))
    note("ours", lambda: ours(*inputs))
    package = folder / "network_kernels" / "__init__.py"
    found["calls"] = _loaded(package).counters() if package.is_file() else "not applied"
    if target == "cuda" and network.by_hand:
        for name, call in _by_hand(model, *inputs):
            note(name, call)
    return found


def time_of_mode(mode: str, network: Network, folder: Path, target: str) -> dict[str, float]:
    """The time of a mode of `torch.compile`."""
    model, inputs = network.opened(folder, ORIGINAL, target)
    compiled = torch.compile(model, mode=MODES[mode])
    for _ in range(3):
        compiled(*inputs)
    return _timed(mode, lambda: compiled(*inputs), target)


def peak(file: str, network: Network, folder: Path, target: str) -> float | None:
    """Most MiB that PyTorch has allocated during calls of a program, parameters and inputs included."""
    model, inputs = network.opened(folder, file, target)
    if target != "cuda":
        return None
    for _ in range(WARM):
        model(*inputs)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    model(*inputs)
    torch.cuda.synchronize()
    return round(torch.cuda.max_memory_allocated() / 2**20, 1)


def _first(results: Any) -> Any:
    """The first tensor of a result."""
    return torch.utils._pytree.tree_leaves(results)[0]


def _in_double(inputs: list[Any]) -> Any:
    return torch.utils._pytree.tree_map(
        lambda one: one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one, inputs
    )


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
    with lock_of(detect(target)).exclusive():
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
