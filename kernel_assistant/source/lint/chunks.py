"""A file cut at its top-level classes and functions, so that a keystroke has one of them parsed and not all."""

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
#: Pieces whose summary is kept; a summary is small, and the piece itself is text that the document has anyway.
_KEPT = 4096
#: Pieces that are tried as one.
_MOST_JOINED = 4


@dataclass(frozen=True)
class Summary:
    """What other pieces have to know of one: its imports and its classes, without what is inside their functions.

    Two are equal where `text` is, which says all of it.
    """

    text: str
    skeleton: tuple[ast.stmt, ...] = field(compare=False)
    compiles: bool
    tf32: bool


def parsed_pieces(text: str) -> Iterator[tuple[int, str, Summary]]:
    """(lines above, text, summary) of each piece that is valid Python. One that is not may have been cut in the middle
    of a string: it is tried together with those behind it."""
    cut = list(pieces(text))
    number = 0
    while number < len(cut):
        above = cut[number][0]
        for end in range(number + 1, min(number + _MOST_JOINED, len(cut)) + 1):
            piece = "".join(part for _, part in cut[number:end])
            found = summary(piece)
            if found is not None:
                yield above, piece, found
                number = end
                break
        else:
            number += 1


@lru_cache(maxsize=_KEPT)
def summary(text: str) -> Summary | None:
    """None where `parse_piece` has none."""
    tree = parse_piece(text)
    if tree is None:
        return None
    skeleton = tuple(_skeleton(tree.body))
    said = "\n".join(f"{node.lineno} {ast.unparse(node)}" for node in skeleton)
    return Summary(said, skeleton, "torch.compile(" in text or ".compile()" in text, _TF32.search(text) is not None)


def _skeleton(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Imports, aliases and classes; a class that has `forward` keeps an empty one."""
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
