"""Reads tool calls that a server left in the text of a reply. Each family of models has its own syntax: between tags,
on channels, or as Python.

Each reader gets the text of a reply and returns its calls, in order. A value without quotes is returned as a string,
exactly as it was written; the tool's schema decides which type it becomes. The syntaxes are those of the families' chat
templates.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from kernel_assistant.agent.replies.parsed import ParsedCall, from_json, from_values, named_values, unreadable

Reader = Callable[[str], list[ParsedCall]]

_CALL_ENDS = r"(?:</(?:seed:)?tool_call>|(?=<(?:seed:)?tool_call>)|\Z)"
_FUNCTION = re.compile(rf"<function=([^>\s]+)>(.*?)(?:</function>|(?=<function=)|{_CALL_ENDS})", re.DOTALL)
# The text of a value may contain the closing tag: it is one if another tag or the end follows.
_PARAMETER = re.compile(
    r"<parameter=([^>\s]+)>(?:\n)?(.*?)(?:\n?</parameter>(?=\s*(?:<parameter=|\Z))|\n?(?=\n<parameter=)|\n?\Z)",
    re.DOTALL,
)
_KEY_AND_VALUE = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL)
_GLM_CALL = re.compile(rf"<tool_call>\s*([\w.-]+)\s*(?:(<arg_key>.*?){_CALL_ENDS}|</tool_call>)", re.DOTALL)
_INVOKE = re.compile(r"<((?:｜DSML｜)?)invoke name=\"?([^\">]+)\"?>(.*?)(?:</\1invoke>|\Z)", re.DOTALL)
_NAMED = re.compile(r"<((?:｜DSML｜)?)parameter name=\"?([^\">]+)\"?[^>]*>(.*?)(?:</\1parameter>|\Z)", re.DOTALL)
_MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*([\w.-]+?)(?:\[CALL_ID\]\w+)?(?:\[ARGS\]|(?=\{))")
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>([\w.-]+)\s*(?:```\w*)?|([\w.-]+)<｜tool▁sep｜>)", re.DOTALL
)
_KIMI = re.compile(r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>")
MESSAGE = "<|message|>"
_ENDS = re.compile(r"<\|(?:end|call|return|start)\|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECEIVER = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_WRAPPED = re.compile(r"\A\s*(?:<\|python_start\|>|```tool_code\n)?(.*?)(?:<\|python_end\|>|```)?\s*\Z", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None}


def tool_call(text: str) -> list[ParsedCall]:
    """Reads `<tool_call>` with JSON (Hermes, Qwen, Granite), functions (Qwen3-Coder), or keys and values (GLM)."""
    if "<function=" in text:
        return functions(text)
    parsed_calls: list[ParsedCall] = []
    read_until = 0
    for tag in re.finditer("<tool_call>", text):
        if tag.end() < read_until:
            continue
        of_glm = _GLM_CALL.match(text, tag.start())
        if of_glm:
            values = {key.strip(): value for key, value in _KEY_AND_VALUE.findall(of_glm[2] or "")}
            parsed_calls, read_until = [*parsed_calls, from_values(of_glm[1], values)], of_glm.end()
        else:
            calls, read_until = from_json(text, tag.end())
            # A call that cannot be read ends with its own tag, if there is one.
            closed = text.find("</tool_call>", tag.end())
            read_until = closed if calls[-1].problem and closed >= 0 else read_until
            parsed_calls += calls
    return parsed_calls


def functions(text: str) -> list[ParsedCall]:
    """Reads the calls of Qwen3-Coder and Seed-OSS: `<function=NAME>` with `<parameter=KEY>` and the value without
    quotes, with or without a line end before and after it."""
    return [from_values(name, dict(_PARAMETER.findall(body.rstrip()))) for name, body in _FUNCTION.findall(text)]


def invokes(text: str) -> list[ParsedCall]:
    """Reads the calls of DeepSeek V3.2 and MiniMax: `invoke` and `parameter` elements with names."""
    return [
        from_values(name, {key: value for _, key, value in _NAMED.findall(body)})
        for _, name, body in _INVOKE.findall(text)
    ]


def objects(text: str) -> list[ParsedCall]:
    """Reads the calls of Llama 3 and Granite: JSON objects, or a list of them, separated by `;` or commas. Returns an
    empty list if the text contains anything else."""
    parsed_calls: list[ParsedCall] = []
    at = 0
    while at < len(text):
        calls, at = from_json(text, at)
        if any(call.problem for call in calls):
            return []
        parsed_calls += calls
        at += len(re.match(r"(?:[\s;,]|<\|e\w+_id\|>)*", text[at:])[0])  # type: ignore[index]
    return parsed_calls


def mistral(text: str) -> list[ParsedCall]:
    """Reads the calls of Mistral: `[TOOL_CALLS]` with a list of objects; or `[TOOL_CALLS]` before each tool's name, and
    the arguments after the name."""
    named = [(match[1], match.end()) for match in _MISTRAL.finditer(text)]
    if named:
        return named_values(text, named)
    return from_json(text, text.index("[TOOL_CALLS]") + len("[TOOL_CALLS]"))[0]


def deepseek(text: str) -> list[ParsedCall]:
    """Reads the calls of DeepSeek V3 and R1 (the word `function`, the name, JSON between ``` lines), and of V3.1 (the
    name, JSON)."""
    named = ((match[1] or match[2], match.end()) for match in _DEEPSEEK.finditer(text))
    return named_values(text, named) or [unreadable("no name of a tool behind the tag")]


def kimi(text: str) -> list[ParsedCall]:
    """Reads the calls of Kimi K2: `functions.NAME:NUMBER`, then JSON."""
    named = ((match[1], match.end()) for match in _KIMI.finditer(text))
    return named_values(text, named) or [unreadable("no name of a tool behind the tag")]


def behind(tag: str) -> Reader:
    """Returns a reader (a function from a reply's text to its calls) that reads the JSON objects after `tag`."""

    def reader(text: str) -> list[ParsedCall]:
        return objects(text.partition(tag)[2]) or [unreadable("the tool call is not JSON")]

    return reader


#: The tag that a form begins with → its reader.
FORMS: dict[str, Reader] = {
    "<tool_call>": tool_call,
    "<function=": functions,
    "<|python_tag|>": behind("<|python_tag|>"),
    "<|tool_call|>": behind("<|tool_call|>"),
    "[TOOL_CALLS]": mistral,
    "<｜tool▁call▁begin｜>": deepseek,
    "<｜DSML｜invoke": invokes,
    "<invoke name=": invokes,
    "<|tool_call_begin|>": kimi,
}
#: Tags around all calls of a reply, which are not part of its text.
AROUND = (
    "<｜tool▁calls▁begin｜>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>",
    "<minimax:tool_call>",
    "<seed:tool_call>",
    "<|tool_calls_section_begin|>",
)


def harmony(text: str) -> tuple[str, str, list[ParsedCall]]:
    """Splits a reply of gpt-oss. Returns its reasoning (the channel `analysis`), its text, and its calls.

    Such a reply consists of messages on channels; a message is a call if it names a receiver. The header of a message,
    with channel and receiver in either order, ends with `<|message|>`.
    """
    reasoning, said, calls = list[str](), list[str](), list[ParsedCall]()
    for message in _ENDS.split(text):
        header, _, body = message.partition(MESSAGE)
        receiver, channel = _RECEIVER.search(header), _CHANNEL.search(header)
        if receiver:
            calls += named_values(body, [(receiver[1], 0)])
        elif channel and channel[1] == "analysis":
            reasoning.append(body.strip())
        else:
            said.append(body.strip())
    return "\n".join(filter(None, reasoning)), "\n".join(filter(None, said)), calls


def pythonic(text: str) -> list[ParsedCall]:
    """Reads the calls of Llama 4 and Gemma 3: `[write(path="a", text="b"), evaluate()]`. Returns an empty list if the
    text contains anything else."""
    wrapped = _WRAPPED.match(text)
    try:
        body = ast.parse(wrapped[1].strip() if wrapped else text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    calls: list[ParsedCall] = []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        for node in value.elts if isinstance(value, ast.List) else [value]:
            call = _call(node)
            if call is None:
                return []
            calls.append(call)
    return calls


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
