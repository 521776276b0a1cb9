"""The classes of a text that is being typed: an error in one place does not remove classes elsewhere."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from kernel_assistant.source import find_modules
from kernel_assistant.source.outline import outline
from tests.source.test_find import ALIASES
from tests.source.test_pieces import FILES, NESTED, STRING

TEXT = '''import torch
from torch import (
    nn,
)

SCALE = 2


class Gate(nn.Module):
    """What it does."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)

    def forward(self, x):
        y = torch.relu(x)
        return y


@torch.no_grad
class Other(Gate):
    def forward(self, x):
        return x


model = Gate()
'''
GATE, OTHER = ("Gate", 9, 18), ("Other", 21, 24)


def places(text: str) -> list[tuple[str, int, int]]:
    return [(one.name, one.line, one.end_line) for one in outline(text).classes]


def test_what_is_python_is_read_as_python() -> None:
    for text in (*ALIASES, NESTED, STRING, TEXT, *(path.read_text() for path in FILES)):
        found = outline(text)
        assert found.classes == tuple(one for one in find_modules(text, "m.py") if one.has_forward)
        assert not found.faults


BROKEN = {
    "an open bracket": ("relu(x)", "relu((x", 17),
    "an open string": ("relu(x)", 'relu(x"', 17),
    "a header without its end": ("class Gate(nn.Module):", "class Gate(nn.Module", 9),
    "a header without a colon": ("class Gate(nn.Module):", "class Gate(nn.Module)", 9),
    "a forward without its end": ("def forward(self, x):", "def forward(self, x", 16),
    "an indentation": ("        y = ", "     y = ", 18),
    "a docstring without its end": ('"""What it does."""', '"""What it does.', 10),
    "an operand": ("return y", "return y +", 18),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_class_that_is_half_typed_stays_and_says_where(name: str) -> None:
    before, after, line = BROKEN[name]
    found = outline(TEXT.replace(before, after, 1))
    gate, other = found.classes
    assert (gate.name, gate.line) == GATE[:2] and (other.name, other.line, other.end_line) == OTHER
    fault = found.fault_of(gate)
    assert fault is not None and fault.line == line and fault.message
    assert found.fault_of(other) is None


@pytest.mark.parametrize("line", ["x = zeros((3,", "import", "from torch import nn,", "def helper(", "x = 'a", "1 +"])
@pytest.mark.parametrize("above", ["import torch", "SCALE = 2", "model = Gate()"])
def test_a_line_outside_the_classes_breaks_none_of_them(line: str, above: str) -> None:
    text = TEXT.replace(f"{above}\n", f"{above}\n{line}\n", 1)
    found = outline(text)
    down = 1 if above != "model = Gate()" else 0
    assert places(text) == [(name, first + down, last + down) for name, first, last in (GATE, OTHER)]
    assert found.faults and not any(found.fault_of(one) for one in found.classes)


def test_any_line_may_be_torn_without_harm_to_the_classes_elsewhere() -> None:
    """Lines of real files, but imports and class statements, are cut in half, or get another bracket or quote."""
    chance = random.Random(7)
    for text in [TEXT, *(path.read_text() for path in sorted(Path("examples").glob("*.py")))]:
        whole, lines = outline(text).classes, text.split("\n")
        told = _imports_and_headers(ast.parse(text))
        for number in chance.sample(sorted(set(range(len(lines))) - told), 12):
            torn = chance.choice([lines[number][: len(lines[number]) // 2], lines[number] + chance.choice("([{\"'")])
            now = "\n".join([*lines[:number], torn, *lines[number + 1 :]])
            elsewhere = {one.name for one in whole if not one.line - 1 <= number < one.end_line}
            assert elsewhere <= {one.name for one in outline(now).classes}, (number, torn)


def _imports_and_headers(tree: ast.Module) -> set[int]:
    """The lines (from 0) of imports and of class statements."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= set(range(node.lineno - 1, node.end_lineno or 0))
        elif isinstance(node, ast.ClassDef):
            found |= set(range(node.lineno - 1, node.body[0].lineno - 1))
    return found


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_are_those_of_the_editor(end: str) -> None:
    assert places(TEXT.replace("relu(x)", "relu(x").replace("\n", end)) == places(TEXT.replace("relu(x)", "relu(x"))
    assert places(TEXT.replace("\n", end)) == [GATE, OTHER]


def test_a_class_of_a_function_is_none_of_the_file() -> None:
    text = "from torch import nn\ndef make():\n    class In(nn.Module):\n        def forward(self, x): return (x\n"
    (found,) = outline(text).classes
    assert found.name == "In" and not found.addressable
