"""Hints: each rule is tested on code that it is for, and on similar code that is fine."""

# ruff: noqa: E501 - one module a line

from __future__ import annotations

import textwrap

import pytest

from kernel_assistant.records.codec import decode, encode
from kernel_assistant.source.lint import RULES, DeviceTraits, Hint, find_hints
from kernel_assistant.source.lint.hint import machine_of, page
from kernel_assistant.targets.base import DeviceFacts

HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, Tensor

"""
GPU = DeviceTraits(name="a GPU", tensor_cores=True)


def module(forward: str, init: str = "pass", *, arguments: str = "x", rest: str = "") -> str:
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    made = textwrap.indent(textwrap.dedent(init).strip(), " " * 8)
    return (
        f"{HEAD}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n\n"
        f"    def forward(self, {arguments}):\n{body}\n{textwrap.indent(textwrap.dedent(rest), '    ')}"
    )


def codes(text: str, machine: DeviceTraits = GPU) -> list[str]:
    return [hint.code for hint in find_hints(text, machine)]


PROJECTION = "self.proj = nn.Linear(8, 8)"
FOUND = [
    ("KA001", module("return self.proj(x)", PROJECTION)),
    ("KA001", module("return torch.einsum('bi,ij->bj', x, self.w)")),
    ("KA001", module("return self.scores(x)", rest="def scores(self, x):\n    return x @ x.transpose(-1, -2)\n")),
    ("KA002", module("return torch.tanh(x.exp() + 1) * 2")),
    ("KA002", module("a = F.gelu(x)\nb = a * 2\nc = b + 1\nreturn c.sigmoid()")),
    ("KA002", module("h = self.act(x)\nh += 1\nh *= 3\nreturn torch.where(h > 0, h, -h)", "self.act = nn.SiLU()")),
    ("KA002", module("if self.training:\n    return x\ny = x.abs().sqrt()\nreturn torch.log(y + 1)")),
    ("KA003", module("for i in range(x.shape[0]):\n    y = x[i] @ x[i].T\nreturn y")),
    ("KA003", module("b, t, _ = x.shape\nout = []\nfor i in range(t):\n    out.append(x[:, i].sum(-1))\nreturn out")),
    ("KA003", module("return torch.stack([row * 2 for row in torch.unbind(x)] or [x[i] + 1 for i in range(len(x.view(-1)))])")),
    ("KA003", module("return torch.stack([torch.sort(x[i])[0] for i in range(x.size(0))])")),
    ("KA003", module("out = 0\nfor row in x:\n    out = out + row\nreturn out", arguments="x: Tensor")),
    ("KA004", module("out = x\nfor layer in self.layers:\n    out = torch.cat([out, layer(out)], dim=1)\nreturn out")),
    ("KA004", module("for layer in self.layers:\n    skip = x.contiguous()\n    y = layer(skip)\nreturn y + x.view(1)")),
    ("KA005", module("scale = x.abs().max().item()\nreturn x / scale")),
    ("KA005", module("if x.sum() > 0:\n    return x\nreturn -x")),
    ("KA005", module("y = F.relu(x)\nprint(f'mean {y.mean()}')\nreturn y")),
    ("KA005", module("while not (x > 0).all():\n    x = x + 1\nreturn x.exp()")),
    ("KA005", module("keep = torch.nonzero(x)\nreturn keep")),
    ("KA005", module("y = torch.softmax(x, -1).to('cpu')\nreturn y")),
    ("KA005", module("y = x.view(-1)\nreturn y[y > 0]")),
    ("KA005", module("return float(x.mean()) if bool(F.relu(x).any()) else 0.0")),
    ("KA006", module("for t in range(x.size(1)):\n    h = self.cell(x[:, t], h)\nreturn h", "self.cell = nn.GRUCell(8, 8)", arguments="x, h")),
    ("KA006", module("h = x.new_zeros(8)\nfor t in range(x.size(1)):\n    h = torch.tanh(self.proj(h) + x[:, t])\nreturn h", PROJECTION)),
    ("KA007", module("return F.relu(x).transpose(1, 2).transpose(2, 1)")),
    ("KA007", module("return x.permute(0, 2, 1).permute(0, 2, 1)")),
    ("KA007", module("y = x.permute(0, 2, 3, 1)\ny = y.permute(0, 2, 1, 3)\nreturn y")),
    ("KA007", module("return x.view(8, 8).contiguous().contiguous()")),
    ("KA007", module("return (x @ x).T.T")),
]  # fmt: skip


def names(cases: list[tuple[str, str]]) -> list[str]:
    return [f"{code}-{number}" for number, (code, _) in enumerate(cases)]


@pytest.mark.parametrize(("code", "text"), FOUND, ids=names(FOUND))
def test_rule_finds(code: str, text: str) -> None:
    assert code in codes(text)


#: What looks like it and is none. Each would be a hint if its rule looked less closely.
FINE = [
    ("KA001", module("return self.conv(x)", "self.conv = nn.Conv2d(3, 3, 3)")),
    ("KA001", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n" + module("return self.proj(x)", PROJECTION)),
    ("KA001", module("torch.set_float32_matmul_precision('high')\nreturn self.proj(x)", PROJECTION)),
    ("KA001", module("with torch.autocast('cuda'):\n    return self.proj(x)", PROJECTION)),
    ("KA001", module("return self.proj(x.half())", PROJECTION)),
    ("KA001", module("return self.proj(x)", "self.proj = nn.Linear(8, 8, dtype=torch.bfloat16)")),
    ("KA001", module("return x", PROJECTION, rest="def unused(self, x):\n    return self.proj(x)\n")),
    ("KA002", module("return x.exp() + 1")),
    ("KA002", module("n = x.shape[0]\nscale = (n + 1) * 2 - 3 + n * 4 / 5\nreturn x * scale")),
    ("KA002", module("m = x.mean()\nreturn ((m + 1) * 2 - 3).exp().log()")),
    ("KA002", module("a = F.gelu(x)\nb = a @ a\nc = F.relu(b)\nd = self.proj(c)\nreturn d.sigmoid() + 1", PROJECTION)),
    ("KA002", module("return torch.tanh(x.exp() + 1) * 2").replace("    def forward", "    @torch.compile\n    def forward")),
    ("KA002", module("return torch.tanh(x.exp() + 1) * 2") + "\nnet = torch.compile(Net())\n"),
    ("KA002", module("y = x.exp()\nfor layer in self.layers:\n    y = layer(y)\nreturn (y + 1).sqrt() * 2")),
    ("KA003", module("for layer in self.layers:\n    x = layer(x)\nreturn x.view(1)")),
    ("KA003", module("for i in range(self.steps):\n    x = x * 2\nreturn x.view(1)")),
    ("KA003", module("for part in x.chunk(4, dim=1):\n    y = F.relu(part)\nreturn y + x.view(1)")),
    ("KA003", module("for i in range(len(self.layers)):\n    x = self.layers[i](x)\nreturn x.view(1)")),
    ("KA003", module("for x in xs:\n    y = self.proj(x)\nreturn y", PROJECTION, arguments="xs")),
    ("KA003", module("for name, value in batch.items():\n    y = F.relu(value)\nreturn y", arguments="batch: dict")),
    ("KA003", module("for d in range(x.dim() - 2):\n    x = x.flatten(1)\nreturn x")),
    ("KA003", module("sizes = [self.pad[i] for i in range(len(x.shape))]\nreturn F.pad(x, sizes)")),
    ("KA004", module("outs = []\nfor layer in self.layers:\n    outs.append(layer(x))\nreturn torch.cat(outs, dim=1)")),
    ("KA004", module("for layer, skip in zip(self.layers, skips):\n    y = torch.cat([layer(x), skip], dim=1)\nreturn y", arguments="x, skips")),
    ("KA004", module("for layer in self.layers:\n    y = x.clone()\n    y[0] = 0\n    z = layer(y)\nreturn z + x.view(1)")),
    ("KA004", module("for layer in self.layers:\n    skip = x.clone()\n    x = layer(x) + skip\nreturn x.view(1)")),
    ("KA004", module("for layer in self.layers:\n    y = x.clone()\n    y.add_(1)\nreturn y + x.view(1)")),
    ("KA004", module("names = ''\nfor layer in self.layers:\n    names = ','.join([names, layer.name])\nreturn x.view(1)")),
    ("KA002", module("t = torch.arange(8)\nf = (-(t * 2 / 8) * 3).exp()\nreturn x * f")),
    ("KA005", module("return x.exp() if more else x", arguments="x, more: Tensor = False, *, flag: Tensor = True")),
    ("KA005", module("return x.exp() * int(torch.initial_seed() % 7)")),
    ("KA003", module("for i in range(0, x.size(1), self.part):\n    y = x[:, i : i + self.part].exp()\nreturn y")),
    ("KA004", module("for m in self.masks:\n    y = m(x)\n    y = torch.cat([x, y], dim=1)\nreturn y + x.view(1)")),
    ("KA006", module("for b in range(x.size(0)):\n    q = x[b]\n    q = q @ q.T\nreturn q")),
    ("KA005", module("if mask is not None:\n    x = x.masked_fill(mask == 0, 0.0)\nreturn x", arguments="x, mask=None")),
    ("KA005", module("if self.training and x.dim() == 3:\n    return x\nreturn -x")),
    ("KA005", module("if x.shape[0] > 4 and x.is_cuda and not x.requires_grad:\n    return x\nreturn -x")),
    ("KA005", module("n = int(x.size(0))\nprint(x.shape, n, float(n))\nreturn x")),
    ("KA005", module("if flag:\n    return x.exp()\nreturn x", arguments="x, flag")),
    ("KA005", module("if self.debug:\n    print(x.mean().item())\nreturn x.exp()")),
    ("KA005", module("for key in sizes.items():\n    pass\nreturn x.exp()", arguments="x, sizes")),
    ("KA005", module("return torch.where(x > 0, x, -x)")),
    ("KA005", module("y = x.clone()\ny[y > 0] = 0\nreturn y")),
    ("KA005", module("return x.to(torch.float16) if x.dtype == torch.float32 else x")),
    ("KA005", module("x = x if torch.is_grad_enabled() else x.detach()\nreturn x")),
    ("KA005", module("return F.relu(x)", rest="def report(self, x):\n    return x.exp().item()\n")),
    ("KA005", module("return F.relu(x) * self.scale", "self.scale = torch.ones(3).mean().item()")),
    ("KA005", module("s = np.sqrt(3.0).item()\nreturn x.exp() * s")),
    ("KA005", module("b, t = x.shape\nif b > t or t % 8:\n    return x\nreturn x + 1")),
    ("KA006", module("y, _ = self.rnn(x)\nreturn y", "self.rnn = nn.LSTM(8, 8)")),
    ("KA006", module("for t in range(x.size(1)):\n    y = self.proj(x[:, t])\nreturn y", PROJECTION)),
    ("KA006", module("for layer in self.layers:\n    x = x @ layer\nreturn x")),
    ("KA007", module("return x.transpose(1, 2).transpose(2, 3)")),
    ("KA007", module("return (x.transpose(1, 2) + 1).transpose(1, 2)")),
    ("KA007", module("return x.permute(*order).permute(*order)", arguments="x, order")),
    ("KA007", module("return x.contiguous(memory_format=torch.channels_last).contiguous()")),
    ("KA007", module("y = x.transpose(1, 2)\nx = F.relu(x)\nz = self.proj(y)\nreturn z.transpose(1, 2)", PROJECTION)),
    ("KA007", module("return x.transpose(0, 1).contiguous().transpose(0, 1)")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), FINE, ids=names(FINE))
def test_rule_leaves_alone(code: str, text: str) -> None:
    compile(text, "net.py", "exec")
    assert code not in codes(text)


def test_only_what_derives_from_module_counts() -> None:
    slow = "def forward(self, x):\n        return x.exp().log().sin().cos().item()\n"
    plain = f"{HEAD}class Net:\n    {slow}"
    assert codes(plain) == []
    assert "KA005" in codes(plain.replace("class Net:", "class Net(nn.Module):"))
    assert "KA005" in codes(f"{HEAD}class Base(nn.Module): pass\n\n\nclass Net(Base):\n    {slow}")
    inside = slow.replace("\n    ", "\n        ")
    assert "KA005" in codes(f"{HEAD}def make():\n    class Net(nn.Module):\n        {inside}")


def test_a_device_without_tf32_is_told_nothing_of_it() -> None:
    text = module("return self.proj(x)", PROJECTION)
    for machine in (DeviceTraits(), machine_of(DeviceFacts(target="cuda", name="V100", arch="sm_70"))):
        assert codes(text, machine) == []
    facts = DeviceFacts(target="cuda", name="H200", arch="sm_90")
    (hint,) = find_hints(text, machine_of(facts, "1.5 times as fast"))
    assert "H200" in hint.message and "1.5 times as fast" in hint.message


SLOW = module("y = x.exp().item()\nreturn y")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".item()", ".item()  # kernel-assistant: ignore[KA005]"),
        (".item()", ".item()  # kernel-assistant: ignore"),
        ("        y = ", "        # kernel-assistant: ignore[KA002, ka005]\n        y = "),
        ("class Net", "# kernel-assistant: ignore[KA005]\nclass Net"),
        ("(nn.Module):", "(nn.Module):  # kernel-assistant: ignore"),
        ("import numpy", "# kernel-assistant: ignore[KA005]\n\nimport numpy"),
    ],
)
def test_comments_and_settings_silence(old: str, new: str) -> None:
    assert codes(SLOW) == ["KA005"] and find_hints(SLOW, GPU, ignore={"KA005"}) == []
    assert codes(SLOW.replace(old, new, 1)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".item()", ".item()  # kernel-assistant: ignore[KA001]"),
        ("    def forward", "    # kernel-assistant: ignore[KA005]\n\n    def forward"),
        ("import numpy", "import numpy  # kernel-assistant: ignore"),
        ("y = ", "s = '# kernel-assistant: ignored'\n        y = "),
    ],
)
def test_other_comments_do_not(old: str, new: str) -> None:
    assert codes(SLOW.replace(old, new, 1)) == ["KA005"]


def test_lines_are_those_of_the_whole_file() -> None:
    text = "\n" * 7 + "'''a\nclass X:\n'''\n" + SLOW.replace("\n", "\r\n")
    (hint,) = find_hints(text)
    assert text.splitlines()[hint.line - 1][hint.column : hint.end_column] == "x.exp().item()"


def test_a_half_typed_class_leaves_the_others() -> None:
    assert codes(SLOW + "\n\nclass Other(nn.Module):\n    def forward(self, x:\n") == ["KA005"]
    assert codes(SLOW.replace("class Net", "def broken(:\n    pass\n\n\nclass Net")) == ["KA005"]


def test_an_import_that_goes_is_noticed() -> None:
    assert codes(SLOW) == ["KA005"]
    assert codes(SLOW.replace("from torch import nn, Tensor", "from somewhere import nn, Tensor")) == ["KA005"]
    assert codes(SLOW.replace("(nn.Module)", "(object)")) == []


@pytest.mark.parametrize(
    "text", ["", "\0", "class", "@", "@x\n@y", "class A(nn.Module):", "'''", "\ud800", "def f():\n\t x\n  y"]
)
def test_anything_is_read(text: str) -> None:
    assert find_hints(text) == []


def test_codes_are_in_order_and_different() -> None:
    assert [rule.code for rule in RULES] == [f"KA{number:03}" for number in range(1, 1 + len(RULES))]
    hint = find_hints(SLOW)[0]
    assert decode(encode(hint), Hint) == hint


def test_every_code_has_its_section_on_the_page() -> None:
    (hint,) = find_hints(SLOW)
    assert hint.href == f"{page().as_uri()}#ka005"
    headings = [line for line in page().read_text().splitlines() if line.startswith("## KA")]
    assert headings == [f"## {rule.code}" for rule in RULES]


def test_half_of_any_text_is_read() -> None:
    """Text that is typed only in part is read as well, at any line."""
    whole = "".join(text.partition("class")[2] and f"class{text.partition('class')[2]}\n" for _, text in FOUND)
    text = HEAD + whole
    for end in range(0, len(text), 97):
        find_hints(text[:end] + "\n" + text[end + 31 :])
    assert {code for code, _ in FOUND} == set(codes(text))
