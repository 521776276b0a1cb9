"""`kernel_assistant.optimize(module, inputs)`: a task from a live module, and waiting for its job.

How a module was constructed cannot be told from the instance, so the task carries the instance itself: its pickle, and
below the text of its own source file a class that returns it. The kernels see the parameters that the caller has.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import HostError, InternalError, StoreError, UsageError
from kernel_assistant.events import JobFailed, JobFinished, Warned
from kernel_assistant.records import InputSource, KernelTask, Numerics, OptimizeResult, Workload
from kernel_assistant.session.client import Client
from kernel_assistant.session.prepare import check_policy, options, resolve_target
from kernel_assistant.session.watching import failure_of
from kernel_assistant.store import JobKind

#: Set while a worker imports a file for such a task: a script without a main guard would call us again from there.
INSIDE = "KERNEL_ASSISTANT_INSIDE_TASK"

_FACTORY = """

# Below: added for kernel_assistant.optimize(); the class returns the instance that was passed to it.
import os as _ka_os
import pickle as _ka_pickle


class _KernelAssistantUnpickler(_ka_pickle.Unpickler):
    def find_class(self, module, name):
        if module not in ({module!r}, "__main__"):
            return super().find_class(module, name)
        found = globals()[name.partition(".")[0]]
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        return found


class {factory}({name}):
    def __new__(cls):
        with open({path!r}, "rb") as file:
            return _KernelAssistantUnpickler(file).load()

    def __init__(self):
        raise TypeError("the instance is built already")
"""
_MARK = f'import os as _ka_os\n_ka_os.environ["{INSIDE}"] = "1"\n'


@dataclass(frozen=True)
class _Origin:
    """Where the class was written. `module` is the name that the pickle uses for it."""

    path: Path
    text: str
    module: str
    name: str


def optimize_module(
    module: Any,
    inputs: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None,
    target: str,
    budget: float,
    numerics: str,
) -> OptimizeResult:
    """See `kernel_assistant.optimize`. Warnings of the job become Python warnings; Ctrl-C cancels the job."""
    _refuse_inside()
    torch = _torch_of(module)
    flags: dict[str, object] = {"target": target, "budget": budget, "numerics": numerics}
    settings, _ = resolve(None, flags)
    check_policy(settings)
    origin = _origin_of(type(module))
    task = _task(torch, settings, module, origin, tuple(inputs), dict(kwargs or {}))
    # The caller's interpreter has the torch that made the module, and what its file imports.
    chosen = options(settings, settings.python or sys.executable, kind=JobKind.optimize)
    chosen = msgspec.structs.replace(chosen, source_path=f"{origin.path}:{origin.name}")
    client = Client(settings)
    job = str(client.submit(task, chosen)["job"])
    try:
        return _wait(client, job)
    except KeyboardInterrupt:
        with contextlib.suppress(TimeoutError, HostError):
            client.cancel(job, timeout=1.0)
        raise


def _refuse_inside() -> None:
    if os.environ.get(INSIDE):
        raise UsageError(
            "kernel_assistant.optimize() is called while the module's own file is imported",
            'put the call behind `if __name__ == "__main__":`',
        )


def _torch_of(module: Any) -> ModuleType:
    """The caller's torch: whoever has a module has imported it, and we never do."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise UsageError(f"{type(module).__name__} is not a torch.nn.Module", "pass an instance of a module class")
    return torch


def _origin_of(cls: type) -> _Origin:
    next_step = "write the class at the top level of a .py file and import it from there"
    if "<locals>" in cls.__qualname__ or "." in cls.__qualname__:
        raise UsageError(f"{cls.__qualname__} is not at the top level of its file", next_step)
    try:
        file = inspect.getsourcefile(cls)
        text = Path(file or "").read_text(encoding="utf-8-sig")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise UsageError(f"{cls.__qualname__} has no source file: {error}", next_step) from error
    if not any(isinstance(node, ast.ClassDef) and node.name == cls.__name__ for node in ast.walk(ast.parse(text))):
        raise UsageError(f"{cls.__qualname__} has no source in {file}", next_step)
    if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not cls:
        raise UsageError(f"{cls.__module__}.{cls.__name__} is not the class of this instance any more", next_step)
    return _Origin(Path(str(file)).absolute(), text, cls.__module__, cls.__name__)


def _task(
    torch: ModuleType,
    settings: Settings,
    module: Any,
    origin: _Origin,
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> KernelTask:
    from kernel_assistant.source.build import import_location

    target = resolve_target(settings.target)
    folder = settings.state_dir / "calls"
    instance = _keep(folder, ".pickle", _pickled(module))
    values = _keep(folder, ".pt", _saved(torch, inputs, kwargs))
    load = f"torch.load({str(values)!r}, map_location={target!r}, weights_only=True)"
    factory = f"{origin.name}AsPassed"
    name, search_path = import_location(origin.path)
    tail = _FACTORY.format(module=origin.module, name=origin.name, factory=factory, path=str(instance))
    return KernelTask(
        path=str(origin.path),
        content=_with_mark(origin.text) + tail,
        class_name=factory,
        source=InputSource.files,
        workloads=(Workload(args=f"{load}[0]", kwargs=f"{load}[1]" if kwargs else ""),),
        search_path=tuple(dict.fromkeys((search_path, *_own_folders()))),
        module_name=name,
        target=target,
        numerics=Numerics(settings.numerics),
        training=bool(module.training),
    )


def _own_folders() -> list[str]:
    """The caller's import path without the interpreter's own folders and what is installed, which the worker has."""
    theirs = tuple(f"{prefix}{os.sep}" for prefix in (sys.prefix, sys.base_prefix))
    return [
        entry
        for entry in map(os.path.abspath, sys.path)
        if os.path.isdir(entry) and not entry.startswith(theirs) and "-packages" not in entry
    ]


def _with_mark(text: str) -> str:
    """The text with the mark behind its docstring and its `from __future__` lines, which must stay first."""
    line = 0
    for node in ast.parse(text).body:
        documented = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (documented or future):
            break
        line = node.end_lineno or line
    lines = text.splitlines(keepends=True)
    head = "".join(lines[:line])
    return head + ("" if not head or head.endswith("\n") else "\n") + _MARK + "".join(lines[line:])


def _pickled(module: Any) -> bytes:
    import copy

    try:
        # On the CPU: the worker may have no GPU, or another one.
        return pickle.dumps(copy.deepcopy(module).cpu())
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"{type(module).__name__} does not pickle: {error}", "remove what cannot be pickled"
        ) from error


def _saved(torch: ModuleType, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Both in `torch.save` form, read back once as the worker will: with weights only."""
    import io

    buffer = io.BytesIO()
    try:
        torch.save((inputs, kwargs), buffer)
        torch.load(io.BytesIO(buffer.getvalue()), map_location="cpu", weights_only=True)
    except (pickle.PickleError, RuntimeError, TypeError, AttributeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(
            f"the inputs cannot be saved: {first}", "pass tensors, numbers, strings, and tuples, lists or dicts of them"
        ) from error
    return buffer.getvalue()


def _keep(folder: Path, suffix: str, content: bytes) -> Path:
    """A file named by its content: the same call again is the same task."""
    path = folder / (hashlib.sha256(content).hexdigest()[:24] + suffix)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            draft.write_bytes(content)
            draft.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", f"free disk space below {folder}") from error
    return path


def _wait(client: Client, job: str) -> OptimizeResult:
    import warnings

    for event in client.attach(job):
        match event:
            case Warned():
                warnings.warn(event.message, stacklevel=4)
            case JobFinished():
                return event.result
            case JobFailed():
                raise failure_of(event)
    raise InternalError(f"job {job} ended without a word", f"kernel-assistant show {job}")
