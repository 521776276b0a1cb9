"""Puts kernels into the user's class without importing its file a second time, which may take long.

In an edited file, a decorator above the class gets the class right after its `class` statement, and returns the same
object. If it is called after the import instead, it does the same, unless the file has used or changed `forward` in
between.
"""

from __future__ import annotations

import ast
import os
import runpy
from typing import Any

import torch

from ..opening.open_task import OpenTask
from ..user_module.loading import build, find_class
from .applied_forms import keep_original, with_kernels


def put_in(opened: OpenTask, params: dict[str, Any], device: str) -> torch.nn.Module:
    """Returns the module with kernels that `with_kernels` returns, but gets it without a second import of the user's
    file where this gives the same module: the kernels then replace `forward` in the class of `opened.module`.
    `opened.model` keeps its own `forward`."""
    task = params["task"]
    if task.get("installed"):
        return with_kernels(opened, params, device)
    cls = find_class(opened.module, task)
    if not (_is_plain(cls) and is_left_alone(task["content"], task["class_name"])):
        return with_kernels(opened, params, device)
    keep_original(opened.model)
    # The decorator reads the text that the kernels were verified for from its caller's `__file__`.
    accelerated = runpy.run_path(os.path.join(params["package"], "load.py"))["accelerated"]
    names = {"__file__": params["edited"], "accelerated": accelerated, "name": task["class_name"], "cls": cls}
    exec("accelerated(name)(cls)", names)
    model = build(opened.module, task, device)
    model.load_state_dict(opened.model.state_dict())
    return model


def is_left_alone(text: str, class_name: str) -> bool:
    """Whether the file with this `text` defines the class once, without decorators, and `CLASS.forward` occurs nowhere
    in it."""
    nodes = list(ast.walk(ast.parse(text)))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == class_name]
    named = any(
        isinstance(node, ast.Attribute)
        and node.attr == "forward"
        and isinstance(node.value, ast.Name)
        and node.value.id == class_name
        for node in nodes
    )
    return len(classes) == 1 and not classes[0].decorator_list and not named


def _is_plain(cls: type) -> bool:
    """Whether a subclass of `cls`, which `keep_original` makes, can be created without running the user's code (a
    metaclass or `__init_subclass__`)."""
    own = cls.__mro__[: cls.__mro__.index(torch.nn.Module)]
    return type(cls) is type and not any("__init_subclass__" in vars(base) for base in own)
