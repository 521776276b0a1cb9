"""Find `nn.Module` classes in a file by its syntax tree alone; nothing is imported or run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_assistant.errors import UsageError
from kernel_assistant.source.slim import LONG, slim_tree

#: Capitalised names in torch.nn that are not modules.
_NOT_MODULES = {"Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"}


@dataclass(frozen=True)
class ModuleClass:
    """One class. Lines are 1-based and inclusive; `line` is that of the first decorator, if any.

    `addressable` is False where `FILE:NAME` cannot mean this class: it is nested in a function or a class, or a later
    class at the top level has the same name. `doc` is the first line of the docstring.
    """

    name: str
    line: int
    end_line: int
    has_forward: bool
    doc: str
    addressable: bool


def find_modules(text: str, path: str) -> tuple[ModuleClass, ...]:
    """Module classes of `text` in order of appearance.

    A class counts when a base leads to a class of `torch.nn`, over any number of classes of the same file, or when
    it has `forward` and a base that is imported from elsewhere (the worker finds out what that is).
    Raises UsageError when `text` is not valid Python.
    """
    # Where pieces do not parse, the whole says why.
    tree = (slim_tree(text) if len(text) > LONG else None) or parse(text, path)
    index = Index(tree)
    found = [scoped for scoped in index.classes if index.is_module(scoped.node)]
    last = {scoped.node.name: scoped.node for scoped in index.classes if scoped.top_level}
    return tuple(
        ModuleClass(
            name=scoped.node.name,
            line=min([scoped.node.lineno, *(item.lineno for item in scoped.node.decorator_list)]),
            end_line=scoped.node.end_lineno or scoped.node.lineno,
            has_forward=index.has_forward(scoped.node),
            doc=(ast.get_docstring(scoped.node) or "").partition("\n")[0].strip(),
            addressable=last.get(scoped.node.name) is scoped.node,
        )
        for scoped in found
    )


def parse(text: str, path: str) -> ast.Module:
    """The syntax tree of `text`; UsageError names the line of a syntax error."""
    try:
        return ast.parse(text, path)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UsageError(f"{where}: {error.msg} (read as Python {version})", "mend the syntax error first") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{path} cannot be parsed: {str(error) or type(error).__name__}", "give a Python file"
        ) from error


@dataclass(frozen=True)
class _Scoped:
    node: ast.ClassDef
    top_level: bool


class Index:
    """Classes and import aliases of a file or a class. Aliases are taken file-wide: an import inside a function counts
    too."""

    def __init__(self, tree: ast.Module | ast.ClassDef) -> None:
        self.aliases: dict[str, str] = {}
        self.star_of_nn = False
        self.classes = list(_classes(tree.body, top_level=True))
        for node in ast.walk(tree):
            self._read_import(node)
        for statement in tree.body:
            self._read_alias(statement)

    def is_module(self, node: ast.ClassDef, seen: frozenset[int] = frozenset()) -> bool:
        return any(self._base_is_module(base, node, seen | {id(node)}) for base in node.bases)

    def has_forward(self, node: ast.ClassDef, seen: frozenset[int] = frozenset()) -> bool:
        if _defines_forward(node):
            return True
        for base in node.bases:
            local = self._local(base, node)
            if local is None:
                origin = self._origin(base) or ""
                if _is_torch_module(origin) and origin.rpartition(".")[2] != "Module":
                    return True
            elif id(local) not in seen and self.has_forward(local, seen | {id(node)}):
                return True
        return False

    def _base_is_module(self, base: ast.expr, node: ast.ClassDef, seen: frozenset[int]) -> bool:
        local = self._local(base, node)
        if local is not None:
            return id(local) not in seen and self.is_module(local, seen)
        origin = self._origin(base)
        if origin is None:
            return False
        root = origin.partition(".")[0]
        if root == "torch":
            return _is_torch_module(origin)
        return root not in sys.stdlib_module_names and _defines_forward(node)

    def _local(self, base: ast.expr, user: ast.ClassDef) -> ast.ClassDef | None:
        """The class of this file that `base` means inside `user`: the latest one above it."""
        if isinstance(base, ast.Subscript):
            return self._local(base.value, user)
        if not isinstance(base, ast.Name):
            return None
        same = [item.node for item in self.classes if item.node.name == base.id and item.node is not user]
        above = [node for node in same if node.lineno < user.lineno]
        return above[-1] if above else same[-1] if same else None

    def _origin(self, expression: ast.expr) -> str | None:
        """Dotted name that `expression` was imported as, e.g. `torch.nn.Module`; None if it was not."""
        if isinstance(expression, ast.Subscript):
            return self._origin(expression.value)
        if isinstance(expression, ast.Attribute):
            value = self._origin(expression.value)
            return f"{value}.{expression.attr}" if value else None
        if isinstance(expression, ast.Name):
            known = self.aliases.get(expression.id)
            return known or (f"torch.nn.{expression.id}" if self.star_of_nn else None)
        return None

    def _read_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                root = item.name.partition(".")[0]
                self.aliases[item.asname or root] = item.name if item.asname else root
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for item in node.names:
                if item.name == "*":
                    self.star_of_nn |= module in ("torch.nn", "torch.nn.modules")
                else:
                    self.aliases[item.asname or item.name] = f"{module}.{item.name}"

    def _read_alias(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            origin = self._origin(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
            if origin:
                self.aliases.setdefault(node.targets[0].id, origin)


def _classes(body: list[ast.stmt], top_level: bool) -> Iterator[_Scoped]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield _Scoped(statement, top_level)
        inside = isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _classes(list(_children(statement)), top_level and not inside)


def _children(statement: ast.stmt) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from child.body


def _defines_forward(node: ast.ClassDef) -> bool:
    return any("forward" in _bound_names(statement) for statement in node.body)


def _bound_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _is_torch_module(origin: str) -> bool:
    name = origin.rpartition(".")[2]
    return origin.startswith("torch.nn.") and name[:1].isupper() and name not in _NOT_MODULES
