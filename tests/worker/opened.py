"""Small modules from their text, opened and profiled as the worker does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

from kernel_assistant.records.codec import to_builtins
from kernel_assistant.source import build_task
from kernel_assistant.worker.measuring.profiling import Profiler
from kernel_assistant.worker.measuring.roofline import Roofline
from kernel_assistant.worker.opening.open_task import OpenTask, open_task
from kernel_assistant.worker.verifying.cases import Case
from kernel_assistant.worker.verifying.verification import ExpectedOutputs, expect

#: A roofline that calls nothing too fast.
UNKNOWN = Roofline(cache_bytes=1 << 20)


def module_text(forward: str, inputs: str, init: str = "pass", arguments: str = "x", name: str = "Model") -> str:
    """A file with a class: the statements of its `forward`, its declared inputs, the statements of its `__init__`."""
    return f"""import torch
from torch import nn
from torch.nn import functional as F


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
{indent(init, " " * 8)}

    def forward(self, {arguments}):
{indent(forward, " " * 8)}


def get_inputs():
    return [{inputs}]
"""


def open_file(spec: object, target: str = "cpu", numerics: str = "kernelbench", **changes: Any) -> OpenTask:
    """The open task of a path, or of a path and a class; `changes` replace fields of the task."""
    task = build_task(str(spec), target=target, numerics=numerics)
    return open_task({**to_builtins(task), **changes}, "cuda:0" if target == "cuda" else target)


def open_text(folder: Path, text: str, **settings: Any) -> OpenTask:
    """The open task of a file with this text; `settings` are those of `open_file`."""
    path = folder / "model.py"
    path.write_text(text)
    return open_file(path, **settings)


def commented(path: Path, class_name: str, args: str) -> dict[str, Any]:
    """The task of a class of a file whose inputs a comment declares, as the worker gets it."""
    workloads = [{"name": "default", "args": args, "kwargs": ""}]
    file = {"path": str(path), "search_path": [str(path.parent)], "module_name": path.stem}
    built = {"class_name": class_name, "source": "comment", "workloads": workloads, "init": "", "init_kwargs": ""}
    judged = {"target": "cpu", "numerics": "kernelbench", "training": False, "seed": 42}
    return {**file, "content": path.read_text(), **built, **judged}


def declared(task: OpenTask) -> ExpectedOutputs:
    """The expected outputs for the declared inputs."""
    expected = expect(task, Case(0, "declared", None, 1))
    assert expected is not None
    return expected


@contextmanager
def profiling(task: OpenTask, roofline: Roofline = UNKNOWN, target: str = "cpu", **settings: Any) -> Iterator[Profiler]:
    """A profiler for the declared inputs of a task."""
    made = Profiler(task, declared(task), roofline, target, **settings)
    try:
        yield made
    finally:
        made.close()
