"""The edit and its inverse on texts, without files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_assistant.apply.edit import BLOCK, IMPORT_LINE, decorator_line, plan_edit
from kernel_assistant.apply.takeback import decorated_classes, is_current, take_back
from kernel_assistant.apply.text import decode_source, split_lines
from kernel_assistant.errors import UsageError
from kernel_assistant.worker.applied.fingerprint import fingerprint

LINE = decorator_line("Net")
PLAIN = "import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n"


def applied(text: str, class_name: str = "Net") -> str:
    return plan_edit(text, class_name, BLOCK, decorator_line(class_name)).apply(text)


def undone(text: str, class_name: str = "Net") -> str:
    edit = plan_edit(PLAIN.replace("Net", class_name), class_name, BLOCK, decorator_line(class_name))
    return take_back(text, class_name, edit, IMPORT_LINE)


def test_a_block_and_a_line_are_added_and_nothing_else() -> None:
    assert applied(PLAIN) == f"import torch\n\n{BLOCK}\n\n\n{LINE}\nclass Net(torch.nn.Module):\n    pass\n"


HEADS = {
    "docstring and future": '"""Doc."""\nfrom __future__ import annotations\n\nimport torch\n',
    "shebang, encoding": "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nimport torch\n",
    "parenthesised import": "from torch import (\n    nn,\n    Tensor,\n)\nimport torch\n",
    "statements on one line": "import torch; x = '''\nclass Net: pass\n'''\n",
    "no import": "# a comment\n",
    "import in try": "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
    "form feed": "import torch\n\f\n",
    "backslash": "import torch, \\\n    os\n",
}
BODIES = {
    "decorated": "@register('a')\n@other\nclass Net(Base):\n    def forward(self, x):\n        return x\n",
    "in an if": "if True:\n\tclass Net(Base):\n\t\tx = 1\n",
    "one line": "class Net(Base): x = 1",
    "comment above": "# about it\nclass Net(Base):  # more\n    x = 1",
    "twin in a function": "def f():\n    class Other: pass\nclass Net(Base): pass\n",
}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("head", HEADS)
def test_round_trip(head: str, body: str, end: str) -> None:
    text = (HEADS[head] + BODIES[body]).replace("\n", end)
    changed = applied(text)
    own = len(split_lines(BLOCK)) + 1
    assert len(split_lines(changed)) - len(split_lines(text)) in (own, own + 1)
    assert changed.count(end) - text.count(end) in (own, own + 1)
    assert len(re.findall("\r\n|\r|\n", changed)) == changed.count(end)
    assert undone(changed) == text


NAMES = st.sampled_from(["a", "b2", "Net2", "_x", "größe"])
STATEMENTS = st.one_of(
    st.builds("import {} as {}".format, st.sampled_from(["os", "sys", "torch.nn"]), NAMES),
    st.builds("from os import path as {}".format, NAMES),
    st.builds("{} = {!r}".format, NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    st.builds("class {}:\n    '''{}'''\n    x = 1".format, NAMES, st.sampled_from(["", "doc", "a\n\nb"])),
    st.builds("def {}(x):\n\treturn x".format, NAMES),
    st.builds("# {}".format, st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8)),
    st.just("if 1:\n    y = (1,\n  2)"),
    st.sampled_from(["", "\f", "   ", "x = 1; z = '''\n'''"]),
)


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(STATEMENTS, max_size=6),
    after=st.lists(STATEMENTS, max_size=4),
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
)
def test_any_file_comes_back(before: list[str], after: list[str], end: str, final: bool) -> None:
    text = "\n".join([*before, "class Net(object):\n    y = 2", *after]) + ("\n" if final else "")
    text = text.replace("\r", "").replace("\n", end)
    changed = applied(text)
    assert decorated_classes(changed) == ["Net"]
    assert undone(changed) == text


@settings(max_examples=60, deadline=None)
@given(extra=st.lists(STATEMENTS, max_size=4), where=st.sampled_from(["top", "end", "above class"]))
def test_edits_elsewhere_stay(extra: list[str], where: str) -> None:
    block = "".join(line + "\n" for line in extra)
    places = {"top": 0, "end": len(PLAIN), "above class": PLAIN.index("class")}
    changed = applied(PLAIN)
    marks = {"top": 0, "end": len(changed), "above class": changed.index(LINE)}
    edited = changed[: marks[where]] + block + changed[marks[where] :]
    assert undone(edited) == PLAIN[: places[where]] + block + PLAIN[places[where] :]


def test_two_classes_share_the_block() -> None:
    text = PLAIN + "\nclass Two(torch.nn.Module):\n    pass\n"
    both = applied(applied(text), "Two")
    assert both.count(BLOCK) == 1
    assert undone(both, "Net") == applied(text, "Two")
    assert undone(undone(both, "Net"), "Two") == text
    assert undone(undone(both, "Two"), "Net") == text


@pytest.mark.parametrize(
    "command",
    [
        ["format", "--config", "format.quote-style='single'", "--line-length=60"],
        ["check", "--select", "I", "--fix", "-q", "--config", "lint.isort.combine-as-imports=true"],
    ],
)
def test_a_formatter_may_have_been_there(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    before = "import torch\nfrom torch import nn\nfrom runpy import run_module\n\n\nclass Net(nn.Module):\n    x = 1\n"
    path.write_text(applied(before))
    subprocess.run([sys.executable, "-m", "ruff", *command, "--isolated", str(path)], check=True)
    formatted = path.read_text()
    assert formatted != applied(before)
    result = undone(formatted)
    assert "runpy import run_path" not in result and "_kernels" not in result
    assert {ast.dump(node) for node in ast.parse(result).body} == {ast.dump(node) for node in ast.parse(before).body}


BEFORE = '@_run_path(__file__[:-3] + "_kernels/load.py")["accelerated"]("Net")'


def applied_before(text: str) -> str:
    """Applies the edit in the form of older versions, without a block."""
    return plan_edit(text, "Net", IMPORT_LINE, BEFORE).apply(text)


@pytest.mark.parametrize("head", HEADS)
def test_lines_of_before_come_out_again(head: str) -> None:
    text = HEADS[head] + BODIES["decorated"]
    old = applied_before(text)
    assert decorated_classes(old) == ["Net"] and not is_current(old, "Net")
    assert undone(old) == text
    assert fingerprint(old, "Net") == fingerprint(text, "Net") == fingerprint(applied(text), "Net")


def test_both_forms_in_one_file_come_out_one_by_one() -> None:
    text = PLAIN + "\nclass Two(torch.nn.Module):\n    pass\n"
    both = applied(applied_before(text), "Two")
    assert undone(both, "Two") == applied_before(text)
    assert undone(both, "Net") == applied(text, "Two")


def test_our_block_is_no_part_of_a_class_that_names_what_it_binds() -> None:
    text = "import warnings\n\n\nclass Net:\n    def forward(self):\n        warnings.warn('x')\n"
    assert fingerprint(applied(text), "Net") == fingerprint(text, "Net") != ""


def test_a_broken_file_loses_exactly_our_lines() -> None:
    broken = applied(PLAIN) + "def f(:\n"
    assert undone(broken) == PLAIN + "def f(:\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("class Other: pass\n", "no class Net"),
        ("class Net: pass\nclass Net: pass\n", "2 times"),
        ("try:\n  class Net: pass\nexcept E:\n  class Net: pass\n", "2 times"),
        ("def f():\n  class Net: pass\n", "inside a function"),
        ("class A:\n  class Net: pass\n", "inside a function or a class"),
        ("class Net(: pass\n", "invalid syntax"),
        ("x = 1\0\n", "null"),
        ("_with_kernels = 1\nclass Net: pass\n", "_with_kernels"),
        ("def _with_kernels(): pass\nclass Net: pass\n", "_with_kernels"),
        ("from own import warnings\nclass Net: pass\n", "name warnings"),
        ("import own as runpy\nclass Net: pass\n", "name runpy"),
        pytest.param(applied(PLAIN), "already", id="twice"),
    ],
)
def test_refusals(text: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        applied(text)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfimport torch\r\nclass Net: pass",
        b"# coding: latin-1\nx = '\xe9'\nclass Net: pass\n",
        "# -*- coding: utf-8 -*-\nx = 'ü\u2028\x0c'\nclass Net: pass\n".encode(),
    ],
)
def test_bytes_come_back(data: bytes) -> None:
    source = decode_source(data, "model.py")
    changed = source.encode(applied(source.text))
    compile(changed, "model.py", "exec")
    again = decode_source(changed, "model.py")
    assert again.encode(undone(again.text)) == data


def test_undecodable_is_refused() -> None:
    with pytest.raises(UsageError, match="decoded"):
        decode_source(b"x = '\xff'\n", "model.py")
