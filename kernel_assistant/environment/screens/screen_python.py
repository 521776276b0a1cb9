"""The screen for the Python of a free-form candidate: reads the syntax tree, runs nothing, needs no torch.

Like the screen for kernels, it gives clear messages early and does not protect against hostile code. It allows modules
only at the start of a dotted name, such as `torch.empty`; so a module gets no other name, and `getattr` and tables of
functions are refused. It allows calls only of the candidate's own functions or of functions that do no arithmetic in
PyTorch, and no operators on values that are known to be tensors.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernel_assistant.environment.freeform_text import CANDIDATE, INPUTS, REFERENCE
from kernel_assistant.environment.screens import python_tables as tables
from kernel_assistant.environment.screens.screen_cpp import cpp_problems
from kernel_assistant.environment.screens.screen_scope import FunctionScreen, ScopeNames, dotted
from kernel_assistant.records import Diagnostic


def screen_python(text: str, name: str = "model_new.py") -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for everything that is not allowed in a candidate's Python; () if it may be built. `text` is
    the candidate's own part of a file (`candidate_part`)."""
    tree = ast.parse(text)
    screen = _Screen(name)
    screen.file(tree)
    return tuple(sorted(screen.problems, key=lambda problem: problem.line))


def screen_reference(text: str, name: str = "model.py") -> tuple[Diagnostic, ...]:
    """Returns a diagnostic for everything that is not allowed in the reference that comes with a candidate. It is
    screened because references run outside the sandbox."""
    diagnostics = []
    for node in ast.walk(ast.parse(text)):
        diagnostics += [
            _problem(name, node, f"a reference beside its candidate may not import {path}")
            for path in _imported_paths(node)
            if not _may_import(path)
        ]
        if isinstance(node, ast.Name) and node.id in tables.FORBIDDEN_BUILTINS - {"type", "hasattr", "object"}:
            diagnostics.append(_problem(name, node, f"a reference beside its candidate may not use {node.id}"))
        if isinstance(node, ast.Attribute):
            private = node.attr.startswith("__") and node.attr != "__init__"
            if private or node.attr in tables.REFERENCE_ATTRIBUTES or dotted(node).startswith("os."):
                diagnostics.append(_problem(name, node, f"a reference beside its candidate may not use {dotted(node)}"))
    return tuple(diagnostics)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def _imported_paths(node: ast.AST) -> list[str]:
    """Returns the dotted names of the imported modules; for `from` imports, also those of the imported objects."""
    paths = _imported(node)
    if isinstance(node, ast.ImportFrom):
        paths += [f"{node.module or '.'}.{alias.name}" for alias in node.names]
    return paths


def _may_import(path: str) -> bool:
    parts = path.split(".")
    if tables.REFERENCE_ATTRIBUTES & set(parts):
        return False
    return parts[0] in ("torch", *tables.REFERENCE_MODULES - {"os"}) or path == "os"


def _problem(name: str, node: ast.AST, message: str) -> Diagnostic:
    return Diagnostic(message=message, file=name, line=getattr(node, "lineno", 0))


@dataclass
class _Screen:
    """Walks through one file and collects in `problems` a diagnostic for everything that is not allowed."""

    name: str
    problems: list[Diagnostic] = field(default_factory=list)
    names: ScopeNames = field(default_factory=ScopeNames)

    def refuse(self, node: ast.AST, message: str) -> None:
        problem = _problem(self.name, node, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def file(self, tree: ast.Module) -> None:
        self.names.learn(tree)
        self._everywhere(tree)
        for node in tree.body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(node, building=False)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Assert)):
            FunctionScreen(self.refuse, self.names, building=True).statements([node])
        elif not isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)):
            self.refuse(node, "only imports, definitions, assignments and builds belong at the top level of the file")

    def _class(self, node: ast.ClassDef) -> None:
        bases = [self.names.path(base) for base in node.bases]
        allowed = (
            ("torch.nn.Module",) if node.name == CANDIDATE else ("torch.nn.Module", "torch.autograd.Function", "object")
        )
        for base, path in zip(node.bases, bases, strict=True):
            if path not in allowed:
                self.refuse(
                    base, f"{node.name} inherits from {path or 'something computed'}: only nn.Module is allowed"
                )
        if node.keywords:
            self.refuse(node, f"{node.name} has class keywords (a metaclass, say)")
        if node.name == CANDIDATE and "forward" not in {
            item.name for item in node.body if isinstance(item, ast.FunctionDef)
        }:
            self.refuse(node, f"{CANDIDATE} has no forward of its own")
        self._decorators(node)
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                self._function(item, building=item.name in ("__init__", "reset_parameters"), method=True)
            elif isinstance(item, (ast.Assign, ast.AnnAssign)):
                FunctionScreen(self.refuse, self.names, building=True).statements([item])
            elif not (
                isinstance(item, ast.Pass) or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
            ):
                self.refuse(item, "not allowed in a class")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, building: bool, method: bool = False) -> None:
        if isinstance(node, ast.AsyncFunctionDef):
            self.refuse(node, "no async functions")
        if node.name.startswith("__") and node.name not in tables.DUNDERS:
            self.refuse(node, f"{node.name} may not be defined")
        if node.name in INPUTS or (method and node.name == "__call__"):
            self.refuse(node, f"{node.name} may not be defined")
        if self._decorators(node):
            return
        FunctionScreen(self.refuse, self.names, building=building).function(node, method=method)

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """Refuses unknown decorators. Returns whether the definition is a Triton kernel, whose body is not run by
        Python."""
        paths = []
        for decorator in node.decorator_list:
            path = self.names.path(decorator.func if isinstance(decorator, ast.Call) else decorator)
            paths.append(path)
            if path not in tables.DECORATORS:
                self.refuse(decorator, f"decorator {path or 'computed'} is not allowed")
        return "triton.jit" in paths

    def _everywhere(self, tree: ast.Module) -> None:
        """Refuses constructs that are not allowed anywhere in the file, including Triton kernels."""
        for node in ast.walk(tree):
            for module in _imported(node):
                if module not in tables.MODULES:
                    self.refuse(node, f"import of {module} is not allowed")
            if isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, (ast.Try, ast.Global, ast.Nonlocal, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete)):
                self.refuse(node, f"{type(node).__name__.lower()} is not allowed: no fallbacks, no state between calls")
            elif isinstance(node, ast.Name):
                self._name(node)
            elif isinstance(node, ast.Attribute):
                self._attribute(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._text(node, node.value)

    def _import_from(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            if alias.name == "*":
                self.refuse(node, "import * is not allowed")
            elif node.module == "torch.nn.functional" or (node.module == "os"):
                self.refuse(node, f"{path} is not allowed")

    def _name(self, node: ast.Name) -> None:
        if node.id in tables.FORBIDDEN_BUILTINS:
            self.refuse(node, f"{node.id} is not allowed")
        elif node.id == REFERENCE:
            self.refuse(node, "the reference may not be used")
        elif node.id.startswith("__") and node.id not in tables.DUNDERS:
            self.refuse(node, f"{node.id} is not allowed")

    def _attribute(self, node: ast.Attribute) -> None:
        if self.names.path(node).startswith("triton."):
            return
        if node.attr in tables.FORBIDDEN_ATTRIBUTES or (node.attr.startswith("__") and node.attr not in tables.DUNDERS):
            self.refuse(node, f".{node.attr} is not allowed")

    def _text(self, node: ast.Constant, text: str) -> None:
        if "#include" in text or "torch::" in text or "at::" in text or ";" in text:
            for line, message in cpp_problems(text):
                self.refuse(ast.copy_location(ast.Constant(0, lineno=node.lineno + line - 1), node), message)
