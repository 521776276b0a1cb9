"""What a rule says of a place in the text, and what it is told besides the text."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Hint:
    """Lines are 1-based, columns count UTF-8 bytes from 0, as in syntax trees; the end is exclusive."""

    code: str
    message: str
    class_name: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def href(self) -> str:
        """Where the code is explained."""
        return f"{page().as_uri()}#{self.code.lower()}"


@lru_cache(maxsize=1)
def page() -> Path:
    """docs/diagnostics.md as it was installed, or of this checkout: of the same version, and no network is needed."""
    package = Path(__file__).resolve().parent.parent.parent
    installed = package / "docs" / "diagnostics.md"
    return installed if installed.is_file() else package.parent / "docs" / "diagnostics.md"


@dataclass(frozen=True)
class Machine:
    """What is known of the device: `tensor_cores` says that it has TF32, `tf32_gain` what that gained in jobs on it
    ("1.42 to 1.97 times as fast in 3 measured modules"), "" where none measured it."""

    name: str = ""
    tensor_cores: bool = False
    tf32_gain: str = ""


@dataclass(frozen=True)
class Found:
    """A rule's hint before it knows of its file: from the start of `first` to the end of `last`."""

    first: ast.expr | ast.stmt
    message: str
    last: ast.expr | ast.stmt | None = None

    def hint(self, code: str, class_name: str, above: int) -> Hint:
        """`above` lines stand before the text that was parsed. A block is marked by its first line alone."""
        last = self.last or self.first
        end_line, end_column = last.end_lineno or last.lineno, last.end_col_offset or last.col_offset + 1
        if isinstance(self.first, (ast.For, ast.While)):
            head = self.first.iter if isinstance(self.first, ast.For) else self.first.test
            end_line, end_column = head.end_lineno or head.lineno, head.end_col_offset or head.col_offset + 1
        return Hint(
            code=code,
            message=self.message,
            class_name=class_name,
            line=self.first.lineno + above,
            column=self.first.col_offset,
            end_line=end_line + above,
            end_column=end_column,
        )
