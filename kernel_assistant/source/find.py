"""Finds `nn.Module` classes in a file from its syntax tree; nothing is imported or run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_assistant.errors import UsageError
from kernel_assistant.source.slim import LONG, slim_tree

#: Capitalised names in torch.nn that are not modules.
_NOT_MODULES = {"Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"}
#: Packages with module classes, for files that do not import torch themselves.
_MODULE_LIBRARIES = {"transformers", "torchvision", "torchaudio", "timm", "diffusers"}
#: Usual names of classes with a `forward`, and of their files, in such packages.
_MODULE_NAME = re.compile(
    r"(Layer|Block|Norm|Attention|MLP|Mlp|Encoder|Decoder|Embeddings?|Head|Net|Transformer|FeedForward|For[A-Z]\w+"
    r"|[a-z\d]Model)$"
)
_MODULE_FOLDER = re.compile(r"nn|layers?|models?|modules?|blocks?|ops|modeling\w*")
_NO_MODULE_NAME = re.compile(
    r"(Config|Output|Outputs|Dataset|Tokenizer|TokenizerFast|Processor|Extractor|Mixin|Weights|Error|Base|BaseModel)$"
)


@dataclass(frozen=True)
class ModuleClass:
    """A subclass of `nn.Module` in a file. Lines are 1-based and inclusive; `line` is the line of the first decorator,
    if there is one.

    `addressable` is False if `FILE:NAME` cannot refer to this class, because it is nested in a function or a class, or
    a later top-level class has the same name. `doc` is the first line of the docstring.
    """

    name: str
    line: int
    end_line: int
    has_forward: bool
    doc: str
    addressable: bool


def find_modules(text: str, path: str, named: str = "") -> tuple[ModuleClass, ...]:
    """Returns the module classes of `text` in order of appearance.

    A class is a module class if it derives from a class of `torch.nn`, possibly through classes of the same file. A
    class with another imported base is a module class if it defines `forward` itself, or if the name of the base looks
    like that of a module (it then inherits `forward`). The worker checks whether the base really is a module. For the
    class `named`, any imported base is enough.

    Raises UsageError if `text` is not valid Python.
    """
    # If a piece does not parse, the whole file is parsed, for the error.
    return modules_of((slim_tree(text) if len(text) > LONG else None) or parse(text, path), named)


def modules_of(tree: ast.Module, named: str = "") -> tuple[ModuleClass, ...]:
    """Returns the module classes of a syntax tree in order of appearance, by the rules of `find_modules`."""
    index = Index(tree, named)
    modules = [scoped for scoped in index.classes if index.is_module(scoped.node)]
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
        for scoped in modules
    )


def parse(text: str, path: str) -> ast.Module:
    """Returns the syntax tree of `text`. Raises UsageError with the line of a syntax error."""
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
    """The classes and import aliases in a syntax tree. Every alias applies to the whole file, even if its import is
    inside a function."""

    def __init__(self, tree: ast.Module | ast.ClassDef, named: str = "") -> None:
        self._named = named
        self.aliases: dict[str, str] = {}
        self.star_of_nn = False
        self.classes = list(_classes(tree.body, top_level=True))
        for node in ast.walk(tree):
            self._read_import(node)
        self._has_torch = any(origin.partition(".")[0] == "torch" for origin in self.aliases.values())
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
                if self._inherits(origin, node):
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
        elsewhere = root not in sys.stdlib_module_names
        return elsewhere and (_defines_forward(node) or self._inherits(origin, node))

    def _inherits(self, origin: str, node: ast.ClassDef) -> bool:
        """Whether a class whose base `origin` is imported inherits `forward` from it; the decision is made by the
        base's name."""
        root = origin.partition(".")[0]
        if not origin or root == "torch" or root in sys.stdlib_module_names:
            return False
        with_torch = self._has_torch or root in _MODULE_LIBRARIES
        return node.name == self._named or (with_torch and _sounds_like_a_module(origin))

    def _local(self, base: ast.expr, user: ast.ClassDef) -> ast.ClassDef | None:
        """Returns the class of this file to which `base` refers inside the class `user`: the last one of this name
        above `user`."""
        if isinstance(base, ast.Subscript):
            return self._local(base.value, user)
        if not isinstance(base, ast.Name):
            return None
        same = [item.node for item in self.classes if item.node.name == base.id and item.node is not user]
        above = [node for node in same if node.lineno < user.lineno]
        return above[-1] if above else same[-1] if same else None

    def _origin(self, expression: ast.expr) -> str | None:
        """Returns the dotted name of the imported object to which `expression` refers, e.g. `torch.nn.Module`; None if
        it refers to no import."""
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


def _sounds_like_a_module(origin: str) -> bool:
    """Whether a dotted name looks like that of a module class: True for
    `transformers.models.llama.modeling_llama.LlamaRMSNorm`, False for `transformers.LlamaConfig`."""
    *path, name = origin.split(".")
    if path[:1] == ["django"] or not name[:1].isupper() or _NO_MODULE_NAME.search(name):
        return False
    return bool(_MODULE_NAME.search(name)) or any(_MODULE_FOLDER.fullmatch(part) for part in path)


def _is_torch_module(origin: str) -> bool:
    name = origin.rpartition(".")[2]
    return origin.startswith("torch.nn.") and name[:1].isupper() and name not in _NOT_MODULES
