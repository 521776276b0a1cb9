"""The edit of the user's file: a block (a few generated lines that load the kernels) and one decorator line. Pure
functions on text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernel_assistant.apply.text import line_end, parse, split_lines
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant.worker.applied.fingerprint import DECORATOR, MARKER, is_block

#: The block says by itself what happens where the kernels cannot be loaded (no folder, a part of it, a file that is
#: executed without `__file__`), since nothing else of ours may be there to say it. It names neither file nor class, so
#: that both may be renamed. The standard library's `run_path` works however the file itself is loaded: imported from a
#: package or without one, run as a script, or loaded by its path. A relative or absolute import of the folder fails in
#: one of these.
BLOCK = f"""\
try:  # Kernels that were verified for classes of this file, by kernel-assistant
    import runpy

    {DECORATOR} = runpy.run_path(__file__[:-3] + "{MARKER}")["accelerated"]
except Exception as _error:  # without them the classes run as they are written
    import warnings

    warnings.warn(
        f"{{__name__}} runs its own code, not its kernels: {{_error!r}}. Restore their folder "
        "(is it committed?), or take them out of this file: kernel-assistant undo FILE",
        RuntimeWarning,
    )

    def {DECORATOR}(_):
        return lambda cls: cls"""

#: Used by edits older than the block, and by exported files.
ALIAS = "_run_path"
IMPORT_LINE = f"from runpy import run_path as {ALIAS}"

#: Text that every file with kernels contains, after a formatter too.
LOADER = MARKER


class Hunk(Record, frozen=True, kw_only=True):
    """Lines to insert before line `line`, counted from 1 in the original file. `text` has the lines with their
    indentation, separated by LF."""

    line: int
    text: str


class Edit(Record, frozen=True, kw_only=True):
    """The hunks of one file, sorted by line. They do not overlap."""

    hunks: tuple[Hunk, ...]

    def apply(self, text: str) -> str:
        """Returns `text` with the hunks inserted. Each hunk gets the line end of the line below it."""
        lines = split_lines(text)
        for hunk in reversed(self.hunks):
            end = line_end(lines[hunk.line - 1], line_end(lines[0]))
            lines.insert(hunk.line - 1, hunk.text.replace("\n", end) + end)
        return "".join(lines)


def decorator_line(class_name: str) -> str:
    """Returns the decorator line that gives the class its kernels; the block at the top of the file defines the
    decorator."""
    return f'@{DECORATOR}("{class_name}")'


def plan_edit(text: str, class_name: str, head: str, decorator: str, *, name: str = "the file") -> Edit:
    """Returns the edit that inserts `head` (`BLOCK`, the lines that load kernels, or an import line) after the file's
    first imports, and the decorator right above `class`.

    Our decorator is the innermost, because the user's own decorators may wrap the class. A head that the file has
    already is not added twice. Raises UsageError if the class cannot be edited. `name` is the file's name in messages.
    """
    tree = parse(text, name)
    lines = split_lines(text)
    node = find_class(tree, class_name, name)
    if any(ast.unparse(item) == ast.unparse(_expression(decorator)) for item in node.decorator_list):
        raise UsageError(f"{class_name} in {name} has its kernels already", "undo them first")
    indent = lines[node.lineno - 1][: -len(lines[node.lineno - 1].lstrip(" \t\f"))]
    hunks = [Hunk(line=node.lineno, text=indent + decorator)]
    if not _has_head(tree, head):
        line_number = _import_line_number(tree)
        _check_names(tree, head, line_number, name)
        apart = "\n" if head == BLOCK and line_number > 1 else ""
        hunks.insert(0, Hunk(line=line_number, text=apart + head))
    edit = Edit(hunks=tuple(hunks))
    _check(text, edit, name)
    return edit


def plan_import(text: str, line: str, *, name: str = "the file") -> Edit:
    """Returns the edit that inserts the import `line` after the file's first block of imports; it is empty if the file
    has this import already. Raises UsageError if the file is empty or cannot be edited."""
    tree = parse(text, name)
    if has_import(tree, line):
        return Edit(hunks=())
    if not tree.body:
        raise UsageError(f"{name} is empty", "name the file that your program starts from")
    # In a file that has only imports, the import goes before the last of them.
    line_number = min(_import_line_number(tree), _span(tree.body[-1]).first)
    edit = Edit(hunks=(Hunk(line=line_number, text=line),))
    _check(text, edit, name)
    return edit


def find_class(tree: ast.Module, class_name: str, name: str) -> ast.ClassDef:
    """Returns the class of this name outside functions and classes. Raises UsageError unless there is exactly one."""
    classes = [node for node in outer_statements(tree.body) if _is_class(node, class_name)]
    if len(classes) == 1 and isinstance(classes[0], ast.ClassDef):
        return classes[0]
    if classes:
        raise UsageError(f"{name} defines {class_name} {len(classes)} times", "rename one of the classes")
    if any(_is_class(node, class_name) for node in ast.walk(tree)):
        raise UsageError(
            f"{class_name} in {name} is defined inside a function or a class", "move it to the top level of the file"
        )
    raise UsageError(f"{name} has no class {class_name}", "name a class of this file")


def outer_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements outside functions and classes, including those inside `if`, `try`, `with` and loops."""
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


def _has_head(tree: ast.Module, head: str) -> bool:
    return any(map(is_block, tree.body)) if head == BLOCK else has_import(tree, head)


def has_import(tree: ast.Module, line: str) -> bool:
    """Whether the file already imports the name that `line` imports, alone or together with other names."""
    return any(imports(node, line) for node in tree.body)


def imports(node: ast.stmt, line: str) -> bool:
    wanted = ast.parse(line).body[0]
    if type(node) is not type(wanted) or not isinstance(node, (ast.Import, ast.ImportFrom)):
        return False
    if isinstance(node, ast.ImportFrom) and (node.module, node.level) != (wanted.module, wanted.level):  # type: ignore[attr-defined]
        return False
    return any(ast.dump(alias) == ast.dump(wanted.names[0]) for alias in node.names)  # type: ignore[attr-defined]


def _check_names(tree: ast.Module, head: str, line_number: int, name: str) -> None:
    """Raises UsageError if the file uses a name that `head` defines for something else."""
    ours = DECORATOR if head == BLOCK else ALIAS
    taken = [ours] if ours in _used(tree.body) else []
    if head == BLOCK:
        # Only imports above the block matter: names below it are bound after the block has run.
        taken += sorted({"runpy", "warnings"} & _bound(node for node in tree.body if node.lineno < line_number))
    if taken:
        raise UsageError(f"{name} uses the name {taken[0]} itself", f"rename {taken[0]} in the file")


def _used(body: list[ast.stmt]) -> set[str]:
    nodes = [one for node in body for one in ast.walk(node)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {one.id for one in nodes if isinstance(one, ast.Name)} | {
        one.name for one in nodes if isinstance(one, functions)
    }


def _bound(imports: Iterable[ast.stmt]) -> set[str]:
    """Returns the names that the imports define, without modules under their own names (`import runpy`)."""
    return {
        alias.asname or alias.name
        for node in imports
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if isinstance(node, ast.ImportFrom) or alias.asname not in (None, alias.name)
    }


@dataclass(frozen=True)
class _Span:
    first: int
    last: int


def _import_line_number(tree: ast.Module) -> int:
    """Returns the number of the line before which to insert an import: the line after the docstring, `__future__`
    imports and the first block of imports."""
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
    """Raises UsageError unless the edited file parses to the original syntax tree plus our lines. Unusual line breaks
    could put our lines at a wrong position."""
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
