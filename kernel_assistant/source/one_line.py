"""Writes a value of the running program as one line of Python: an import, or an expression for a plain value."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

#: A plain value with more characters is considered data, not a constant of a program.
_LONGEST = 20_000
_ATOMS = (type(None), bool, int, str, bytes, complex)
#: Modules to search for functions of torch that have no `__module__`.
_HOMES = ("torch", "torch.nn.functional", "math")
_MISSING = object()


def import_of(name: str, value: Any, texts: Iterable[str]) -> list[str]:
    """Returns lines of Python that import `value` as `name` in another process: import statements found in `texts`,
    else a new one.

    There are several lines if submodules are imported under the name of their package; the list is empty if no import
    gives `value`.
    """
    written = [line for text in texts for line in _imports_in(text, name, value)]
    return list(dict.fromkeys(written)) or _made(name, value)


def plain_of(value: Any) -> str | None:
    """Returns an expression for a plain value (numbers, text, dtypes, devices, and containers of these), else None."""
    text = _expression(value)
    return text if text is not None and len(text) <= _LONGEST else None


def _imports_in(text: str, name: str, value: Any) -> list[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    imports = []
    for node in (one for one in ast.walk(tree) if isinstance(one, (ast.Import, ast.ImportFrom))):
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == name and _imported(node, alias) is value:
                line = ast.Import([alias]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [alias], 0)
                imports.append(ast.unparse(line))
    return imports


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
    """Returns the object to which `alias`, one name of the import statement `node`, refers in this process; `_MISSING`
    if it is not known."""
    if isinstance(node, ast.Import):
        whole = sys.modules.get(alias.name, _MISSING)
        return whole if alias.asname or whole is _MISSING else sys.modules.get(alias.name.partition(".")[0], _MISSING)
    if node.level or node.module is None:
        return _MISSING
    return _member(node.module, alias.name)


def _member(module: str, name: str) -> Any:
    member = getattr(sys.modules.get(module), name, _MISSING)
    return sys.modules.get(f"{module}.{name}", _MISSING) if member is _MISSING else member


def _made(name: str, value: Any) -> list[str]:
    if isinstance(value, ModuleType):
        known = sys.modules.get(value.__name__) is value and value.__name__ != "__main__"
        return [f"import {value.__name__} as {name}"] if known else []
    own = getattr(value, "__name__", None)
    for home in (getattr(value, "__module__", None), *_HOMES):
        if isinstance(own, str) and isinstance(home, str) and home != "__main__" and _member(home, own) is value:
            return [f"from {home} import {own} as {name}"]
    return []


def _expression(value: Any) -> str | None:
    kind = type(value)
    if kind in _ATOMS:
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "memory_format", "layout"):
        return f'__import__("torch").{str(value).removeprefix("torch.")}'
    if kind.__module__ == "torch" and kind.__name__ == "device":
        return f'__import__("torch").device({str(value)!r})'
    return _container(value)


def _container(value: Any) -> str | None:
    kind = type(value)
    if kind is dict:
        pairs = [(_expression(key), _expression(item)) for key, item in value.items()]
        whole = all(key is not None and item is not None for key, item in pairs)
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}" if whole else None
    if kind not in (tuple, list, set, frozenset):
        return None
    items = [_expression(item) for item in (value if kind in (tuple, list) else sorted(value, key=repr))]
    if None in items:
        return None
    inside = ", ".join(map(str, items))
    if kind is tuple:
        return f"({inside},)" if inside else "()"
    return f"[{inside}]" if kind is list else f"{kind.__name__}([{inside}])"
