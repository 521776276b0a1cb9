"""Exports a result as a file with `ModelNew`, in KernelBench's form: `__init__` is kept, `forward` replaced."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from kernel_assistant.apply.apply import tool_version
from kernel_assistant.apply.edit import ALIAS, IMPORT_LINE, find_class, plan_edit
from kernel_assistant.apply.files import write_atomically
from kernel_assistant.apply.package import Files, class_files, package_name, packed, runtime_files
from kernel_assistant.apply.provenance import AppliedOptions
from kernel_assistant.apply.result import VerifiedResult, read_result
from kernel_assistant.apply.text import indent_of, line_end, parse, split_lines
from kernel_assistant.errors import UsageError

NAME = "ModelNew"


def export_model_new(result_dir: Path | str, folder: Path) -> Path:
    """Writes `model_new.py` and `model_new_kernels/` to `folder`. Returns the path of `model_new.py`.

    The file does not contain the original `forward`: a call for which the kernels were not verified raises
    RuntimeError.
    """
    result = read_result(Path(result_dir))
    class_name = result.task.class_name
    text = model_new_text(result.task.content, class_name)
    path = folder / "model_new.py"
    for name, data in kernel_files(result).items():
        write_atomically(folder / package_name(path.stem) / name, data)
    write_atomically(path, text.encode())
    return path


def kernel_files(result: VerifiedResult) -> Files:
    """Returns path → content of the package of kernels beside a file with `ModelNew`."""
    own = class_files(result, AppliedOptions(), tool_version())
    own["provenance.json"] = _renamed(own["provenance.json"], result.task.class_name)
    return {**runtime_files(), **packed(result.task.class_name, own)}


def model_new_text(text: str, class_name: str) -> str:
    """Returns the reference's file with the class renamed to `ModelNew` and `forward` replaced by the kernels."""
    edit = plan_edit(text, class_name, IMPORT_LINE, f"@{ALIAS}", name="the reference")
    decorator = f'@{ALIAS}(__file__[:-3] + "_kernels/load.py")["kernels_only"]("{class_name}")'
    return with_kernels(text, class_name, decorator, edit.hunks[0].line, edit.hunks[0].text)


def with_kernels(text: str, class_name: str, decorator: str, line: int, head: str) -> str:
    """Returns the file with the class renamed to `ModelNew`, `decorator` above a `forward` that has only a docstring,
    and `head` inserted before line `line`, which must not be below `forward`."""
    lines = split_lines(text)
    node = find_class(parse(text, "the reference"), class_name, "the reference")
    forward = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"), None)
    if forward is None:
        raise UsageError(f"{class_name} inherits its forward", "export the class that defines it")
    if class_name != NAME and any(isinstance(one, ast.Name) and one.id == NAME for one in ast.walk(node)):
        raise UsageError(f"{class_name} uses the name {NAME} already", f"rename {NAME}")
    first = min([forward.lineno, *(one.lineno for one in forward.decorator_list)])
    end = line_end(lines[first - 1])
    lines[first - 1 : forward.end_lineno] = [
        one + end for one in _forward(forward, decorator, indent_of(lines[forward.lineno - 1]))
    ]
    lines.insert(line - 1, head.replace("\n", end) + end)
    return renamed("".join(lines), class_name)


def _forward(forward: ast.FunctionDef, decorator: str, indent: str) -> list[str]:
    return [
        indent + decorator,
        f"{indent}def forward({ast.unparse(forward.args)}):",
        f'{indent}    """Runs the kernels; its arguments are those of the reference."""',
    ]


def renamed(text: str, class_name: str, name: str = NAME) -> str:
    """Returns `text` with the Python name `class_name` replaced by `name`; strings and comments are not changed."""
    lines = [line.encode() for line in split_lines(text)]
    positions = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id == class_name:
            positions.append((node.lineno, node.col_offset))
        elif isinstance(node, ast.ClassDef) and node.name == class_name:
            positions.append((node.lineno, lines[node.lineno - 1].index(class_name.encode(), node.col_offset + 5)))
    for row, column in sorted(positions, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + name.encode() + line[column + len(class_name.encode()) :]
    return b"".join(lines).decode()


def _renamed(data: bytes, class_name: str) -> bytes:
    """Returns the content of `provenance.json` changed for the renamed class. The guard compares the name of the class,
    and names of functions that its methods define, such as `Model.__init__.<locals>.<lambda>`."""
    document = json.loads(data)
    attributes = document["guard"]["attributes"]
    own_functions = re.compile(rf"(?<![\w.]){re.escape(class_name)}(?=\.\w+\.<locals>\.)")
    for values in attributes.values():
        values.update((key, own_functions.sub(NAME, text)) for key, text in values.items())
    root = attributes.get("", {})
    if "(class)" in root:
        root["(class)"] = NAME
    return json.dumps(document, indent=1, ensure_ascii=False).encode()
