"""The edit of the user's file: one import line and one decorator line. Pure functions on text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_assistant.apply.text import line_end, parse, split_lines
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.worker.applied.fingerprint import MARKER

ALIAS = "_run_path"

#: The standard library's `run_path` works however the file itself is loaded: imported from a package or without one,
#: run as a script, or loaded by its path. A relative or absolute import of the folder fails in one of these.
IMPORT_LINE = f"from runpy import run_path as {ALIAS}"

#: In every decorator of ours, after a formatter too.
LOADER = MARKER


class Hunk(Record, frozen=True, kw_only=True):
    """Lines put before line `line` (1-based, of the original file). `text` is what they say, indentation included."""

    line: int
    text: str


class Edit(Record, frozen=True, kw_only=True):
    """Hunks in order of their lines, which do not overlap."""

    hunks: tuple[Hunk, ...]

    def apply(self, text: str) -> str:
        """`text` with the hunks put in, each with the line end of the line that it precedes."""
        lines = split_lines(text)
        for hunk in reversed(self.hunks):
            end = line_end(lines[hunk.line - 1], line_end(lines[0]))
            lines.insert(hunk.line - 1, hunk.text + end)
        return "".join(lines)


def decorator_line(stem: str, class_name: str) -> str:
    """The decorator for a class of `STEM.py`, whose kernels lie in `STEM_kernels/`."""
    return f'@{ALIAS}(__file__[:-3] + "{LOADER}")["accelerated"]("{class_name}")'


def plan_edit(text: str, class_name: str, import_line: str, decorator: str, *, name: str = "the file") -> Edit:
    """Where the two lines go: the import after the file's first block of imports, the decorator right above `class`.

    Innermost, because decorators of the user's own may wrap what they find. An import line that is there already is
    not put in twice. Raises UsageError where the class cannot be edited.
    """
    tree = parse(text, name)
    lines = split_lines(text)
    node = find_class(tree, class_name, name)
    if any(ast.unparse(item) == ast.unparse(_expression(decorator)) for item in node.decorator_list):
        raise UsageError(f"{class_name} in {name} has its kernels already", "undo them first")
    indent = lines[node.lineno - 1][: -len(lines[node.lineno - 1].lstrip(" \t\f"))]
    hunks = [Hunk(line=node.lineno, text=indent + decorator)]
    if not has_import(tree, import_line):
        _check_alias(tree, name)
        hunks.insert(0, Hunk(line=_import_place(tree), text=import_line))
    edit = Edit(hunks=tuple(hunks))
    _check(text, edit, name)
    return edit


def plan_import(text: str, line: str, *, name: str = "the file") -> Edit:
    """Where an import line goes: after the file's first block of imports; nowhere if it is there already."""
    tree = parse(text, name)
    if has_import(tree, line):
        return Edit(hunks=())
    if not tree.body:
        raise UsageError(f"{name} is empty", "name the file that your program starts from")
    # A file of nothing but imports gets it before the last of them.
    place = min(_import_place(tree), _span(tree.body[-1]).first)
    edit = Edit(hunks=(Hunk(line=place, text=line),))
    _check(text, edit, name)
    return edit


def find_class(tree: ast.Module, class_name: str, name: str) -> ast.ClassDef:
    """The one class of this name outside functions and classes. Raises UsageError naming what is wrong."""
    found = [node for node in outer_statements(tree.body) if _is_class(node, class_name)]
    if len(found) == 1 and isinstance(found[0], ast.ClassDef):
        return found[0]
    if found:
        raise UsageError(f"{name} defines {class_name} {len(found)} times", "rename one of the classes")
    if any(_is_class(node, class_name) for node in ast.walk(tree)):
        raise UsageError(
            f"{class_name} in {name} is defined inside a function or a class", "move it to the top level of the file"
        )
    raise UsageError(f"{name} has no class {class_name}", "name a class of this file")


def outer_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements outside functions and classes, those inside `if`, `try`, `with` and loops included."""
    for node in body:
        yield node
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from outer_statements([child])
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                yield from outer_statements(child.body)


def _is_class(node: ast.AST, class_name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == class_name


def _expression(decorator: str) -> ast.expr:
    return ast.parse(decorator.removeprefix("@"), mode="eval").body


def has_import(tree: ast.Module, line: str) -> bool:
    """Whether the file imports what `line` imports already, alone or together with other names."""
    return any(imports(node, line) for node in tree.body)


def imports(node: ast.stmt, line: str) -> bool:
    wanted = ast.parse(line).body[0]
    if type(node) is not type(wanted) or not isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    if isinstance(node, ast.ImportFrom) and (node.module, node.level) != (wanted.module, wanted.level):  # type: ignore[attr-defined]
        return False
    return any(ast.dump(alias) == ast.dump(wanted.names[0]) for alias in node.names)  # type: ignore[attr-defined]


def _check_alias(tree: ast.Module, name: str) -> None:
    if any(isinstance(node, ast.Name) and node.id == ALIAS for node in ast.walk(tree)):
        raise UsageError(f"{name} uses the name {ALIAS} itself", f"rename {ALIAS} in the file")


@dataclass(frozen=True)
class _Span:
    first: int
    last: int


def _import_place(tree: ast.Module) -> int:
    """The line before which the import goes: after docstring, `__future__` and the first block of imports."""
    body = tree.body
    head = 1 if _is_docstring(body[0]) else 0
    while head < len(body) and isinstance(body[head], (ast.Import, ast.ImportFrom)):
        head += 1
    if head == 0:
        return _span(body[0]).first
    last = _span(body[head - 1]).last
    while head < len(body) and _span(body[head]).first <= last:
        last = _span(body[head]).last
        head += 1
    return last + 1


def _span(node: ast.stmt) -> _Span:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(item.lineno for item in decorators)])
    return _Span(first, node.end_lineno or node.lineno)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _check(text: str, edit: Edit, name: str) -> None:
    """The edited file must be the original but for the two lines: odd line breaks could defeat the placing."""
    edited = parse(edit.apply(text), name)
    texts = [hunk.text.strip() for hunk in edit.hunks]
    added = {text if text.startswith("@") else ast.unparse(ast.parse(text)) for text in texts}
    edited.body = [node for node in edited.body if ast.unparse(node) not in added]
    for node in ast.walk(edited):
        if isinstance(node, ast.ClassDef):
            node.decorator_list = [item for item in node.decorator_list if not _is_added(item, added)]
    if ast.dump(edited) != ast.dump(parse(text, name)):
        raise UsageError(f"{name} cannot be edited line by line", "put the class statement on a line of its own")


def _is_added(item: ast.expr, added: set[str]) -> bool:
    return any(line.startswith("@") and ast.unparse(item) == ast.unparse(_expression(line)) for line in added)
