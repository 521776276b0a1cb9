"""Parses the comment `# kernel-assistant: inputs=(torch.randn(8, 1024),) init=(1024,)`.

Fields are `name`, `inputs`, `kwargs`, `init`, `init_kwargs`, `training`, each followed by `=` and a Python expression
(`name` by a bare word or string, `training` by True or False), separated by spaces or commas. An expression with an
open bracket continues in the comment line below.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field

from kernel_assistant.errors import UsageError

FIELDS = ("name", "inputs", "kwargs", "init", "init_kwargs", "training")
EXAMPLE = "# kernel-assistant: inputs=(torch.randn(8, 1024),) init=()"
#: Excludes `ignore`, which turns hints off and declares nothing (source/lint/suppressions.py).
_MARK = re.compile(r"#\s*kernel-assistant\s*:\s*(?!ignore\b)(.*)")
_STRING = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_TOKEN = re.compile(rf"({_STRING.pattern})|([(\[{{])|([)\]}}])|\b([A-Za-z_]\w*)\s*=(?!=)")


@dataclass(frozen=True)
class Comment:
    """One comment before it is parsed: its first and last line (1-based), and the text after `# kernel-assistant:`."""

    line: int
    end: int
    body: str


@dataclass(frozen=True)
class Declaration:
    """One parsed comment: its first line (1-based), and the expression of each of its fields (field → text)."""

    line: int
    fields: dict[str, str] = field(default_factory=dict)


def find_comments(text: str) -> list[Comment]:
    """Returns every comment that declares inputs. They are not parsed yet, so that an error in one of them does not
    affect other classes."""
    lines = _comment_lines(text)
    comments = []
    for line in sorted(lines):
        match = _MARK.fullmatch(lines[line])
        if match:
            body, end = match.group(1), line
            while _open_brackets(body) and end + 1 in lines and not _MARK.fullmatch(lines[end + 1]):
                end += 1
                body += " " + lines[end].lstrip("# ")
            comments.append(Comment(line, end, body))
    return comments


def read_declaration(comment: Comment, path: str) -> Declaration:
    """Parses a comment. Raises UsageError with the line number if the comment is invalid."""
    return Declaration(comment.line, split_fields(comment.body, f"{path}:{comment.line}"))


def split_fields(body: str, where: str) -> dict[str, str]:
    """Parses `inputs=(x,) init=(3,)` to {"inputs": "(x,)", "init": "(3,)"}. Raises UsageError; its message begins
    with `where`."""
    starts = _field_starts(body)
    if not starts or body[: starts[0][1]].strip():
        raise UsageError(f"{where}: cannot read {body.strip()!r}", f"write it like this: {EXAMPLE}")
    ends = [start for _, start, _ in starts[1:]] + [len(body)]
    fields: dict[str, str] = {}
    for (name, _, after), end in zip(starts, ends, strict=True):
        if name not in FIELDS:
            raise UsageError(f"{where}: unknown field {name!r}", f"the fields are {', '.join(FIELDS)}")
        if name in fields:
            raise UsageError(f"{where}: {name} is given twice", "use one comment for each workload")
        fields[name] = check_expression(body[after:end].strip().rstrip(",").rstrip(), name, where)
    return fields


def check_expression(expression: str, name: str, where: str) -> str:
    """Returns `expression` without surrounding spaces (for the field `name` also without quotes). Raises UsageError
    if it is not Python."""
    expression = expression.strip()
    if name == "name":
        return expression.strip("'\"")
    if name == "training" and expression not in ("True", "False"):
        raise UsageError(f"{where}: training={expression} is neither True nor False", "training=True is train mode")
    try:
        ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"{where}: {name}={expression} is not a Python expression", f"write it like this: {EXAMPLE}"
        ) from error
    return expression


def _comment_lines(text: str) -> dict[int, str]:
    """Maps line numbers to the comments that are alone on their line. `text` must be valid Python."""
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            lines[token.start[0]] = token.string.rstrip()
    return lines


def _field_starts(body: str) -> list[tuple[str, int, int]]:
    """Returns (name, offset of the name, offset after `=`) for every `name=` outside brackets and strings."""
    depth, fields = 0, []
    for match in _TOKEN.finditer(body):
        depth += bool(match.group(2)) - bool(match.group(3))
        if match.group(4) and depth == 0 and _begins_word(body, match.start()):
            fields.append((match.group(4), match.start(), match.end()))
    return fields


def _begins_word(body: str, start: int) -> bool:
    return start == 0 or body[start - 1] in " \t,"


def _open_brackets(body: str) -> bool:
    outside_strings = _STRING.sub("", body)
    return sum(outside_strings.count(c) for c in "([{") > sum(outside_strings.count(c) for c in ")]}")
