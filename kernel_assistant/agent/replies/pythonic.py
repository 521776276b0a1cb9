"""Tool calls as Python writes them: Llama 4 and Gemma 3, `[write(path="a", text="b"), evaluate()]`."""

from __future__ import annotations

import ast
import re

from kernel_assistant.agent.replies.parsed import ParsedCall, from_values

_WRAPPED = re.compile(r"\A\s*(?:<\|python_start\|>|```tool_code\n)?(.*?)(?:<\|python_end\|>|```)?\s*\Z", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None}


def pythonic(text: str) -> list[ParsedCall]:
    """The calls, if the text has nothing else; an empty list otherwise."""
    wrapped = _WRAPPED.match(text)
    try:
        body = ast.parse(wrapped[1].strip() if wrapped else text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    found: list[ParsedCall] = []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        for node in value.elts if isinstance(value, ast.List) else [value]:
            call = _call(node)
            if call is None:
                return []
            found.append(call)
    return found


def _call(node: ast.expr | None) -> ParsedCall | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        return None
    try:
        return from_values(node.func.id, {word.arg: _value(word.value) for word in node.keywords if word.arg})
    except ValueError:
        return None


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    return ast.literal_eval(node)
