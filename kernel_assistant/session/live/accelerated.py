"""`kernel_assistant.accelerated(module, result)`: uses the kernels of a job in the caller's process; edits no file.

The class does not change. A copy of the module gets a derived class. Its `forward` checks the call (the guard) and then
runs the kernels; a call that the guard refuses runs the original code.
"""

from __future__ import annotations

import ast
import copy
import runpy
import types
from pathlib import Path
from typing import Any

from kernel_assistant.apply import AppliedOptions, apply_result
from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.apply.package import MANIFEST, package_name
from kernel_assistant.config import resolve
from kernel_assistant.errors import InternalError, UsageError
from kernel_assistant.records import KernelTask, OptimizeResult
from kernel_assistant.session.artifacts import read_task
from kernel_assistant.session.kinds.applied_timing import APPLIED_FILE, read_applied
from kernel_assistant.session.kinds.outcome import doubt_of
from kernel_assistant.session.live.origin import check_class, keep, origin_of, torch_of
from kernel_assistant.source.same_code import changed_members, codes_in


def accelerated_copy(module: Any, result: OptimizeResult, *, force: bool) -> Any:
    """Implements `kernel_assistant.accelerated`; its docstring describes parameters and exceptions."""
    torch = torch_of(module)
    folder, task = _kept(result)
    if (doubt := doubt_of(result)) and not force:
        raise UsageError(f"{task.class_name}: {doubt}", "add force=True to run its best candidate all the same")
    cls = next((type(one) for one in module.modules() if type(one).__name__ == task.class_name), None)
    if cls is None:
        raise UsageError(f"{type(module).__name__} holds no {task.class_name}", "pass a module that does")
    _check_unchanged(cls, task, torch.nn.Module)
    derived = _derived(cls, *_package(folder, task))
    made = copy.deepcopy(module)
    for one in made.modules():
        if type(one) is cls:
            one.__class__ = derived
    return made


def _kept(result: OptimizeResult) -> tuple[Path, KernelTask]:
    """Returns the folder with the artifacts of `result`, and its task. Raises UsageError if there is no candidate."""
    plan = result.artifacts.get("plan.json", "")
    task = read_task(Path(plan).parent) if plan else None
    if task is None:
        why = f": {result.why}" if result.why else ""
        raise UsageError(f"{result.task} has no candidate to run{why}", "kernel-assistant show last")
    return Path(plan).parent, task


def _check_unchanged(cls: type, task: KernelTask, module_class: type) -> None:
    """Raises UsageError if the text of the class has changed since the job or, for a class in a file, if the imported
    class differs from the file."""
    check_class(cls)
    origin = origin_of(cls, module_class, resolve(None, {})[0].state_dir)
    if not is_same_class(origin.text, task.content, cls.__name__):
        raise UsageError(f"{cls.__name__} has changed since the job", "optimize it again")
    nodes = [
        one for one in ast.walk(ast.parse(origin.text)) if isinstance(one, ast.ClassDef) and one.name == cls.__name__
    ]
    if not origin.session and (changed := changed_members(cls, nodes[0], codes_in(origin.text))):
        raise UsageError(
            f"{cls.__name__}.{changed[0]} is not the one of {origin.path} any more",
            "import the file anew, in a fresh process, and make the module again",
        )


def _package(folder: Path, task: KernelTask) -> tuple[Path, Path]:
    """Returns the paths of a copy of the class's file, as it was in the job, and of the package with its kernels. If
    missing, both are written, to the folder `in_session` beside the job's result."""
    folder_of_copy = folder.parent / "in_session"
    source = folder_of_copy / Path(task.path).name
    package = folder_of_copy / package_name(source.stem)
    if not (package / MANIFEST).is_file():
        keep(folder_of_copy, source.name, task.content.encode())
        timing = read_applied(folder / APPLIED_FILE)
        apply_result(folder, source, options=timing.options if timing else AppliedOptions())
    return source, package


def _derived(cls: Any, source: Path, package: Path) -> type:
    name = cls.__name__
    loaded = runpy.run_path(str(package / "load.py"))
    own = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    own |= {"forward": cls.forward, "kernel_counters": staticmethod(loaded["counters"])}
    derived = types.new_class(name, (cls,), exec_body=lambda names: names.update(own))
    loaded["accelerated"](name, str(source))(derived)
    state = loaded["counters"]().get(name, {"unused": "its package cannot be loaded"})
    if "unused" in state:
        raise InternalError(f"the kernels of {name} cannot be used here: {state['unused']}", "optimize it again")
    return derived
