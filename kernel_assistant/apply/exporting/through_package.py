"""Writes a file with `ModelNew` in KernelBench's form for plans that C++ alone cannot express: a package beside the
file runs the plan.

KernelBench executes the text without `__file__`, so the text also contains the path of its folder.
"""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.apply.edit import find_class
from kernel_assistant.apply.exporting.model_new import kernel_files, with_kernels
from kernel_assistant.apply.package import package_name
from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.apply.text import indent_of, parse, split_lines
from kernel_assistant.errors import UsageError

MODEL_NEW = "model_new.py"
_LOADED = "_verified_kernels"

_HEAD = """\
# Written by kernel-assistant for {class_name}: the folder {package} has its kernels and what runs them.
def {loaded}(name):
    import os
    import runpy

    places = [__file__[:-3] + "_kernels"] if "__file__" in globals() else []
    places.append({folder!r})
    found = [place for place in places if os.path.isfile(os.path.join(place, "load.py"))]
    if not found:
        raise FileNotFoundError(f"no kernels in {{places[-1]}}: put the folder back, or export them again")
    return runpy.run_path(os.path.join(found[0], "load.py"))["kernels_only"](name, as_verified=True)

"""


def package_text(result: VerifiedResult, folder: Path) -> str:
    """Returns the reference's file with the class as `ModelNew`, whose forward runs the kernels of the package in
    `folder`, or raises RuntimeError if they were not verified for the call."""
    text, class_name = result.task.content, result.task.class_name
    if _LOADED in text:
        raise UsageError(f"the reference uses the name {_LOADED} itself", f"rename {_LOADED} in the file")
    node = find_class(parse(text, "the reference"), class_name, "the reference")
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    indent = indent_of(split_lines(text)[node.lineno - 1])
    package = package_name(Path(MODEL_NEW).stem)
    head = _HEAD.format(class_name=class_name, package=package, loaded=_LOADED, folder=str(folder.absolute() / package))
    lines = "\n".join(indent + line if line else "" for line in head.split("\n"))
    return with_kernels(text, class_name, f'@{_LOADED}("{class_name}")', first, lines)


def package_files(result: VerifiedResult) -> dict[str, bytes]:
    """Returns path → content of the package of kernels; the paths are relative to the folder of `model_new.py`."""
    package = package_name(Path(MODEL_NEW).stem)
    return {f"{package}/{name}": data for name, data in kernel_files(result).items()}
