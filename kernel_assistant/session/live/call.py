"""`kernel_assistant.optimize(module, inputs)`: makes a task from a module instance, submits a job and waits for it.

The constructor arguments of an instance are not known. So the task contains the pickled instance itself and one call,
in the file format of a scan's recording. The kernels get the parameters of the caller's module.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import pickle
import pickletools
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kernel_assistant.apply import is_installed
from kernel_assistant.config import Settings, resolve
from kernel_assistant.errors import HostError, InternalError, UsageError
from kernel_assistant.events import Warned
from kernel_assistant.records import InputSource, KernelTask, Numerics, OptimizeResult, Workload
from kernel_assistant.session.client import Client
from kernel_assistant.session.live.cells import MAIN
from kernel_assistant.session.live.origin import ClassOrigin, check_class, keep, origin_of, torch_of
from kernel_assistant.session.prepare import check_policy, options, resolve_target
from kernel_assistant.session.reporting.event_lines import words
from kernel_assistant.session.reporting.watching import result_of
from kernel_assistant.store import JobKind

#: Set while a worker imports a file for such a task, where a script without a main guard would call `optimize` again.
INSIDE = "KERNEL_ASSISTANT_INSIDE_TASK"

_MARK = f'import os as _ka_os\n_ka_os.environ["{INSIDE}"] = "1"\n'


def optimize_module(
    module: Any,
    inputs: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None,
    flags: Mapping[str, object],
    progress: Callable[[str], object] | None = None,
) -> OptimizeResult:
    """Implements `kernel_assistant.optimize`; its docstring describes parameters and exceptions. `flags` maps names of
    settings to values. Warnings of the job become Python warnings; Ctrl-C cancels the job."""
    _refuse_inside()
    torch = torch_of(module)
    settings, _ = resolve(None, dict(flags))
    check_policy(settings)
    check_class(type(module))
    pickled = _pickled(torch, module)
    origin = origin_of(type(module), torch.nn.Module, settings.state_dir, _of_main(pickled))
    task = _task(torch, settings, module, pickled, origin, (tuple(inputs), dict(kwargs or {})))
    # The caller's interpreter has the torch that made the module, and everything that its file imports.
    chosen = options(settings, settings.python or sys.executable, kind=JobKind.optimize)
    location = "" if origin.session else f"{origin.path}:{origin.name}"
    chosen = msgspec.structs.replace(chosen, source_path=location, free_wins=settings.free_wins)
    client = Client(settings)
    job = str(client.submit(task, chosen)["job"])
    try:
        return _wait(client, job, progress)
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


def _task(
    torch: ModuleType,
    settings: Settings,
    module: Any,
    pickled: bytes,
    origin: ClassOrigin,
    call: tuple[tuple[Any, ...], dict[str, Any]],
) -> KernelTask:
    from kernel_assistant.source.build import import_location

    name, search_path = import_location(origin.path)
    # A library's file is imported by its name and not executed anew: it may register what it defines.
    of_library = is_installed(origin.path)
    return KernelTask(
        path=str(origin.path),
        content=origin.text if origin.session or of_library else _with_mark(origin.text),
        class_name=origin.name,
        source=InputSource.recorded,
        workloads=(Workload(args="recorded(0)[0]", kwargs="recorded(0)[1]" if call[1] else ""),),
        search_path=tuple(dict.fromkeys((*([] if of_library else [search_path]), *_own_folders()))),
        module_name=origin.module if of_library else name,
        target=resolve_target(settings.target),
        numerics=Numerics(settings.numerics),
        training=bool(module.training),
        recording=str(_recording(settings.state_dir / "calls", pickled, _saved(torch, *call), origin)),
        session=origin.session,
        installed=of_library,
    )


def _recording(folder: Path, module: bytes, call: bytes, origin: ClassOrigin) -> Path:
    """Writes the pickled module and call as a folder below `folder` that `worker/user_module/recorded.py` reads, and
    returns its path. The name is a hash of the content, so that the same call makes the same task."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files = {
        "module.pt": module,
        "inputs-0.pt": call,
        "origin.json": json.dumps({"module": origin.module, "main": os.path.abspath(main) if main else ""}).encode(),
    }
    digest = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in files.values())).hexdigest()
    for name, content in files.items():
        keep(folder / digest[:24], name, content)
    return folder / digest[:24]


def _own_folders() -> list[str]:
    """Returns the folders of the caller's import path, without those of the standard library and of installed packages:
    the worker has these too, because it runs the same interpreter."""
    theirs = tuple(f"{prefix}{os.sep}" for prefix in (sys.prefix, sys.base_prefix))
    return [
        entry
        for entry in map(os.path.abspath, sys.path)
        if os.path.isdir(entry) and not entry.startswith(theirs) and "-packages" not in entry
    ]


def _with_mark(text: str) -> str:
    """Returns the text with the lines `_MARK` inserted after the docstring and the `from __future__` lines, which must
    come first. `_MARK` tells the program that it runs in a worker."""
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


def _pickled(torch: ModuleType, module: Any) -> bytes:
    import copy

    buffer = io.BytesIO()
    try:
        # Moved to the CPU, since the worker may have no GPU or another one.
        torch.save(copy.deepcopy(module).cpu(), buffer)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        ran_again = "not the same object as" in str(error)
        next_step = "make the module anew, with the newest classes" if ran_again else "remove what cannot be pickled"
        raise UsageError(f"{type(module).__name__} does not pickle: {error}", next_step) from error
    return buffer.getvalue()


def _of_main(pickled: bytes) -> set[str]:
    """Returns the names of the classes and functions in `__main__` that are needed to unpickle a module."""
    with zipfile.ZipFile(io.BytesIO(pickled)) as archive:
        (data,) = [archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl")]
    named = [str(argument).split(" ") for code, argument, _ in pickletools.genops(data) if code.name == "GLOBAL"]
    return {name.partition(".")[0] for module, name in named if module == MAIN}


def _saved(torch: ModuleType, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Returns `inputs` and `kwargs` as bytes that `torch.save` wrote. Loads them once as a test, with `weights_only` as
    the worker does. Raises UsageError if that fails."""
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


def _wait(client: Client, job: str, progress: Callable[[str], object] | None) -> OptimizeResult:
    import warnings

    for event in client.attach(job):
        if progress is not None and (message := words(event)):
            progress(message)
        if isinstance(event, Warned):
            warnings.warn(event.message, stacklevel=4)
        result = result_of(event)
        if result is not None:
            return result
    raise InternalError(f"job {job} ended without a word", f"kernel-assistant show {job}")
