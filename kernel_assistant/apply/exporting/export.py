"""Exports a result as files that work without this tool: a KernelBench file, a CUDA-Agent workdir, or a Python
package."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kernel_assistant.apply.apply import apply_result
from kernel_assistant.apply.exporting.model_new import renamed
from kernel_assistant.apply.exporting.native import (
    NotSelfContained,
    binding_text,
    check_exportable,
    declaration,
    kernel_text,
    launcher_text,
    uses_clusters,
)
from kernel_assistant.apply.exporting.single_file import model_new, name_of
from kernel_assistant.apply.exporting.through_package import MODEL_NEW, package_files, package_text
from kernel_assistant.apply.files import write_atomically
from kernel_assistant.apply.provenance import AppliedOptions
from kernel_assistant.apply.result import VerifiedResult, read_result
from kernel_assistant.environment.freeform_text import INPUTS, REFERENCE, reference_part
from kernel_assistant.environment.screens.screen_python import screen_python
from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource
from kernel_assistant.targets import cpu

KINDS = ("kernelbench", "cuda-agent", "package")

#: torch's build of extensions disables operators that half-precision kernels use; these flags enable them.
_NVCC_FLAGS = [
    "-O3",
    *(f"-U__CUDA_NO_{what}__" for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS")),
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
]
_CPU_FLAGS = [flag for flag in cpu.FLAGS if flag not in ("-Wall", "-fPIC", "-std=c++17")]


@dataclass(frozen=True)
class ExportResult:
    """The files written, first the one to use. `warnings` are reasons why the benchmark for which the files are made
    may reject them."""

    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def export(
    result_dir: Path | str,
    kind: str,
    folder: Path,
    *,
    options: AppliedOptions | None = None,
    text: str | None = None,
    inline: bool = True,
) -> ExportResult:
    """Writes the result to `folder`, which must be empty or new, in one of the forms KINDS: "kernelbench", "cuda-agent"
    or "package". Raises UsageError.

    `text` is the text of the class's own file; it is needed if the task's content has more than that (a task made by
    `kernel_assistant.optimize`). A KernelBench file contains its kernels if `inline` is True and that is possible;
    otherwise they are in a package beside the file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not empty", "name a new folder")
    result = read_result(Path(result_dir))
    if text is not None:
        result = replace(result, task=msgspec.structs.replace(result.task, content=text))
    writers: dict[str, Callable[[], ExportResult]] = {
        "kernelbench": lambda: _kernelbench(result, folder, inline),
        "cuda-agent": lambda: _cuda_agent(result, folder),
        "package": lambda: _package(result, Path(result_dir), folder, options or AppliedOptions()),
    }
    return writers[kind]()


def _kernelbench(result: VerifiedResult, folder: Path, inline: bool) -> ExportResult:
    package = dict[str, bytes]()
    try:
        if not inline:
            raise NotSelfContained("a package beside the file is asked for")
        text = kernelbench_text(result)
    except NotSelfContained:
        text, package = package_text(result, folder), package_files(result)
    problems = [f"line {one.line}: {one.message}" for one in screen_python(text)]
    files = _write(folder, _with_reference(result, {MODEL_NEW: text}))
    for name, data in package.items():
        write_atomically(folder / name, data)
    return ExportResult((*files, *(folder / name for name in package)), tuple(problems))


def kernelbench_text(result: VerifiedResult) -> str:
    """Returns one file with `ModelNew` and the sources of its kernels, which are built when the file is imported.
    Raises NotSelfContained if one file is not enough, for example for a plan that calls cuBLASLt."""
    check_exportable(result)
    name = name_of(result.task.class_name)
    launcher = launcher_text(result.plan, name, clusters=uses_clusters(result.candidate))
    parts = [kernel_text(result.candidate), launcher, binding_text(result, name)]
    if result.plan.target == "cuda":
        headers = ["torch/types.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "cuda_runtime.h", "vector"]
        arguments = f"cpp_sources=_DECLARATION,\n    cuda_sources=_SOURCE,\n    extra_cuda_cflags={_NVCC_FLAGS!r},"
        extra = f"_DECLARATION = {_literal(_signature(parts[2]) + chr(10))}\n\n"
    else:
        headers = ["torch/extension.h", "vector"]
        arguments = f"cpp_sources=_SOURCE,\n    extra_cflags={_CPU_FLAGS!r},\n    extra_ldflags=['-fopenmp'],"
        extra = ""
    source = "\n".join([*(f"#include <{header}>" for header in headers), *parts])
    prelude = (
        "from torch.utils.cpp_extension import load_inline\n\n"
        f"# Written by kernel-assistant for {result.task.class_name}; schedule: {_comment(result.plan.schedule)}\n"
        f"_SOURCE = {_literal(source)}\n\n{extra}"
        f"_kernels = load_inline(\n    name={name!r},\n    {arguments}\n    functions=['{name}_forward'],\n)\n"
    )
    return model_new(result, f"_kernels.{name}_forward", prelude)


def _cuda_agent(result: VerifiedResult, folder: Path) -> ExportResult:
    if result.plan.target != "cuda":
        raise UsageError("a CUDA-Agent workdir holds CUDA kernels, these are for the CPU", "use --to kernelbench")
    check_exportable(result)
    name = name_of(result.task.class_name)
    headers = ["torch/extension.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "vector"]
    binding = [
        *(f"#include <{header}>" for header in headers),
        '#include "../binding_registry.h"',
        f"{declaration(name, 'cuda')};",
        f"static {binding_text(result, name)}",
        f"static void register_{name}(pybind11::module& m) {{",
        f'  m.def("{name}_forward", &{name}_forward);',
        "}",
        f"REGISTER_BINDING({name}, register_{name})",
    ]
    launcher = launcher_text(result.plan, name, clusters=uses_clusters(result.candidate))
    text = model_new(result, f"cuda_extension.{name}_forward", "import cuda_extension\n")
    files = {
        "model_new.py": text,
        f"kernels/{name}.cu": f"#include <cuda_runtime.h>\n{kernel_text(result.candidate)}{launcher}",
        f"kernels/{name}_binding.cpp": "\n".join(binding) + "\n",
        "binding.cpp": _BINDING,
        "binding_registry.h": _REGISTRY,
    }
    problems = [f"line {one.line}: {one.message}" for one in screen_python(text)]
    return ExportResult(_write(folder, _with_reference(result, files)), tuple(problems))


def _package(result: VerifiedResult, result_dir: Path, folder: Path, options: AppliedOptions) -> ExportResult:
    """Writes a package that pip can install: the user's file with the kernels applied, and the kernels beside it."""
    class_name, stem = result.task.class_name, Path(result.task.path).stem
    _check_alone(result)
    name = re.sub(r"\W", "_", f"{class_name}_kernels").lower()
    source = folder / name / f"{stem}.py"
    project = _PYPROJECT.format(project=name.replace("_", "-"), name=name, class_name=class_name)
    files = _write(
        folder,
        {
            f"{name}/{stem}.py": result.task.content,
            f"{name}/__init__.py": _INIT.format(stem=stem, class_name=class_name),
            "pyproject.toml": project,
        },
    )
    applied = apply_result(result_dir, source, options=options)
    return ExportResult((folder / name, *files[1:], *(applied.package / path for path in applied.files)))


def _check_alone(result: VerifiedResult) -> None:
    """Raises UsageError unless the class's file can be imported alone, because only this file is exported."""
    for node in ast.walk(ast.parse(result.task.content)):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise UsageError(
                f"the file imports from its own package (line {node.lineno})", "apply it where it is instead"
            )
    stem = Path(result.task.path).stem
    if not stem.isidentifier():
        raise UsageError(f"{stem} is not a name that Python can import", "rename the file")


def _with_reference(result: VerifiedResult, files: dict[str, str]) -> dict[str, str]:
    """Returns `files` and `model.py`, the reference in KernelBench's form: the class as `Model`, and functions for its
    inputs.

    The reference is left out if KernelBench's two functions cannot produce the inputs (recorded inputs, a call with
    keyword arguments).
    """
    task = result.task
    text = renamed(task.content, task.class_name, REFERENCE)
    part = reference_part(text, ast.parse(text))
    names = [node.name for node in ast.parse(part).body if isinstance(node, ast.FunctionDef)]
    workload = task.workloads[0]
    if task.source in (InputSource.files, InputSource.recorded) or task.init_kwargs or workload.kwargs:
        return files
    # A declaration beats the functions, as it does when the task is built.
    given = {INPUTS[0]: workload.args, INPUTS[1]: task.init if task.source is not InputSource.get_inputs else ""}
    for name, expression in given.items():
        if expression or name not in names:
            part += f"\n\ndef {name}():\n    return {f'list({expression})' if expression else '[]'}\n"
    return {**files, "model.py": re.sub(r"\n{4,}", "\n\n\n", part).lstrip("\n")}


def _write(folder: Path, files: dict[str, str]) -> tuple[Path, ...]:
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return tuple(folder / name for name in files)


def _literal(text: str) -> str:
    """Returns `text` as a raw string literal over several lines. Raises NotSelfContained if `text` contains three
    quotation marks in a row."""
    if '"""' in text:
        raise NotSelfContained("the kernels hold three quotation marks in a row")
    return f'r"""\n{text}"""'


def _signature(binding: str) -> str:
    return binding.partition(" {")[0] + ";"


def _comment(text: str) -> str:
    return " ".join(text.split()) or "unnamed"


_REGISTRY = """#pragma once
#include <pybind11/pybind11.h>

#include <functional>
#include <vector>

using Registration = std::function<void(pybind11::module&)>;

inline std::vector<Registration>& registrations() {
  static std::vector<Registration> all;
  return all;
}

struct Registrar {
  explicit Registrar(Registration one) { registrations().push_back(std::move(one)); }
};

#define REGISTER_BINDING(name, function) static const Registrar registrar_##name{function};
"""

_BINDING = """#include <torch/extension.h>

#include "binding_registry.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  for (const auto& one : registrations()) one(m);
}
"""

_PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{project}"
version = "0.1.0"
description = "{class_name} with verified kernels; runs the original where they were not verified"
requires-python = ">=3.10"
dependencies = ["torch>=2.9"]

[tool.setuptools]
packages = ["{name}"]

[tool.setuptools.package-data]
{name} = ["**/*"]
"""

_INIT = '''"""{class_name} with its kernels; `kernels.counters()` says how often they ran."""

from . import {stem}_kernels as kernels
from .{stem} import {class_name}

__all__ = ["{class_name}", "kernels"]
'''
