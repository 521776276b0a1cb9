"""Checks the source of a task that a language model wrote, before it runs: it may only compute with tensors.

The check reads the syntax tree and has lists of what is allowed. Through attributes, code could get from a tensor or a
module to the rest of Python, so only a fixed set of attribute names is allowed; the module's own attributes are allowed
only after `self`, a name that only a method may bind.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import torch
from torch import nn

MOST_CHARACTERS = 20_000
_IMPORTS = {
    "torch": {"nn", "Tensor"},
    "torch.nn": {"functional"},
    "torch.nn.functional": set(),
    "math": set(),
    "__future__": {"annotations"},
}
#: Submodules of torch that hold operators.
_PARTS = ("nn", "functional", "linalg", "special", "fft")
_MAKERS = (
    "arange cat concat empty eye full full_like linspace ones ones_like outer rand rand_like randint randn randn_like "
    "stack tensor where zeros zeros_like einsum meshgrid Tensor"
).split()
_OWN_METHODS = ("register_buffer", "register_parameter", "append", "extend", "items")
#: Attributes of tensors and of `functional` that reach memory, files or other libraries, or that take functions.
_NEVER = frozenset(
    "apply_ map_ map2_ numpy storage untyped_storage typed_storage data_ptr share_memory_ register_hook module_load "
    "register_post_accumulate_grad_hook backward set_ resize_ boolean_dispatch handle_torch_function grad_fn".split()
)
_BUILTINS = frozenset(
    "range len int float bool list tuple dict min max sum abs enumerate zip reversed sorted any all super isinstance "
    "slice round pow True False None".split()
)
_NODES = (
    *(ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg),
    *(ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Pass, ast.Assert, ast.If, ast.For),
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred, ast.Call, ast.keyword),
    *(ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.Lambda, ast.IfExp),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    ast.expr_context,
)


class NotAllowed(Exception):
    """Raised if the source does something that is not allowed. `kind` is the kind of violation, for counts; the message
    also has the name that is not allowed."""

    def __init__(self, kind: str, name: str = "") -> None:
        super().__init__(f"{kind} {name}".strip())
        self.kind = f"{kind} what no task needs" if name else kind


def check(text: str) -> None:
    """Raises NotAllowed if the source does anything but compute with tensors, cannot be parsed, or is too long."""
    if len(text) > MOST_CHARACTERS:
        raise NotAllowed("is too long")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAllowed("does not parse") from error
    own = _own_names(tree)
    methods = {id(one) for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) for one in kind.body}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise NotAllowed("uses", type(node).__name__)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node)
        elif isinstance(node, ast.ClassDef):
            _check_class(node)
        elif isinstance(node, ast.FunctionDef):
            _check_function(node, method=id(node) in methods)
        elif isinstance(node, ast.Lambda):
            _check_arguments(node.args)
        elif isinstance(node, ast.Attribute):
            _check_attribute(node, own)
        elif isinstance(node, ast.Name):
            _check_name(node)


def _own_names(tree: ast.Module) -> set[str]:
    """Returns the names that the source defines itself: attributes that it stores on `self`, methods, and strings
    passed as first argument (names of buffers)."""
    stored = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _of_self(node)}
    kinds = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    buffers = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    }
    named = {one for one in buffers if isinstance(one, str)}
    return stored | named | {one.name for kind in kinds for one in kind.body if isinstance(one, ast.FunctionDef)}


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Store)


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        wanted = {(one.name, "") for one in node.names}
    else:
        wanted = {("." * node.level + (node.module or ""), one.name) for one in node.names}
    for module, name in wanted:
        if module not in _IMPORTS or (name and name not in _IMPORTS[module]):
            raise NotAllowed("imports", name or module)
    for one in node.names:
        _check_bound(one.asname or one.name)


def _check_class(node: ast.ClassDef) -> None:
    """Raises NotAllowed unless the class derives from nn.Module and contains only methods: a class variable could hold
    a function."""
    bases = [ast.unparse(one) for one in node.bases]
    if bases not in (["nn.Module"], ["torch.nn.Module"]) or node.keywords or node.decorator_list:
        raise NotAllowed("has a class that is no plain nn.Module")
    _check_bound(node.name)
    for one in node.body:
        is_docstring = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if not (isinstance(one, (ast.FunctionDef, ast.Pass)) or is_docstring):
            raise NotAllowed("has a class with more than methods")


def _check_function(node: ast.FunctionDef, method: bool) -> None:
    if node.decorator_list:
        raise NotAllowed("has a decorator")
    if not (method and node.name == "__init__"):
        _check_bound(node.name)
    _check_arguments(node.args, method=method)


def _check_arguments(arguments: ast.arguments, method: bool = False) -> None:
    names = [one.arg for one in _every(arguments)]
    if method != (names[:1] == ["self"]) or "self" in names[1:]:
        raise NotAllowed("has a self that is no method's")
    for name in names[method:]:
        _check_bound(name)
    defaults = [one for one in (*arguments.defaults, *arguments.kw_defaults) if one is not None]
    if not all(isinstance(one, (ast.Constant, ast.UnaryOp, ast.Tuple)) for one in defaults):
        raise NotAllowed("has a default that is no literal")
    for one in defaults:
        if any(isinstance(part, (ast.Name, ast.Call)) for part in ast.walk(one)):
            raise NotAllowed("has a default that is no literal")


def _every(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _check_bound(name: str) -> None:
    """Raises NotAllowed for a name that the source may not assign: a name of Python's builtins outside the allowed
    ones, `self`, or a name with a leading underscore."""
    if name == "self" or name.startswith("_") or (hasattr(builtins, name) and name not in _BUILTINS):
        raise NotAllowed("binds", name)


def _check_name(node: ast.Name) -> None:
    if node.id == "self" and isinstance(node.ctx, ast.Load):
        return
    if node.id == "_":
        return
    if isinstance(node.ctx, ast.Load):
        if node.id.startswith("_") or (hasattr(builtins, node.id) and node.id not in _BUILTINS):
            raise NotAllowed("uses", node.id)
    else:
        _check_bound(node.id)


def _check_attribute(node: ast.Attribute, own: set[str]) -> None:
    name = node.attr
    behind_self = isinstance(node.value, ast.Name) and node.value.id == "self"
    if not isinstance(node.ctx, ast.Load):
        if not behind_self or name.startswith("_") or hasattr(nn.Module, name):
            raise NotAllowed("assigns to", f".{name}")
        return
    if name == "__init__" and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super":
        return
    if name.startswith("_") or not (name in attributes() or (behind_self and name in own)):
        raise NotAllowed("uses", f".{name}")


@cache
def attributes() -> frozenset[str]:
    """Returns the names that are allowed as attributes of any object, such as tensor methods and functions of torch."""
    layers = {name for name, one in vars(nn).items() if inspect.isclass(one) and issubclass(one, nn.Module)}
    functions = {name for name, one in vars(nn.functional).items() if inspect.isroutine(one)}
    inside = {name for part in _PARTS[2:] for name in dir(getattr(torch, part))}
    dtypes = {name for name, one in vars(torch).items() if isinstance(one, torch.dtype)}
    named = {*dir(torch.Tensor), *dir(math), *layers, *functions, *inside, *dtypes}
    named |= {*_PARTS, *_MAKERS, *_OWN_METHODS, "Parameter", "training"}
    candidates = {name for name in named if not name.startswith("_") and name not in _NEVER}
    # A name may be a module on another object: `torch.storage` is one.
    owners = (torch, nn, nn.functional, torch.functional, math, *(getattr(torch, part) for part in _PARTS[2:]))
    reached = {name: [getattr(owner, name) for owner in owners if hasattr(owner, name)] for name in candidates}
    return frozenset(
        name for name, ones in reached.items() if name in _PARTS or not any(isinstance(one, ModuleType) for one in ones)
    )
