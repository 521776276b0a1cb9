"""Reads the classes of a text that is not valid Python, such as one that is being typed, line by line. A parser would
lose a class with an incomplete header, and everything after a string without an end."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator

#: A line that begins a top-level statement: not blank, a comment, a closing bracket or a clause such as `else`.
_STATEMENT = re.compile(r"^(?![\s#)\]}]|(?:else|elif|except|finally)\b)", re.MULTILINE)
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"""' + r"|'''(?:\\.|[^\\])*?'''")
_IMPORT = re.compile(r"^[ \t]*((?:from[ \t]+([.\w]+)[ \t]+)?import\b((?:[^\n(]*\([^()]*\)?|[^\n]*)))", re.MULTILINE)
_AS = re.compile(r"(\w+)(?:[ \t]+as[ \t]+(\w+))?")
_SCOPE = re.compile(r"^([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+(\w+)[ \t]*(?:\(([^():]*))?", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def is_open_string(text: str) -> bool:
    """Whether `text` has an odd number of triple quotes, so that a string begins or ends in it, but not both."""
    return any(text.count(quotes) % 2 for quotes in ('"""', "'''"))


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yields each top-level statement as (number of lines above it, text). Decorators belong to the statement below
    them."""
    start, above, decorated = 0, 0, False
    for match in _STATEMENT.finditer(text):
        position = match.start()
        if position > start and not decorated and not is_open_string(text[start:position]):
            yield above, text[start:position]
            above += text.count("\n", start, position)
            start = position
        decorated = text.startswith("@", position)
    yield above, text[start:]


def by_lines(text: str) -> list[ast.stmt]:
    """Returns the statements that can be recognised line by line: imports that are alone on their lines, and classes
    with their bases, inner classes and `forward`."""
    if not is_open_string(text):
        text = _STRING.sub(lambda match: '""' + "\n" * match[0].count("\n"), text)
    body = list(_imports(text))
    last = text.rstrip().count("\n") + 1
    scopes: list[tuple[int, ast.ClassDef | ast.FunctionDef]] = []
    for match in _SCOPE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        while scopes and scopes[-1][0] >= _width(match[1]):
            scopes.pop()[1].end_lineno = line - 1
        node = _scope(match, line, last)
        (scopes[-1][1].body if scopes else body).append(node)
        scopes.append((_width(match[1]), node))
    return body


def _imports(text: str) -> Iterator[ast.stmt]:
    for match in _IMPORT.finditer(text):
        try:
            yield from ast.parse(match[1]).body
        except (SyntaxError, ValueError):
            yield from _names_of_import(match[2] or "", match[3])


def _names_of_import(module: str, text: str) -> Iterator[ast.stmt]:
    """Yields an import of those names in `from module import ...` that are complete; nothing for an incomplete
    `import a.b`."""
    names = []
    for name, other in _AS.findall(text) if module else ():
        if keyword.iskeyword(name) or name.isdigit():
            break
        names.append(ast.alias(name=name, asname=other or None))
    if names:
        dots = len(module) - len(module.lstrip("."))
        yield ast.ImportFrom(module.lstrip(".") or None, names, dots, lineno=1, col_offset=0)


def _scope(match: re.Match[str], line: int, last: int) -> ast.ClassDef | ast.FunctionDef:
    node: ast.ClassDef | ast.FunctionDef
    if match[2] == "def":
        node = ast.FunctionDef(name=match[3], args=_NOTHING, body=[], decorator_list=[])
    else:
        node = ast.ClassDef(name=match[3], bases=_bases(match[4] or ""), keywords=[], body=[], decorator_list=[])
    node.lineno, node.end_lineno, node.col_offset = line, last, len(match[1])
    return node


def _bases(text: str) -> list[ast.expr]:
    """Returns the dotted names in `text`, the header of a class, up to the first Python keyword. In a header without
    its closing bracket, this keyword is in the next line."""
    bases = []
    for name in _NAME.findall(text):
        if keyword.iskeyword(name):
            break
        bases.append(ast.parse(name, mode="eval").body)
    return bases


def _width(indent: str) -> int:
    return len(indent.expandtabs())
