"""Checks the names, calls and operators in one function of a free-form candidate (a Python file)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_assistant.environment.screens import python_tables as tables

Refuse = Callable[[ast.AST, str], None]

MODULE_ROOTS = ("torch", "triton", "os", "math", "typing", "dataclasses", "collections", "itertools", "cuda_extension")
SIZES = (
    "shape",
    "ndim",
    "itemsize",
    "nbytes",
    "is_cuda",
    "dtype",
    "device",
    "layout",
    "requires_grad",
    "multi_processor_count",
)
PLAIN_RESULTS = (
    "size",
    "stride",
    "dim",
    "numel",
    "element_size",
    "data_ptr",
    "is_contiguous",
    "storage_offset",
    "item",
)
COMPUTING_BUILTINS = ("sum", "abs", "pow", "max", "min", "round", "divmod", "sorted")
ALLOCATING = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like")


def dotted(node: ast.AST) -> str:
    """Returns the text `a.b.c` for an expression that is such a dotted name, "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def root_of(node: ast.AST) -> str:
    """Returns the name at the start of attributes and subscripts: `a` for `a.b[0].c`; "" if there is none."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@dataclass
class ScopeNames:
    """What the names in a file of a candidate stand for.

    `imported`: name → dotted path. `defined`: functions and classes of the file. `extensions`: built native modules,
    also as attributes of `self`. `layers`: attributes of `self` that hold a module of PyTorch. `methods`: names of the
    methods of all classes. `toplevel`: variables of the file.
    """

    imported: dict[str, str] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    extensions: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    toplevel: set[str] = field(default_factory=set)

    def learn(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.imported[name] = alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for item in tree.body:
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                self.defined.add(item.name)
            if isinstance(item, ast.ClassDef):
                self.methods |= {part.name for part in item.body if isinstance(part, ast.FunctionDef)}
            if isinstance(item, ast.Assign):
                self.toplevel |= {target.id for target in item.targets if isinstance(target, ast.Name)}
        for _ in range(2):
            self._learn_assignments(tree)

    def _learn_assignments(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                name = dotted(node.targets[0])
                if self._is_extension(node.value):
                    self.extensions.add(name)
                elif name.startswith("self.") and self._holds_layer(node.value):
                    self.layers.add(name)

    def _is_extension(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            path = self.path(value.func)
            return path in ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
        name = dotted(value)
        return (
            name in self.extensions
            or self.path(value).split(".")[0] == "cuda_extension"
            or any(name.startswith(f"{known}.") for known in self.extensions)
        )

    def _holds_layer(self, value: ast.expr) -> bool:
        for node in ast.walk(value):
            path = self.path(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
            last = path.rpartition(".")[2]
            if path.startswith("torch.nn.") and last[:1].isupper() and last not in ("Parameter", "Module"):
                return True
        return False

    def path(self, node: ast.AST) -> str:
        """Returns the full dotted name of an expression: `torch.nn.functional.relu` for `F.relu`, if `F` was imported
        so. Returns "" if `node` is not a dotted name."""
        name = dotted(node)
        root, dot, rest = name.partition(".")
        return f"{self.imported.get(root, root)}{dot}{rest}"

    def is_module(self, path: str) -> bool:
        return path in tables.MODULES or path.partition(".")[0] in MODULE_ROOTS

    def own(self, node: ast.AST) -> bool:
        """Whether a call of `node` runs the candidate's own code: a function of the file or of an extension, or a
        method of `self`."""
        name = dotted(node)
        if name in self.defined or any(name == known or name.startswith(f"{known}.") for known in self.extensions):
            return True
        if name.startswith("self.") and name.count(".") == 1:
            return name[5:] in self.methods
        root, _, last = name.partition(".")
        return root in self.defined and (last in self.methods or last == "apply")


class FunctionScreen:
    """Screens the statements of one function, or of the top level of a file. `building` is True in constructors and at
    the top level, where parameters are made and more is allowed."""

    def __init__(self, refuse: Refuse, names: ScopeNames, *, building: bool) -> None:
        self.refuse, self.names, self.building = refuse, names, building
        self.tensors: set[str] = set()
        self.inputs: set[str] = set()
        self.lambdas: set[str] = set()

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments[1 if method else 0 :]:
            if node.name == "forward" and (argument.annotation is None or "Tensor" in ast.unparse(argument.annotation)):
                self.tensors.add(argument.arg)
                self.inputs.add(argument.arg)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None and not isinstance(default, (ast.Constant, ast.UnaryOp, ast.Tuple, ast.Name)):
                self.refuse(default, "a computed default argument is state between calls")
        self.statements(node.body)

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    self.refuse(node, "functions and classes inside functions are not allowed")
            self._learn(statement)
        for statement in body:
            for node in ast.walk(statement):
                self._node(node)

    def _learn(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                if isinstance(node.value, ast.Lambda):
                    self.lambdas.add(node.targets[0].id)
                elif self._is_tensor(node.value):
                    self.tensors.add(node.targets[0].id)

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            self._reference(node)
        elif isinstance(node, ast.BinOp):
            self._operator(node, (node.left, node.right), isinstance(node.op, ast.MatMult))
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            self._operator(node, (node.operand,), False)
        elif isinstance(node, ast.Compare) and not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            self._operator(node, (node.left, *node.comparators), False)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            self._assignment(node)

    def _assignment(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    if dotted(part.value) not in ("self", "ctx"):
                        self.refuse(node, f"{ast.unparse(part)} may not be changed: only attributes of self")
                elif isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
                    self._item_store(node, part)
        if isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Attribute) and not self.building:
                self.refuse(node, "state that changes from call to call is not allowed")
            self._operator(node, (node.target, node.value), isinstance(node.op, ast.MatMult))

    def _item_store(self, node: ast.AST, part: ast.Subscript) -> None:
        path = self.names.path(part.value)
        if path == "os.environ":
            key = part.slice.value if isinstance(part.slice, ast.Constant) else None
            if key not in tables.ENVIRONMENT:
                self.refuse(node, "only the variables that builds read may be set")
        elif self._is_tensor(part.value):
            self.refuse(node, "PyTorch computes: assignment into a tensor")
        elif not self.building and root_of(part) in (*self.names.toplevel, "self"):
            self.refuse(node, "state that changes from call to call is not allowed")

    def _operator(self, node: ast.AST, operands: tuple[ast.expr, ...], matmul: bool) -> None:
        if not self.building and (matmul or any(self._is_tensor(operand) for operand in operands)):
            self.refuse(node, f"PyTorch computes: {ast.unparse(node)[:60]}")

    def _reference(self, node: ast.Name | ast.Attribute) -> None:
        """Refuses a name that starts with a module, such as `torch`, unless the whole dotted name is allowed."""
        path = self.names.path(node)
        root = path.partition(".")[0]
        if root not in ("torch", "os") or (isinstance(node, ast.Name) and node.id not in self.names.imported):
            return
        inner = path.removeprefix("torch.")
        if (
            path in tables.MODULES
            or path in ("torch.cuda", "torch.nn.parameter", "os.environ")
            or inner in tables.TORCH
        ):
            return
        building = self.building and (inner in tables.TORCH_BUILDING or inner.startswith(("nn.", "Tensor")))
        if not building or inner.startswith("nn.functional"):
            self.refuse(node, f"{path} is not allowed{' in forward' if not self.building else ''}")

    def _call(self, node: ast.Call) -> None:
        function = node.func
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self._argument(argument)
        if self.names.own(function):
            return
        if isinstance(function, ast.Name):
            self._call_name(function, node)
        elif isinstance(function, ast.Attribute):
            self._call_attribute(function)
        elif isinstance(function, ast.Subscript):
            if dotted(function.value) not in self.names.defined:
                self.refuse(node, f"{ast.unparse(function)[:60]} may not be called: not a kernel of this file")
        else:
            self.refuse(node, "the result of an expression may not be called")

    def _argument(self, node: ast.expr) -> None:
        """Refuses a module as an argument of a call, because the called function would get another name for it."""
        path = self.names.path(node)
        if path in tables.MODULES and dotted(node):
            self.refuse(node, f"module {path} may not be passed on")

    def _call_name(self, function: ast.Name, call: ast.Call) -> None:
        path = self.names.path(function)
        known = function.id in tables.BUILTINS or function.id in self.lambdas
        if not known and not (function.id in self.names.imported and self.names.is_module(path)):
            self.refuse(function, f"{function.id} may not be called: not a function of this file")
        if function.id in COMPUTING_BUILTINS and not self.building and any(map(self._holds_tensor, call.args)):
            self.refuse(function, f"PyTorch computes: {ast.unparse(call)[:60]}")

    def _holds_tensor(self, node: ast.expr) -> bool:
        return self._is_tensor(node) or (
            isinstance(node, (ast.List, ast.Tuple)) and any(map(self._is_tensor, node.elts))
        )

    def _call_attribute(self, function: ast.Attribute) -> None:
        path = self.names.path(function)
        root = dotted(function).partition(".")[0]
        if root in self.names.imported and self.names.is_module(path):
            return  # checked as a dotted name
        owner = dotted(function.value)
        if owner in self.names.layers and function.attr not in ("parameters", "buffers"):
            self.refuse(function, f"{owner} is a layer of PyTorch: only its parameters may be used")
        if isinstance(function.value, ast.Call) and dotted(function.value.func) == "super":
            if not (self.building and function.attr == "__init__"):
                self.refuse(function, f"super().{function.attr} is not allowed")
            return
        if function.attr.endswith("_") and root_of(function.value) in self.inputs:
            self.refuse(function, f".{function.attr}() changes an input")
        allowed = tables.METHODS | tables.OTHER_METHODS | (tables.BUILDING_METHODS if self.building else frozenset())
        in_building = self.building and not owner.startswith("self.") and owner != "self"
        if function.attr not in allowed and not in_building:
            self.refuse(function, f".{function.attr}() is not allowed: PyTorch would compute, or it is unknown")
        if (
            owner in self.names.toplevel
            and not self.building
            and function.attr in ("append", "extend", "insert", "get")
        ):
            self.refuse(function, "state that changes from call to call is not allowed")

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression is known to be a tensor. Other tensors are found at run time, when `freeform/trace.py`
        watches the operators."""
        if isinstance(node, ast.Name):
            return node.id in self.tensors
        if isinstance(node, ast.Attribute):
            if node.attr in SIZES:
                return False
            owner = dotted(node.value)
            return (
                owner in self.names.layers
                or self._is_tensor(node.value)
                or dotted(node) in ("self.weight", "self.bias")
            )
        if isinstance(node, ast.Subscript):
            return self._is_tensor(node.value)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.operand,)
            return any(map(self._is_tensor, parts))
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in PLAIN_RESULTS:
                return False
            if self.names.path(function).removeprefix("torch.") in ALLOCATING:
                return True
            name = dotted(function)
            if name.startswith("cuda_extension.") or any(
                name.startswith(f"{known}.") for known in self.names.extensions
            ):
                return True
            return isinstance(function, ast.Attribute) and self._is_tensor(function.value)
        return False
