"""Removes our lines from a text, even if a formatter or the user has moved them. Pure functions on text."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from kernel_assistant.apply.edit import ALIAS, BLOCK, LOADER, Edit, imports, outer_statements
from kernel_assistant.apply.text import split_lines
from kernel_assistant.source.pieces import parse_piece, pieces
from kernel_assistant.worker.applied.fingerprint import DECORATOR, is_block, is_ours

#: Most lines that a formatter makes of one decorator.
_MOST_LINES = 6


def decorated_classes(text: str) -> list[str]:
    """Returns the names of the classes with our decorator in `text`, in order. Raises SyntaxError."""
    return [name for _, name in _decorators(ast.parse(text))]


def is_current(text: str, class_name: str) -> bool:
    """Whether the class has the decorator, and the file has the lines that load kernels, both as this version writes
    them. Raises SyntaxError."""
    tree = ast.parse(text)
    mine = [item for item, name in _decorators(tree) if name == class_name and isinstance(item.func, ast.Name)]
    return bool(mine) and any(map(is_block, tree.body))


def decorated_while_typed(text: str) -> list[str]:
    """Does the same as `decorated_classes` for text that may have syntax errors: in a part that does not parse, the
    decorators are read one by one."""
    names: list[str] = []
    for _, piece in pieces(text):
        if LOADER in piece or DECORATOR in piece:
            tree = parse_piece(piece)
            names += _by_decorators(piece) if tree is None else [name for _, name in _decorators(tree)]
    return names


def _by_decorators(piece: str) -> Iterator[str]:
    lines = piece.splitlines()
    for first, line in enumerate(lines):
        if not line.lstrip().startswith("@"):
            continue
        for last in range(first + 1, min(first + _MOST_LINES, len(lines)) + 1):
            tree = parse_piece(textwrap.dedent("\n".join(lines[first:last])) + "\nclass _: ...")
            if tree is not None:
                yield from (name for _, name in _decorators(tree))
                break


def take_back(text: str, class_name: str, edit: Edit, import_line: str | None) -> str:
    """Returns `text` without the decorator of one class, and without the lines that load kernels and `import_line` if
    no class uses them any more.

    `import_line` is None if the import is the user's own. From text with a syntax error (the user may be in the middle
    of an edit), exactly the lines that `edit` added are removed.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _without_exact(text, edit, ALIAS, import_line)
    lines = split_lines(text)
    for item, name in reversed(_decorators(tree)):
        if name == class_name:
            del lines[item.lineno - 1 : item.end_lineno]
    text = _without_block("".join(lines))
    return text if import_line is None else _without_import(text, import_line)


def _decorators(tree: ast.Module) -> list[tuple[ast.Call, str]]:
    """Returns each of our decorators as (its call in the tree, the name of its class), in the order of lines."""
    return [
        (item, str(item.args[0].value))
        for node in outer_statements(tree.body)
        if isinstance(node, ast.ClassDef)
        for item in node.decorator_list
        if is_ours(item) and isinstance(item, ast.Call) and item.args and isinstance(item.args[0], ast.Constant)
    ]


def _without_block(text: str) -> str:
    tree = ast.parse(text)
    if any(isinstance(node, ast.Name) and node.id == DECORATOR and _is_used(node) for node in ast.walk(tree)):
        return text
    lines = split_lines(text)
    for node in reversed([one for one in tree.body if is_block(one)]):
        first = node.lineno - 1
        # The blank line above it is ours as well.
        above = first > 0 and not lines[first - 1].strip("\r\n")
        del lines[first - above : node.end_lineno]
    return "".join(lines)


def _is_used(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _without_import(text: str, import_line: str) -> str:
    tree = ast.parse(text)
    if any(isinstance(node, ast.Name) and node.id == ALIAS for node in ast.walk(tree)):
        return text
    lines = split_lines(text)
    for node in reversed(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and imports(node, import_line):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            if len(node.names) == 1 and _is_alone(tree, node):
                del lines[first:last]
            else:
                lines[first:last] = _without_alias(lines[first:last], node)
    return "".join(lines)


def _is_alone(tree: ast.Module, node: ast.stmt) -> bool:
    """Whether `node` shares no line with another statement."""
    first, last = node.lineno, node.end_lineno or node.lineno
    return not any(one is not node and one.lineno <= last and (one.end_lineno or 0) >= first for one in tree.body)


def _without_alias(lines: list[str], node: ast.Import | ast.ImportFrom) -> list[str]:
    """Returns the `lines` of an import statement that contains our import, after removing only ours: the statement also
    imports other names, or shares its line with other statements."""
    kept = [alias for alias in node.names if alias.asname != ALIAS]
    first, last = lines[0].encode(), lines[-1].encode()
    end = node.end_col_offset if node.end_col_offset is not None else len(last)
    before, after = first[: node.col_offset].decode(), last[end:].decode()
    if not kept:
        return [before + after.lstrip("; \t")]
    if isinstance(node, ast.Import):
        return [before + ast.unparse(ast.Import(names=kept)) + after]
    return [before + ast.unparse(ast.ImportFrom(module=node.module, names=kept, level=node.level)) + after]


def _without_exact(text: str, edit: Edit, alias: str, import_line: str | None) -> str:
    lines = split_lines(text)
    for hunk in edit.hunks:
        if hunk.text != import_line and hunk.text.strip() != BLOCK:
            _remove(lines, hunk.text)
    if not any(f"@{DECORATOR}(" in line for line in lines):
        _remove(lines, f"\n{BLOCK}") or _remove(lines, BLOCK)
    if import_line is not None and not any(f"@{alias}(" in line for line in lines):
        lines = [line for line in lines if line.rstrip("\r\n") != import_line]
    return "".join(lines)


def _remove(lines: list[str], text: str) -> bool:
    """Deletes from `lines` the first run of lines that equals those of `text`. Returns whether there was such a run."""
    wanted = text.split("\n")
    plain = [line.rstrip("\r\n") for line in lines]
    for start in range(len(plain) - len(wanted) + 1):
        if plain[start : start + len(wanted)] == wanted:
            del lines[start : start + len(wanted)]
            return True
    return False
