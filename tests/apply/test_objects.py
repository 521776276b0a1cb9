"""Results whose type is a user's class, from opening the module to the applied file, eager and compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernel_assistant.apply import apply_result, export_model_new
from kernel_assistant.records import to_builtins
from kernel_assistant.source.build import build_task
from kernel_assistant.worker.applied.calls import describe_result, result_builder
from kernel_assistant.worker.opening.open_task import open_task
from tests.apply.conftest import STRICT, MakeResult, Python, change

OUT = '''
@dataclasses.dataclass
class Out:
    """What Gate gives; further down than Gate, as Python allows."""

    y: torch.Tensor
    rest: tuple | None = None


def get_inputs():
    return [torch.randn(8, 64)]


if __name__'''

USE = """
import model
torch.set_grad_enabled(False)
module, x = model.Gate().eval(), torch.randn(5, 64)
want = x * torch.sigmoid(x) * module.weight * module.scale
for call in (module, torch.compile(module, backend="aot_eager")):
    found = call(x)
    assert type(found) is model.Out and found.rest is None
    torch.testing.assert_close(found.y, want)
print(runpy.run_path("model_kernels/load.py")["counters"]()["Gate"])
"""


@pytest.fixture
def returning_out(user_file: str) -> str:
    text = user_file.replace("import torch\n", "import dataclasses\n\nimport torch\n", 1)
    text = text.replace("return self.out(x * torch.sigmoid(x) * self.weight * self.scale)",
                        "return Out(self.out(x * torch.sigmoid(x) * self.weight * self.scale))")  # fmt: skip
    return text.replace("\nif __name__", OUT, 1)


@pytest.mark.slow
def test_a_dataclass_of_the_users_own_file(
    tmp_path: Path, model: Path, make_result: MakeResult, returning_out: str, python: Python
) -> None:
    model.write_text(returning_out)
    opened = open_task(to_builtins(build_task(f"{model}:Gate", target="cpu", numerics="strict")), "cpu")
    parts = {"y": {"output": 0}, "rest": {"value": None}}
    assert opened.facts["result"] == {"object": {"module": "", "class": "Out", "form": "keywords", "parts": parts}}
    assert [spec["shape"] for spec in opened.out_specs] == [["B", "64"]]

    folder = make_result(returning_out)
    change(folder / "facts.json", result=opened.facts["result"])
    apply_result(folder, model)
    assert python(STRICT + USE, model.parent) == "{'kernel': 2, 'fallbacks': {}}\n"
    alone = export_model_new(folder, tmp_path / "alone")
    code = "import sys, torch; sys.path.insert(0, ''); import model_new as m; torch.set_grad_enabled(False)\n"
    code += "print(type(m.ModelNew().eval()(torch.randn(3, 64))) is m.Out)"
    assert python(code, alone.parent) == "True\n"


def test_a_class_that_is_gone_leaves_the_original(model: Path, result: Path, python: Python) -> None:
    gone = {"module": "no.such.place", "class": "Out", "form": "keywords", "parts": {"y": {"output": 0}}}
    change(result / "facts.json", result={"object": gone})
    apply_result(result, model)
    code = "import sys, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, ''); import model, torch, runpy\n"
    code += "print(type(model.Gate()(torch.randn(3, 64))).__name__, "
    code += "runpy.run_path('model_kernels/load.py')['counters']()['Gate']['unused'])"
    assert python(code, model.parent).startswith("Tensor ModuleNotFoundError")


def test_an_output_of_transformers() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    result = outputs.BaseModelOutputWithPooling(last_hidden_state=torch.ones(2), attentions=(torch.zeros(3),))
    tree = json.loads(json.dumps(describe_result(result)))
    again = result_builder(tree, {})([leaf for leaf in torch.utils._pytree.tree_leaves(result) if leaf is not None])
    assert type(again) is type(result) and again.keys() == result.keys() and again.pooler_output is None
    assert again.last_hidden_state is result.last_hidden_state and again.attentions[0] is result.attentions[0]
