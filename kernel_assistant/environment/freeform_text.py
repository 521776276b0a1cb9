"""Splits a Python file into the candidate and the reference, if it contains both. Pure.

Line numbers do not change: in each part, the lines of the other part are empty.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from kernel_assistant.errors import UsageError

CANDIDATE = "ModelNew"
REFERENCE = "Model"
INPUTS = ("get_inputs", "get_init_inputs")


def parse(text: str, name: str) -> ast.Module:
    """Returns the syntax tree of `text`. Raises UsageError, which names the file `name`, for a syntax error."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"{name}{f':{line}' if line else ''}: {error.args[0]}", "mend the file's syntax") from error


def has_class(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)


def candidate_part(text: str, tree: ast.Module) -> str:
    """Returns the text of the candidate: the file without its reference, the functions for its inputs, its `__main__`
    block and everything that only these use."""
    needed = _reachable(tree, [CANDIDATE, *_used_by_statements(tree)], without=(REFERENCE, *INPUTS))
    kept = [node for node in tree.body if not _is_main(node) and (_name(node) is None or _name(node) in needed)]
    return _only(text, kept)


def reference_part(text: str, tree: ast.Module) -> str:
    """Returns the text of the reference: the file with only the reference's class, the functions for its inputs, and
    the imports, functions, classes and assignments that these use."""
    needed = _reachable(tree, [REFERENCE, *INPUTS], without=(CANDIDATE,))
    kept = [node for node in tree.body if _name(node) in needed or set(_assigned(node)) & needed]
    used = {name for node in kept for name in names_in(node)}
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) and _binds(node) & used]
    return _only(text, [*imports, *kept])


def _reachable(tree: ast.Module, roots: Iterable[str], without: tuple[str, ...]) -> set[str]:
    """Returns the names of the definitions and assignments that `roots` use, directly or through others. Names in
    `without` are neither returned nor followed."""
    uses: dict[str, set[str]] = {}
    for node in tree.body:
        for name in [_name(node)] if _name(node) else _assigned(node):
            uses.setdefault(str(name), set()).update(names_in(node))
    waiting, reached = [name for name in roots if name in uses], set()
    while waiting:
        name = waiting.pop()
        if name not in reached and name not in without:
            reached.add(name)
            waiting += [used for used in uses[name] if used in uses]
    return reached


def names_in(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _used_by_statements(tree: ast.Module) -> list[str]:
    return sorted({name for node in tree.body if _name(node) is None and not _is_main(node) for name in names_in(node)})


def _name(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else None


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [child.id for target in targets for child in ast.walk(target) if isinstance(child, ast.Name)]


def _binds(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Returns the names that an import defines. For an import of `*` or from `__future__`, "torch" is added, so that
    the caller always keeps this import."""
    names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names | {"torch"} if "*" in names or getattr(node, "module", "") == "__future__" else names


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in names_in(node.test)


def _only(text: str, kept: list[ast.stmt]) -> str:
    lines = text.splitlines(keepends=True)
    wanted: set[int] = set()
    for node in kept:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        wanted.update(range(first, (node.end_lineno or node.lineno) + 1))
    return "".join(line if number in wanted else "\n" for number, line in enumerate(lines, 1))
