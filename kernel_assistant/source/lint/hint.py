"""A hint for a range of the text, and the facts about the device that rules use besides the text."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kernel_assistant.targets.base import DeviceFacts

#: Compute capability of Ampere, the first architecture with TF32.
_FIRST_TF32 = 80


@dataclass(frozen=True)
class Hint:
    """A hint for a range of the text. Lines are 1-based, columns count UTF-8 bytes from 0, as in syntax trees.
    `end_column` is exclusive."""

    code: str
    message: str
    class_name: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def href(self) -> str:
        """The address of the page that explains the hint's code."""
        return f"{page().as_uri()}#{self.code.lower()}"


@lru_cache(maxsize=1)
def page() -> Path:
    """Returns the path of docs/diagnostics.md in the installed package or in this checkout. This copy has the right
    version and needs no network."""
    package = Path(__file__).resolve().parent.parent.parent
    installed = package / "docs" / "diagnostics.md"
    return installed if installed.is_file() else package.parent / "docs" / "diagnostics.md"


@dataclass(frozen=True)
class DeviceTraits:
    """Facts about the device. `tensor_cores` says whether it has TF32. `tf32_gain` is the gain from TF32 in earlier
    jobs ("1.42 to 1.97 times as fast in 3 measured modules"), "" if no job measured it."""

    name: str = ""
    tensor_cores: bool = False
    tf32_gain: str = ""


@dataclass(frozen=True)
class RuleHint:
    """A hint as a rule returns it, without the rule's code and the class. It covers the range from the start of `first`
    to the end of `last` (without `last`, to the end of `first`)."""

    first: ast.expr | ast.stmt
    message: str
    last: ast.expr | ast.stmt | None = None

    def hint(self, code: str, class_name: str, above: int) -> Hint:
        """Returns the hint for the file, in which `above` lines precede the parsed text. For a loop, only its header
        is marked."""
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


def machine_of(facts: DeviceFacts | None, tf32_gain: str = "") -> DeviceTraits:
    """Returns the traits of the device with `facts`. With None the device is unknown, and rules that need one give no
    hints."""
    if facts is None:
        return DeviceTraits()
    number = facts.arch.removeprefix("sm_")
    tensor_cores = facts.target == "cuda" and number.isdigit() and int(number) >= _FIRST_TF32
    return DeviceTraits(name=facts.name, tensor_cores=tensor_cores, tf32_gain=tf32_gain)
