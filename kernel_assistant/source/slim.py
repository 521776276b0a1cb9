"""The syntax tree of a long file without what is inside its functions, made piece by piece.

All of a file of 5,000 lines takes 16 MB as a tree, of which a process keeps the memory; parsed at once it keeps the
other threads of the interpreter waiting for 50 ms and more.
"""

from __future__ import annotations

import ast

from kernel_assistant.source.pieces import parse_piece, pieces

#: Characters from which on it is worth it.
LONG = 24_000
_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def slim_tree(text: str) -> ast.Module | None:
    """Classes, functions with the classes and imports inside them, imports and assignments; lines are those of `text`.

    None where a piece does not parse by itself: `text` is not Python, or a string looks like the beginning of a class.
    """
    body: list[ast.stmt] = []
    for above, piece in pieces(text):
        tree = parse_piece(piece)
        if tree is None:
            return None
        for node in _slim(tree.body):
            ast.increment_lineno(node, above)
            body.append(node)
    return ast.Module(body=body, type_ignores=[])


def _slim(body: list[ast.stmt]) -> list[ast.stmt]:
    return [node for node in body if _slimmed(node)]


def _slimmed(node: ast.stmt) -> bool:
    """Take out of a statement what does not count; whether anything is left."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Assign):
        if not isinstance(node.value, (ast.Name, ast.Attribute)):
            node.value = ast.Constant(None)
        return True
    if isinstance(node, ast.ClassDef):
        doc = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
        node.body = [*doc, *_slim(node.body[len(doc) :])]
        node.keywords = []
        return True
    if isinstance(node, _Function):
        node.body, node.decorator_list, node.args, node.returns = _slim(node.body), [], _NOTHING, None
        return bool(node.body) or node.name == "forward"
    return _slimmed_block(node)


def _slimmed_block(node: ast.stmt) -> bool:
    """`if`, `try`, `with` and loops count for what is inside them."""
    left = False
    for _, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else []
        for part in (part for part in parts if isinstance(part, (ast.ExceptHandler, ast.match_case))):
            part.body = _slim(part.body)
            left |= bool(part.body)
        if parts and isinstance(parts[0], ast.stmt):
            parts[:] = _slim(parts)
            left |= bool(parts)
    return left
