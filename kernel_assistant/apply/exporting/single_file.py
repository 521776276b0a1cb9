"""Writes the reference's class as `ModelNew`, whose forward calls a native extension. Pure functions on text."""

from __future__ import annotations

import ast
from typing import Any

from kernel_assistant.apply.edit import find_class
from kernel_assistant.apply.exporting.model_new import NAME, renamed
from kernel_assistant.apply.exporting.native import NotSelfContained
from kernel_assistant.apply.result import VerifiedResult
from kernel_assistant.apply.text import indent_of, parse, split_lines
from kernel_assistant.environment.freeform_text import candidate_part
from kernel_assistant.errors import UsageError


def model_new(result: VerifiedResult, call: str, prelude: str) -> str:
    """Returns a file with `ModelNew`: the reference's class with everything that it uses, and a `forward` that only
    calls the function named `call`.

    `prelude` is inserted after the imports. Arguments of forward that are not tensors are assumed to have the values of
    the verified call. Raises UsageError if the call cannot be written in Python.
    """
    class_name, text = result.task.class_name, result.task.content
    tree = parse(text, "the reference")
    node = find_class(tree, class_name, "the reference")
    forward = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"), None)
    if forward is None:
        raise UsageError(f"{class_name} inherits its forward", "export the class that defines it")
    lines = split_lines(text)
    lines = [line if line.endswith("\n") else line + "\n" for line in lines]
    first = min([forward.lineno, *(one.lineno for one in forward.decorator_list)])
    lines[first - 1 : forward.end_lineno] = [
        line + "\n" for line in _forward(result, forward, call, indent_of(lines[forward.lineno - 1]))
    ]
    whole = renamed("".join(lines), class_name)
    kept = candidate_part(whole, ast.parse(whole))
    return _with_prelude(kept, prelude)


def _forward(result: VerifiedResult, forward: ast.FunctionDef, call: str, indent: str) -> list[str]:
    expressions = _input_expressions(result, forward)
    paths = {value.name: value.path for value in result.graph.inputs if value.kind != "input"}
    arguments = [
        expressions[spec.name] if spec.name in expressions else _attribute(paths[spec.name])
        for spec in result.plan.inputs
    ]
    outputs = len(result.plan.outputs)
    tree = result.facts["result"]
    lines = [f"{indent}def forward({ast.unparse(forward.args)}):"]
    state = result.facts.get("state", [])
    if outputs == 1 and tree == {"output": 0} and not state:
        return [*lines, f"{indent}    return {call}({', '.join(arguments)})"]
    outs = f"{call}({', '.join(arguments)})"
    return [
        *lines,
        f"{indent}    outputs = {'[' + outs + ']' if outputs == 1 else outs}",
        *(f"{indent}    {_moved(one)}" for one in state),
        f"{indent}    return {_expression(tree)}",
    ]


def _moved(one: dict[str, Any]) -> str:
    """Returns the line of Python that updates a buffer of the module as the reference's forward does; `one` is an entry
    of `facts["state"]`."""
    buffer = _attribute(one["path"])
    return f"{buffer}.copy_(outputs[{one['output']}])" if "output" in one else f"{buffer}.add_({one['add']})"


def _input_expressions(result: VerifiedResult, forward: ast.FunctionDef) -> dict[str, str]:
    """Returns the name of each input of the graph → the Python expression for it in terms of forward's arguments."""
    arguments = forward.args
    names = [one.arg for one in [*arguments.posonlyargs, *arguments.args]][1:]
    expressions: dict[str, str] = {}
    for position, tree in enumerate(result.facts["call"]["args"]):
        if position < len(names):
            _walk(tree, names[position], expressions)
        elif arguments.vararg is not None:
            _walk(tree, f"{arguments.vararg.arg}[{position - len(names)}]", expressions)
    keywords = {*names, *(one.arg for one in arguments.kwonlyargs)}
    for name, tree in result.facts["call"].get("kwargs", {}).items():
        if name in keywords:
            _walk(tree, name, expressions)
        elif arguments.kwarg is not None:
            _walk(tree, f"{arguments.kwarg.arg}[{name!r}]", expressions)
    return expressions


def _walk(tree: dict[str, Any], expression: str, expressions: dict[str, str]) -> None:
    if "input" in tree:
        expressions[tree["input"]] = expression
    for key, item in tree.get("dict", {}).items():
        _walk(item, f"{expression}[{key!r}]", expressions)
    for index, item in enumerate([*tree.get("tuple", ()), *tree.get("list", ())]):
        _walk(item, f"{expression}[{index}]", expressions)


def _attribute(path: str) -> str:
    """Returns the Python expression for a parameter's path: `self.layers[0].weight` for `layers.0.weight`."""
    text = "self"
    for part in path.split("."):
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return text


def _expression(tree: dict[str, Any]) -> str:
    """Returns the value that forward returns, as a Python expression over the list `outputs`."""
    if "output" in tree:
        return f"outputs[{tree['output']}]"
    if "value" in tree:
        return repr(tree["value"])
    if "dict" in tree:
        return "{" + ", ".join(f"{key!r}: {_expression(item)}" for key, item in tree["dict"].items()) + "}"
    if "object" in tree:
        raise NotSelfContained(f"forward returns a {tree['object']['class']}")
    items = [_expression(item) for item in tree["tuple" if "tuple" in tree else "list"]]
    if "list" in tree:
        return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _with_prelude(text: str, prelude: str) -> str:
    """Returns `text` with `prelude` inserted after the first imports. Of several empty lines in a row, two are kept."""
    body = ast.parse(text).body
    last = 0
    for node in body:
        documented = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (documented or isinstance(node, (ast.Import, ast.ImportFrom))):
            break
        last = node.end_lineno or last
    lines = split_lines(text)
    return _squeezed(lines[:last]) + "\n" + prelude + "\n\n" + _squeezed(lines[last:]).lstrip("\n")


def _squeezed(lines: list[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept[-2:] and any(one.strip() for one in kept[-2:])):
            kept.append(line)
    return "".join(kept)


def name_of(class_name: str) -> str:
    """Returns the C identifier of the native extension with the kernels of a class, such as `gate_kernels` for
    `Gate`."""
    return f"{class_name.lower()}_kernels" if class_name != NAME else "model_kernels"
