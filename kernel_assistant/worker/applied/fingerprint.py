"""Computes a hash of a class's source: of the class and all definitions in the same file that it uses, directly or
through others. Standard library only.

Blank lines, comments, quotes and line breaks do not count, nor does the Python version that reads the file, so a
formatter does not change the hash; any change of the class's computation does. Code in other files is not covered."""

from __future__ import annotations

import ast
import copy
import hashlib
import symtable
from collections.abc import Iterator

#: Ends the path in the generated lines: in the block at the head of a file, and in the decorators of older versions,
#: which had no block.
MARKER = "_kernels/load.py"
#: The function that the block defines and the generated decorators call.
DECORATOR = "_with_kernels"


def fingerprint(text: str, class_name: str) -> str:
    """Returns the hash of the class's source, including the definitions in the file that it uses, as 16 hexadecimal
    digits; "" unless `text`, the text of the file, has exactly one class of this name outside functions.

    Raises SyntaxError or ValueError if `text` is not Python."""
    tree = ast.parse(text)
    nodes = list(_outer(tree.body))
    if sum(isinstance(node, ast.ClassDef) and node.name == class_name for node in nodes) != 1:
        return ""
    statements = _definitions(nodes)
    wanted, seen, parts = [class_name], {class_name}, []
    while wanted:
        for text_of, node in statements.get(wanted.pop(), ()):
            parts.append(text_of or canonical(node))
            fresh = sorted(name for name in _names(node) if name in statements and name not in seen)
            seen.update(fresh)
            wanted.extend(fresh)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]


def is_ours(decorator: ast.expr) -> bool:
    """Whether a decorator is the one that `apply` generates above a class, in this version or an older one."""
    if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == DECORATOR:
        return True
    return _names_package(decorator)


def is_block(node: ast.stmt) -> bool:
    """Whether a statement is the generated `try` statement at the head of an edited file, which defines the
    decorator."""
    return isinstance(node, ast.Try) and any(map(_names_package, node.body))


def _names_package(node: ast.AST) -> bool:
    nodes = ast.walk(node)
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.endswith(MARKER) for n in nodes)


def _outer(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of `body` outside functions and classes: each statement itself, also a `def`, `class` or
    `if`, and then the statements inside compound ones such as `if`, `for`, `try` and `with`. What is inside functions,
    classes and `if __name__ == ...` is left out, and so is the whole generated statement at the head of the file."""
    for node in body:
        if is_block(node):
            continue
        yield node
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or _is_script(node):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from _outer([child])
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                yield from _outer(child.body)


def _is_script(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == ...`; its body does not run when the file is imported."""
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def _definitions(nodes: list[ast.stmt]) -> dict[str, list[tuple[str, ast.stmt]]]:
    """Returns, for each name, the pairs (text, statement) of the statements that bind it. The text identifies the
    binding, such as one name of an import. It is "" if the whole statement identifies the binding, because the
    canonical text of a statement is slow to compute and made only when needed."""
    definitions: dict[str, list[tuple[str, ast.stmt]]] = {}
    for node in nodes:
        for name, text in _bindings(node):
            definitions.setdefault(name, []).append((text, node))
    return definitions


def _names(node: ast.stmt) -> set[str]:
    """Returns the global names that a statement uses. The generated decorator and locals of functions do not count."""
    if isinstance(node, ast.ClassDef):
        node = copy.copy(node)
        node.decorator_list = [item for item in node.decorator_list if not is_ours(item)]
    return set(_global_names(symtable.symtable(ast.unparse(node), "statement", "exec"), outermost=True))


def _global_names(table: symtable.SymbolTable, outermost: bool = False) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (outermost or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _global_names(child)


def _bindings(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name, ""
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        module = f"{'.' * node.level}{node.module or ''}:" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], f"import {module}{alias.name} as {alias.asname}"
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield name.id, ""


def canonical(node: object) -> str:
    """Returns a text of a syntax tree that is equal for all Python versions, without docstrings and the generated
    decorator."""
    if isinstance(node, list):
        return "[" + ",".join(canonical(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "type_comment", "kind", "type_ignores"):
            continue
        if name == "decorator_list":
            value = [item for item in value if not is_ours(item)]
        if name == "body" and isinstance(value, list):
            value = _without_docstring(node, value)
        if value is not None and value != []:
            fields.append(f"{name}={canonical(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _without_docstring(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    named = isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    return body[1:] if named and ast.get_docstring(node, clean=False) is not None else body  # type: ignore[arg-type]
