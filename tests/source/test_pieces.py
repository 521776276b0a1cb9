"""Long files are read in pieces: the results equal those for the whole file."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from kernel_assistant.apply.applied import is_same_class
from kernel_assistant.errors import UsageError
from kernel_assistant.source import find
from kernel_assistant.source.find import find_modules
from kernel_assistant.source.reach import reachable
from kernel_assistant.source.slim import slim_tree
from kernel_assistant.worker.applied.fingerprint import fingerprint
from tests.source.test_find import ALIASES

_TORCH = Path(str(importlib.util.find_spec("torch").origin)).parent  # type: ignore[union-attr]
FILES = [_TORCH / "nn" / "modules" / f"{name}.py" for name in ("activation", "rnn", "module", "batchnorm", "container")]

NESTED = '''"""A file."""
import torch
if torch.cuda.is_available():
    from torch import nn
else:
    from torch import nn


@decorated(1)
class Outer(nn.Module):
    """What it does.

    More of it."""

    class Inner(nn.Module):
        forward = None

    def forward(self, x):
        class Hidden(nn.Module):
            def forward(self, x):
                return x

        for each in x:
            import other
        return x


try:
    Base = nn.Module
except AttributeError:
    class Base: ...


def make():
    class Made(Base):
        async def other(self): ...
    return Made


class Late(Base): pass
'''
STRING = 'from torch import nn\nTEXT = """\nclass NotOne(nn.Module):\n    pass\n"""\nclass One(nn.Module): pass\n'


def both(text, monkeypatch):
    """The results for the whole file, and piece by piece."""
    found = []
    for long in (1 << 40, 0):
        monkeypatch.setattr(find, "LONG", long)
        found.append(find_modules(text, "m.py"))
    return found


def test_modules_are_the_same_piece_by_piece(monkeypatch):
    for text in (*ALIASES, NESTED, STRING, *(path.read_text() for path in FILES)):
        whole, pieces = both(text, monkeypatch)
        assert whole == pieces


def test_a_tree_of_pieces_has_nothing_of_functions_and_is_none_where_a_string_looks_like_a_class():
    tree = slim_tree(NESTED)
    assert tree is not None and not [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    assert slim_tree(STRING) is None


def test_a_long_file_that_is_not_python_is_told_with_its_line(monkeypatch):
    monkeypatch.setattr(find, "LONG", 0)
    with pytest.raises(UsageError, match=r"m\.py:41"):
        find_modules(NESTED + "class Broken(:\n", "m.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_class_cannot_reach_does_not_count(path):
    text = path.read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            assert fingerprint(reachable(text, node.name), node.name) == fingerprint(text, node.name)


PARTS = {
    "import": "from torch import nn\n",
    "helper": "def helper(x):\n    return deeper(x) * SCALE\n",
    "deeper": "@cached\ndef deeper(\n    x,\n):\n    return x\n",
    "other": "class Other(nn.Module):\n    def forward(self, x): return x\n",
    "scale": "def unused(): ...\nSCALE = 2\n",
    "class": "class Block(nn.Module):\n    def forward(self, x):\n        return helper(x) + self.__y\n",
    "mangled": "def _Block__y(): return 1\n",
}


def test_the_closure_of_a_class_is_what_is_left():
    kept = reachable("\n".join(PARTS.values()), "Block")
    gone = [name for name, text in PARTS.items() if text not in kept]
    assert gone == ["other"]


@pytest.mark.parametrize(
    ("part", "before", "after", "same"),
    [
        ("other", "return x", "return -x", True),
        ("scale", "unused", "unused_still", True),
        ("scale", "2", "3", False),
        ("deeper", "return x", "return -x", False),
        ("deeper", "@cached\n", "", False),
        ("class", "+", "-", False),
        ("class", "return helper(x) + self.__y", "return  (helper(x)+  self.__y)  # more", True),
        ("mangled", "1", "2", True),
        ("import", "torch", "other", False),
    ],
)
def test_an_edit_counts_where_the_class_can_see_it(part, before, after, same):
    then = "\n".join(PARTS.values())
    now = "\n".join({**PARTS, part: PARTS[part].replace(before, after, 1)}.values())
    assert now != then
    assert is_same_class(now, then, "Block") is same


def test_what_is_not_python_at_the_moment_is_taken_for_the_same():
    then = "\n".join(PARTS.values())
    assert is_same_class(then.replace("class Block(", "class Block(("), then, "Block")
