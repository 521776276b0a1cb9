"""Tests the names that a statement uses, the text of a live value in one line, and whether live code equals a text."""

from __future__ import annotations

import ast
import collections
import math
from collections import OrderedDict as Ordered

import pytest
import torch
import torch.nn.functional as F

from kernel_assistant.source.one_line import import_of, plain_of
from kernel_assistant.source.same_code import changed_members, codes_in
from kernel_assistant.source.uses import uses_of

CLASS = """\
@decorate
class Net(Base):
    size = SIZE
    parts = [make(one) for one in ITEMS]

    def __init__(self, data=default):
        super().__init__()
        self.rows = [len(one) for one in table] + [SHARED]

    def forward(self, x):
        local = x + SHARED
        return [act(one) for one in local]
"""


def test_names_are_told_by_when_they_are_needed():
    uses = uses_of(CLASS)
    assert set(uses.now) == {"decorate", "Base", "SIZE", "make", "ITEMS", "default"}
    assert set(uses.later) == {"SHARED", "act"}
    assert set(uses.building) == {"super", "len", "table"}


IMPORTS = "import torch.nn.functional as F\nimport torch, torch.fx\nimport math as F\n"
TEXTS = [IMPORTS, "def f(:", "from math import pi"]


@pytest.mark.parametrize(
    ("name", "value", "lines"),
    [
        ("F", F, ["import torch.nn.functional as F"]),
        ("torch", torch, ["import torch", "import torch.fx"]),
        ("pi", math.pi, ["from math import pi"]),
        ("pi", 3.0, []),
        ("nn", torch.nn, ["import torch.nn as nn"]),
        ("Ordered", Ordered, ["from collections import OrderedDict as Ordered"]),
        ("act", torch.relu, ["from torch import relu as act"]),
        ("rows", collections.deque(), []),
    ],
)
def test_an_import_is_the_one_of_a_text_that_gives_the_value_or_is_made(name, value, lines):
    assert import_of(name, value, TEXTS) == lines


@pytest.mark.parametrize(
    "value",
    [None, True, 1.5, -math.inf, "a", b"a", 2j, (), (1,), [1, "b"], {"a": (1, 2)}, {1}, torch.float16, torch.strided],
)
def test_a_plain_value_comes_back_from_its_expression(value):
    again = eval(plain_of(value))
    assert again == value and type(again) is type(value)


def test_a_device_and_what_is_no_plain_value():
    assert eval(plain_of(torch.device("cuda", 1))) == torch.device("cuda:1")
    assert math.isnan(eval(plain_of(math.nan)))
    for value in (torch.ones(1), object(), [object()], {"a": object()}, list(range(100_000))):
        assert plain_of(value) is None


LIVE = """\
class Net(Base):
    scale = 2.0
    def forward(self, x):
        return x + self.scale
    @property
    def half(self):
        return self.scale / 2
    @forgetful
    def third(self):
        return 3
    if True:
        def fourth(self):
            return 4
"""


def live(text=LIVE):
    """The class that a text defines, its node, and the code of `LIVE`."""
    names = {"Base": object, "forgetful": torch.no_grad(), "__name__": __name__}
    exec(text, names)
    node = ast.parse(LIVE).body[0]
    return names["Net"], node, codes_in(LIVE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("forward", lambda self, x: x), ("half", property(lambda self: 5)), ("scale", 2.5), ("added", lambda self: 1)],
)
def test_members_that_were_replaced_or_added_are_named(name, value):
    cls, node, codes = live()
    if callable(value):
        value.__qualname__ = f"Net.{name}"
    if isinstance(value, property):
        value.fget.__qualname__ = "Net.half"
    setattr(cls, name, value)
    assert changed_members(cls, node, codes) == [name]


def test_a_text_that_was_edited_is_noticed_and_one_that_was_moved_is_not():
    assert changed_members(*live("# further down\n\n" + LIVE)) == []
    assert changed_members(*live(LIVE.replace("x + self", "x - self"))) == ["forward"]
