"""Makes the syntax tree of a long file piece by piece, without the bodies of its functions.

The whole tree of a file of 5,000 lines takes 16 MB, which the process does not give back; making it in one call blocks
other threads of the interpreter for 50 ms and more.
"""

from __future__ import annotations

import ast

from kernel_assistant.source.pieces import parse_piece, pieces

#: Number of characters from which on `slim_tree` is worthwhile.
LONG = 24_000
_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def slim_tree(text: str) -> ast.Module | None:
    """Returns a tree that has only classes, imports, assignments, methods called `forward`, and functions that contain
    classes or imports. Line numbers are those of `text`.

    Returns None if one of the pieces into which `text` is split does not parse: `text` is not valid Python, or a line
    inside a string looks like the beginning of a class.
    """
    body: list[ast.stmt] = []
    for above, piece in pieces(text):
        tree = parse_piece(piece)
        if tree is None:
            return None
        for node in slim_body(tree.body):
            ast.increment_lineno(node, above)
            body.append(node)
    return ast.Module(body=body, type_ignores=[])


def slim_body(body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns those of the statements that `slim_tree` keeps; they are modified in place, because function bodies are
    removed."""
    return [node for node in body if _slimmed(node)]


def _slimmed(node: ast.stmt) -> bool:
    """Removes the parts of a statement that `slim_tree` does not keep. Returns whether the statement itself is kept."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Assign):
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            node.value = ast.Constant(None)
        return True
    if isinstance(node, ast.ClassDef):
        doc = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
        node.body = [*doc, *slim_body(node.body[len(doc) :])]
        node.keywords = []
        return True
    if isinstance(node, _Function):
        # Names assigned in a function are not used as base classes.
        node.body = [inner for inner in slim_body(node.body) if not isinstance(inner, ast.Assign)]
        node.decorator_list, node.args, node.returns = [], _NOTHING, None
        return bool(node.body) or node.name == "forward"
    return _slimmed_block(node)


def _slimmed_block(node: ast.stmt) -> bool:
    """Removes statements that `slim_tree` does not keep from an `if`, `try`, `with` or loop. Returns whether any is
    left."""
    left = False
    for _, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else []
        for part in (part for part in parts if isinstance(part, (ast.ExceptHandler, ast.match_case))):
            part.body = slim_body(part.body)
            left |= bool(part.body)
        if parts and isinstance(parts[0], ast.stmt):
            parts[:] = slim_body(parts)
            left |= bool(parts)
    return left
