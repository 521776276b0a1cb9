from __future__ import annotations

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.source import find_modules

ALIASES = {
    "import torch\nclass A(torch.nn.Module): pass": True,
    "import torch as t\nclass A(t.nn.Module): pass": True,
    "import torch.nn as nn\nclass A(nn.Module): pass": True,
    "import torch.nn\nclass A(torch.nn.Module): pass": True,
    "from torch import nn\nclass A(nn.Module): pass": True,
    "from torch import nn as N\nclass A(N.Module): pass": True,
    "from torch.nn import Module\nclass A(Module): pass": True,
    "from torch.nn import Module as M\nclass A(M): pass": True,
    "from torch.nn import *\nclass A(Module): pass": True,
    "from torch.nn.modules.module import Module\nclass A(Module): pass": True,
    "from torch import nn\nBase = nn.Module\nclass A(Base): pass": True,
    "from torch import nn\nclass A(nn.Linear): pass": True,
    "from torch import nn\nclass A(Mixin, nn.Module): pass": True,
    "from torch import nn\nfrom typing import Generic\nclass A(nn.Module, Generic[T]): pass": True,
    "try:\n    from torch import nn\nexcept ImportError:\n    raise\nclass A(nn.Module): pass": True,
    "from lightning import LightningModule\nclass A(LightningModule):\n    def forward(self, x): ...": True,
    "from lightning import LightningModule\nclass A(LightningModule): pass": False,
    "import torch\nfrom pydantic import BaseModel\nclass A(BaseModel): pass": False,
    "from torchvision.models.resnet import BasicBlock\nclass A(BasicBlock): pass": True,
    "from transformers.models.llama.modeling_llama import LlamaRMSNorm as N\nclass A(N): pass": True,
    "import transformers\nclass A(transformers.BertModel): pass": True,
    "import timm\nclass A(timm.layers.DropPath): pass": True,
    "import torch\nfrom .layers import Gate\nclass A(Gate): pass": True,
    "from .layers import Gate\nclass A(Gate): pass": False,
    "from transformers import BertConfig\nclass A(BertConfig): pass": False,
    "from transformers.models.llama.configuration_llama import LlamaConfig\nclass A(LlamaConfig): pass": False,
    "import torch\nfrom django.db import models\nclass A(models.Model): pass": False,
    "from torch.autograd import Function\nclass A(Function):\n    @staticmethod\n    def forward(ctx, x): ...": False,
    "from torch import nn\nclass A(nn.Parameter): pass": False,
    "from torch.utils.data import Dataset\nclass A(Dataset): pass": False,
    "from abc import ABC\nclass A(ABC):\n    def forward(self, x): ...": False,
    "class A: pass": False,
    "class A(A): pass": False,
    "class A(B): pass\nclass B(A): pass": False,
    "class A(make()): pass": False,
    "": False,
}


@pytest.mark.parametrize(("text", "is_module"), ALIASES.items())
def test_base_classes(text: str, is_module: bool) -> None:
    assert [found.name for found in find_modules(text, "m.py")] == (["A"] if is_module else [])


def test_forward_may_be_inherited_from_a_library_and_a_named_class_counts() -> None:
    text = "from lightning import LightningModule\nclass A(LightningModule): pass\nclass B(A): pass\n"
    text += "class C(list): pass\n"
    assert find_modules(text, "m.py") == ()
    assert [(one.name, one.has_forward) for one in find_modules(text, "m.py", "A")] == [("A", True), ("B", True)]
    assert "C" not in [one.name for one in find_modules(text, "m.py", "C")]
    (block,) = find_modules("from torchvision.models.resnet import BasicBlock\nclass A(BasicBlock): pass", "m.py")
    assert block.has_forward


NESTED = '''
from torch import nn

class Base(nn.Module):
    """  The first line.

    More.
    """

class Child(Base):
    def forward(self, x):
        return x

@decorated
@twice
class GrandChild(Child):
    class Inner(nn.Module):
        def forward(self, x): ...

def make():
    class Hidden(nn.Module):
        forward = None
    return Hidden

if True:
    class Conditional(nn.Sequential):
        pass

class Child(nn.Module):
    pass
'''


def test_lines_docs_and_inheritance() -> None:
    found = find_modules(NESTED, "m.py")
    assert [(item.name, item.has_forward, item.addressable) for item in found] == [
        *(("Base", False, True), ("Child", True, False)),  # the later Child takes the name
        *(("GrandChild", True, True), ("Inner", True, False), ("Hidden", True, False)),
        *(("Conditional", True, True), ("Child", False, True)),
    ]
    lines = NESTED.splitlines()
    assert found[0].doc == "The first line." and found[1].doc == ""
    assert lines[found[2].line - 1] == "@decorated"
    assert lines[found[2].end_line - 1].strip() == "def forward(self, x): ..."


@pytest.mark.parametrize(
    ("text", "where"),
    [("x = 1\nclass A(:\n", "m.py:2"), ("\x00", "m.py"), ("(" * 100_000, "m.py"), ("  x\n", "m.py:1")],
)
def test_not_python(text: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_modules(text, "m.py")
    assert where in caught.value.cause and "\n" not in caught.value.cause and caught.value.next_step
