"""Finds the declared inputs of a class: in a comment, `pyproject.toml`, or `get_inputs()`, in this order."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records import InputSource, Workload
from kernel_assistant.source.comments import (
    EXAMPLE,
    Comment,
    Declaration,
    check_expression,
    find_comments,
    read_declaration,
)
from kernel_assistant.source.find import ModuleClass, parse


@dataclass(frozen=True)
class Declared:
    """The declared inputs of one class, as Python expressions that build and call it (see `KernelTask`): `workloads`
    are the calls, `init` and `init_kwargs` the constructor's arguments; `training` selects train mode."""

    source: InputSource
    workloads: tuple[Workload, ...]
    init: str = ""
    init_kwargs: str = ""
    training: bool = False


def find_declared(text: str, path: Path, module: ModuleClass, modules: tuple[ModuleClass, ...]) -> Declared | None:
    """Returns the declared inputs of `module`, None if there are none. Raises UsageError for an invalid declaration."""
    return (
        _from_comments(text, str(path), module, modules)
        or _from_pyproject(path, module.name)
        or _from_functions(text, str(path))
    )


class NoInputsError(UsageError):
    """Raised if no inputs are declared for the class `class_name`. If the user named no class, `others` are the other
    classes of the file without inputs."""

    def __init__(
        self, cause: str, next_step: str, *, path: Path, class_name: str, others: tuple[str, ...] = ()
    ) -> None:
        super().__init__(cause, next_step)
        self.path, self.class_name, self.others = path, class_name, others


def no_inputs(path: Path, module: ModuleClass) -> NoInputsError:
    """Returns the error for a class for which no inputs are declared. The error's `next_step` shows a comment that
    declares inputs, which the user can paste above the class and adapt."""
    return NoInputsError(
        f"{path}:{module.line}: no inputs are declared for {module.name}",
        f"put this line directly above the class, with its real shapes: {EXAMPLE}",
        path=path,
        class_name=module.name,
    )


def _from_comments(text: str, path: str, module: ModuleClass, modules: tuple[ModuleClass, ...]) -> Declared | None:
    mine = [read_declaration(item, path) for item in find_comments(text) if _owner(text, item, modules) is module]
    if not mine:
        return None
    workloads = [
        Workload(
            name=item.fields.get("name") or _default_name(number),
            args=item.fields.get("inputs", ""),
            kwargs=item.fields.get("kwargs", ""),
        )
        for number, item in enumerate(item for item in mine if "inputs" in item.fields or "kwargs" in item.fields)
    ]
    where = f"{path}:{mine[0].line}"
    if not workloads:
        raise UsageError(f"{where}: the comment declares no inputs", f"write it like this: {EXAMPLE}")
    return Declared(
        InputSource.comment,
        _distinct(workloads, where),
        init=_only(mine, "init", path),
        init_kwargs=_only(mine, "init_kwargs", path),
        training=_only(mine, "training", path) == "True",
    )


def _owner(text: str, item: Comment, modules: tuple[ModuleClass, ...]) -> ModuleClass | None:
    """Returns the class to which a comment belongs: the innermost class around the comment, else the class directly
    below it (further comments in between are skipped). None if there is none."""
    inside = [module for module in modules if module.line < item.line <= module.end_line]
    if inside:
        return max(inside, key=lambda module: module.line)
    lines = text.splitlines()
    below = item.end
    while below < len(lines) and lines[below].lstrip().startswith("#"):
        below += 1
    return next((module for module in modules if module.line == below + 1), None)


def _only(mine: list[Declaration], field: str, path: str) -> str:
    """Returns the value of `field` in the comments `mine` of one class, "" if none has it. Raises UsageError if the
    comments have different values, because the class is built once for all its workloads."""
    values = {item.fields[field] for item in mine if field in item.fields}
    if len(values) > 1:
        raise UsageError(
            f"{path}:{mine[0].line}: {field} is given with different values",
            f"give {field} once; workloads differ in inputs and kwargs only",
        )
    return values.pop() if values else ""


def _default_name(number: int) -> str:
    return "default" if number == 0 else f"workload{number + 1}"


def _distinct(workloads: list[Workload], where: str) -> tuple[Workload, ...]:
    names = [workload.name for workload in workloads]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: two workloads have the same name", "give each its own, e.g. name=small")
    return tuple(workloads)


def _from_pyproject(path: Path, class_name: str) -> Declared | None:
    for folder in path.parents:
        file = folder / "pyproject.toml"
        if file.is_file():
            modules = _modules_table(file)
            if modules is not None:
                key = f"{path.relative_to(folder).as_posix()}:{class_name}"
                entry = modules.get(key)
                return None if entry is None else _read_entry(entry, f"{file}, {key}")
    return None


def _modules_table(file: Path) -> dict[str, Any] | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}", "mend it, inputs may be declared there") from error
    except OSError:  # not readable: the same as no declaration there
        return None
    ours = tool.get("kernel-assistant") if isinstance(tool, dict) else None
    modules = ours.get("modules", {}) if isinstance(ours, dict) else None
    if modules is not None and not isinstance(modules, dict):
        raise UsageError(f"{file}: tool.kernel-assistant.modules is not a table", _TOML_HINT)
    return modules


_TOML_HINT = (
    'write it like this: [tool.kernel-assistant.modules."model.py:Net"] inputs = "(torch.randn(8, 1024),)" init = "()"'
)


def _read_entry(entry: object, where: str) -> Declared:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: not a table", _TOML_HINT)
    unknown = set(entry) - {"init", "init_kwargs", "inputs", "kwargs", "workloads", "training"}
    if unknown:
        raise UsageError(f"{where}: unknown key {min(unknown)!r}", _TOML_HINT)
    training = entry.get("training", False)
    if not isinstance(training, bool):
        raise UsageError(f"{where}: training must be true or false", _TOML_HINT)
    rows = entry.get("workloads") or [{key: entry[key] for key in ("inputs", "kwargs") if key in entry}]
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row for row in rows):
        raise UsageError(f"{where}: no inputs are declared", _TOML_HINT)
    workloads = [
        Workload(
            name=_expression(row, "name", where) or _default_name(number),
            args=_expression(row, "inputs", where),
            kwargs=_expression(row, "kwargs", where),
        )
        for number, row in enumerate(rows)
    ]
    return Declared(
        InputSource.pyproject,
        _distinct(workloads, where),
        init=_expression(entry, "init", where),
        init_kwargs=_expression(entry, "init_kwargs", where),
        training=training,
    )


def _expression(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{where}: {key} must be a string that holds a Python expression", _TOML_HINT)
    return check_expression(value, key, where) if value else ""


def _from_functions(text: str, path: str) -> Declared | None:
    names = {node.name for node in parse(text, path).body if isinstance(node, ast.FunctionDef)}
    return Declared(InputSource.get_inputs, (Workload(),)) if "get_inputs" in names else None
