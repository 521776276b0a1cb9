"""One class with instances of several sizes: each size has kernels of its own in the class's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_assistant.apply import apply_result, find_applied, undo
from kernel_assistant.worker.applied.parts import SIZE, Parts

MakeResult = Callable[..., Path]
Python = Callable[..., str]

USE = """
import runpy, sys, warnings
warnings.simplefilter("error", RuntimeWarning)
sys.path.insert(0, "")
import torch, model
torch.set_grad_enabled(False)
counters = runpy.run_path("model_kernels/load.py")["counters"]
for width in (64, 96, 32, 96, 64):
    module, x = model.Gate(width).eval(), torch.randn(5, width)
    want = x * torch.sigmoid(x) * module.weight * module.scale
    torch.testing.assert_close(module(x), want)
    torch.testing.assert_close(module(x), want)
    if len(sys.argv) > 1:
        compiled = torch.compile(module, backend="aot_eager")
        torch.testing.assert_close(compiled(x), want)
print(counters()["Gate"])
module = model.Gate(96).eval()
module.weight.data = torch.rand(64)
x = torch.randn(5, 64)
torch.testing.assert_close(module(x), x * torch.sigmoid(x) * module.weight * module.scale)
"""


@pytest.fixture
def wide(make_result: MakeResult, user_file: str) -> Callable[[], Path]:
    """A result for instances of width 96."""

    def make() -> Path:
        folder = make_result(user_file)
        for name in ("graph.json", "plan.json", "facts.json"):
            text = (folder / name).read_text().replace('"64"', '"96"')
            (folder / name).write_text(text)
        return folder

    return make


def plans(package: Path) -> list[str]:
    return [name for name in Parts(str(package), "Gate").names() if name.endswith("plan.json")]


@pytest.mark.programs
@pytest.mark.slow
def test_each_size_is_served_by_its_own_kernels(
    tmp_path: Path, make_result: MakeResult, wide: Callable[[], Path], user_file: str, python: Python
) -> None:
    model = tmp_path / "project" / "model.py"
    model.parent.mkdir()
    model.write_text(user_file)
    narrow = make_result(user_file)
    applied = apply_result(narrow, model)
    assert python(USE, model.parent) == "{'kernel': 4, 'fallbacks': {'shape': 6}}\n"
    apply_result(wide(), model)
    assert python(USE, model.parent) == "{'kernel': 8, 'fallbacks': {'shape': 2}}\n"
    assert "'kernel': 12" in python(USE, model.parent, "compiled")

    found = find_applied([applied.package])
    assert [one.class_name for one in found] == ["Gate", "Gate"] and len({one.name for one in found}) == 2
    assert [one.size[: len(SIZE)] for one in found] == ["", SIZE] and not any(one.changed() for one in found)

    before = plans(applied.package)
    apply_result(narrow, model)
    apply_result(wide(), model)
    assert plans(applied.package) == before and len(before) == 2
    assert undo(model).restored and model.read_text() == user_file and not applied.package.exists()


@pytest.mark.slow
def test_kernels_of_an_older_text_go_when_one_size_is_done_anew(
    tmp_path: Path, make_result: MakeResult, wide: Callable[[], Path], user_file: str, python: Python
) -> None:
    model = tmp_path / "project" / "model.py"
    model.parent.mkdir()
    model.write_text(user_file)
    apply_result(make_result(user_file), model)
    applied = apply_result(wide(), model)
    assert len(plans(applied.package)) == 2
    edited = user_file.replace("torch.sigmoid(x)", "x.sigmoid()")
    model.write_text(model.read_text().replace("torch.sigmoid(x)", "x.sigmoid()"))
    apply_result(make_result(edited), model)
    assert len(plans(applied.package)) == 1
    assert python(USE, model.parent) == "{'kernel': 4, 'fallbacks': {'shape': 6}}\n"
    undo(model)
    assert model.read_text() == edited and not applied.package.exists()


@pytest.mark.parametrize(("call", "beside"), [({}, False), ({"kwargs": {"scale": {"const": "2.0"}}}, True)])
def test_calls_with_other_plain_values_have_kernels_of_their_own(
    tmp_path: Path, make_result: MakeResult, user_file: str, call: dict[str, object], beside: bool
) -> None:
    """A scan tells such calls apart; the later kernels must not replace the earlier ones."""
    model = tmp_path / "project" / "model.py"
    model.parent.mkdir()
    model.write_text(user_file)
    other = make_result(user_file)
    facts = json.loads((other / "facts.json").read_text())
    (other / "facts.json").write_text(json.dumps({**facts, "call": {**facts["call"], **call}}))
    applied = apply_result(make_result(user_file), model)
    for _ in range(2):
        apply_result(other, model)
        assert len(plans(applied.package)) == 1 + beside
