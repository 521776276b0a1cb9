"""A Python file as text, from which its exact bytes can be restored: byte order mark, encoding line, line ends and last
line are kept."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from dataclasses import dataclass

from kernel_assistant.errors import UsageError

#: Line ends as Python's own tokenizer sees them; `str.splitlines` splits at more.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True)
class SourceText:
    """A decoded file. `text` has no byte order mark; `mark` says whether the file has one. The method `encode` is the
    inverse of `decode_source`."""

    text: str
    encoding: str
    mark: bool

    def encode(self, text: str) -> bytes:
        """Returns a changed text in the file's own encoding. Raises UsageError if the encoding lacks a character."""
        try:
            return (codecs.BOM_UTF8 if self.mark else b"") + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise UsageError(f"the file's encoding {self.encoding} lacks a character: {error}", "use UTF-8") from error


def decode_source(data: bytes, name: str) -> SourceText:
    """Decodes a file with the encoding that its byte order mark or its encoding line names, else as UTF-8. Raises
    UsageError if that fails."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        mark = data.startswith(codecs.BOM_UTF8)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        return SourceText(data[3 if mark else 0 :].decode(encoding), encoding, mark)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise UsageError(f"{name} cannot be decoded: {error}", "save it as UTF-8") from error


def split_lines(text: str) -> list[str]:
    """Returns the lines of `text` with their line ends, so that `"".join` restores the text."""
    return _LINE.findall(text)


def indent_of(line: str) -> str:
    """Returns the spaces, tabs and form feeds with which a line begins."""
    return line[: len(line) - len(line.lstrip(" \t\f"))]


def line_end(line: str, default: str = "\n") -> str:
    """Returns the line end of `line`: CRLF, LF or CR; `default` if it has none."""
    return line[len(line.rstrip("\r\n")) :] or default


def parse(text: str, name: str) -> ast.Module:
    """Returns the syntax tree of `text`. Its line numbers, from 1, count the lines of `split_lines`. Raises UsageError
    if the text has a syntax error."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{name}:{error.lineno}: {error.msg}", "mend the syntax error first") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a Python file: {error}", "name a Python source file") from error
