"""Parses a file in pieces, one for each top-level class or function, so that after a keystroke only one piece is parsed
again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from kernel_assistant.source.pieces import parse_piece, pieces

_TF32 = re.compile(
    r"set_float32_matmul_precision\(\s*[\"'](?:high|medium)|allow_tf32\s*=\s*True|fp32_precision\s*=\s*[\"']tf32"
)
#: The number of cached summaries. A summary is small, and the document has the text of the piece anyway.
_KEPT = 4096
#: At most this many pieces are joined.
_MOST_JOINED = 4


@dataclass(frozen=True)
class Summary:
    """The facts about one piece of a file (a top-level class or function) on which hints for other pieces depend: its
    imports and its classes, without the bodies of functions. `compiles` says whether the piece calls torch.compile,
    `tf32` whether it enables TF32.

    Two summaries are equal if `text` (the code of `skeleton`), `compiles` and `tf32` are equal.
    """

    text: str
    skeleton: tuple[ast.stmt, ...] = field(compare=False)
    compiles: bool
    tf32: bool


def parsed_pieces(text: str) -> Iterator[tuple[int, str, Summary]]:
    """Yields (number of lines above, text, summary) of each piece (a top-level class or function) that is valid Python.
    A piece that is not valid may be only a part of a statement with a long string, so it is also tried together with
    the following pieces."""
    cut = list(pieces(text))
    number = 0
    while number < len(cut):
        above = cut[number][0]
        for end in range(number + 1, min(number + _MOST_JOINED, len(cut)) + 1):
            piece = "".join(part for _, part in cut[number:end])
            parsed = summary(piece)
            if parsed is not None:
                yield above, piece, parsed
                number = end
                break
        else:
            number += 1


@lru_cache(maxsize=_KEPT)
def summary(text: str) -> Summary | None:
    """Returns the facts about a piece of a file on which hints for other pieces depend; None if the piece is not valid
    Python."""
    tree = parse_piece(text)
    if tree is None:
        return None
    skeleton = tuple(_skeleton(tree.body))
    code = "\n".join(f"{node.lineno} {ast.unparse(node)}" for node in skeleton)
    return Summary(code, skeleton, "torch.compile(" in text or ".compile()" in text, _TF32.search(text) is not None)


def _skeleton(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a summary: imports, aliases and classes. The body of a class has only an empty
    `forward`, and only if the class defines one."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
        ):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield _bare(node)
            yield from (inner for inner in _skeleton(node.body) if not isinstance(inner, ast.Assign))
        elif not isinstance(node, ast.expr):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    yield from _skeleton([child])


def _bare(node: ast.ClassDef) -> ast.ClassDef:
    names = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
    body: list[ast.stmt] = ast.parse("def forward(self): ...").body if "forward" in names else [ast.Pass()]
    bare = ast.ClassDef(name=node.name, bases=node.bases, keywords=[], body=body, decorator_list=[])
    return ast.copy_location(bare, node)
