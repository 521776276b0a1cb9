"""Takes our lines out of a text again, wherever a formatter or the user has moved them. Pure functions on text."""

from __future__ import annotations

import ast

from kernel_assistant.apply.edit import ALIAS, Edit, imports, outer_statements
from kernel_assistant.apply.text import split_lines
from kernel_assistant.worker.applied.fingerprint import is_ours


def decorated_classes(text: str) -> list[str]:
    """Names given to our decorators in `text`, in order. Raises SyntaxError."""
    return [name for _, _, name in _decorators(ast.parse(text))]


def take_back(text: str, class_name: str, edit: Edit, import_line: str | None) -> str:
    """`text` without the decorator of one class, and without `import_line` once nothing uses it.

    `import_line` is None where the import was the user's own. Text that does not parse (somebody is in the middle of
    an edit) loses exactly the lines that `edit` put in.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _without_exact(text, edit, ALIAS, import_line)
    lines = split_lines(text)
    for first, last, name in reversed(_decorators(tree)):
        if name == class_name:
            del lines[first - 1 : last]
    text = "".join(lines)
    return text if import_line is None else _without_import(text, import_line)


def _decorators(tree: ast.Module) -> list[tuple[int, int, str]]:
    """First line, last line and class name of each of our decorators, in order of lines."""
    return [
        (item.lineno, item.end_lineno or item.lineno, str(item.args[0].value))
        for node in outer_statements(tree.body)
        if isinstance(node, ast.ClassDef)
        for item in node.decorator_list
        if is_ours(item) and isinstance(item, ast.Call) and item.args and isinstance(item.args[0], ast.Constant)
    ]


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
    """Whether no other statement shares a line with `node`."""
    first, last = node.lineno, node.end_lineno or node.lineno
    return not any(one is not node and one.lineno <= last and (one.end_lineno or 0) >= first for one in tree.body)


def _without_alias(lines: list[str], node: ast.Import | ast.ImportFrom) -> list[str]:
    """The lines of an import that a formatter has merged ours into, or that shares its line, without our name."""
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
        if hunk.text == import_line:
            continue
        exact = [index for index, line in enumerate(lines) if line.rstrip("\r\n") == hunk.text]
        if exact:
            del lines[exact[0]]
    if import_line is not None and not any(f"@{alias}(" in line for line in lines):
        lines = [line for line in lines if line.rstrip("\r\n") != import_line]
    return "".join(lines)
