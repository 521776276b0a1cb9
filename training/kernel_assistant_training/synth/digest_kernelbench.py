"""`python -m kernel_assistant_training.synth.digest_kernelbench FOLDER`: writes `kernelbench.json` anew.

FOLDER is a checkout of KernelBench's problems (it contains level1, level2, level3). The worker's exporter traces every
problem on the meta device, so that nothing is computed or allocated; the file has only digests of the graphs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from kernel_assistant.records import OpGraph
from kernel_assistant.records.codec import from_builtins
from kernel_assistant_training.synth.digests import FILE, write

#: Modules that compute something else in eval mode.
_MODAL = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
LEVELS = ("level1", "level2", "level3")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--seconds", type=int, default=30, show_default=True, help="Longest that one problem is traced.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=FILE, show_default=True)
def main(folder: Path, seconds: int, out: Path) -> None:
    """Write the digests of the problems in FOLDER."""
    files = [file for level in LEVELS for file in sorted((folder / level).glob("*.py"))]
    graphs, missed = [], 0
    for file in files:
        try:
            with _at_most(seconds):
                graphs += list(traces(file.read_text(encoding="utf-8"), str(file)))
        except (Exception, _Late) as error:  # noqa: BLE001 - whatever a problem does when it is traced, it is counted
            missed += 1
            click.echo(
                f"{file.parent.name}/{file.stem.partition('_')[0]}: {type(error).__name__}: {_line(error)}", err=True
            )
    out.write_text(write(graphs, {"problems": len(files), "traced": len(files) - missed}), encoding="utf-8")
    click.echo(f"{len(files) - missed} of {len(files)} problems traced, {len(graphs)} graphs")


class _Late(BaseException):
    """Raised if tracing takes too long. A BaseException, because the exporter catches every Exception and tries
    again."""


def traces(text: str, name: str) -> Iterator[OpGraph]:
    """Yields the graph of the problem in train mode, and also its graph in eval mode if the two may differ. `text` is
    the problem's source, `name` the name of its file."""
    graph, changes = trace_source(text, name, training=True)
    yield graph
    if changes:
        yield trace_source(text, name, training=False)[0]


def trace_source(text: str, name: str, training: bool) -> tuple[OpGraph, bool]:
    """Returns the graph of the module in a source, in train or eval mode, and whether the model has modules whose mode
    matters. Values are on the meta device, where nothing is computed, or on the CPU if tracing asks for them. `name` is
    the file's name for messages. Raises what PyTorch and the source raise."""
    try:
        return _traced_on("meta", text, name, training)
    except RuntimeError as error:
        if "meta tensor" not in str(error):
            raise
        return _traced_on("cpu", text, name, training)


def _traced_on(device: str, text: str, name: str, training: bool) -> tuple[OpGraph, bool]:
    names: dict[str, Any] = {"__name__": "problem"}
    with torch.device(device):
        exec(compile(text, name, "exec"), names)
        model = names["Model"](*names["get_init_inputs"]()).train(training).requires_grad_(False)
        graph = from_builtins(exporter()(model, tuple(names["get_inputs"]()), {}), OpGraph)
    return graph, any(isinstance(part, _MODAL) for part in model.modules())


def exporter() -> Any:
    """Returns the worker's function `export_graph`, imported in the same way as in the worker."""
    name = "kernel_assistant_worker"
    if name not in sys.modules:
        import kernel_assistant

        folder = Path(kernel_assistant.__file__).parent / "worker"
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{name}.graph.export").export_graph


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """A context manager that raises _Late in this thread after `seconds`. It is needed because tracing a loop over
    hundreds of time steps takes long."""

    def late(number: int, frame: object) -> None:
        raise _Late(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _line(error: BaseException) -> str:
    with contextlib.suppress(IndexError):
        return str(error).strip().splitlines()[0][:160]
    return ""


if __name__ == "__main__":
    main()
