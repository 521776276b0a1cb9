"""One class with instances of several sizes: each size has kernels of its own in the class's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.apply import apply_result, find_applied, undo
from kernel_assistant.worker.applied.parts import SIZE, Parts
from tests.apply.conftest import STRICT, MakeResult, Python, change, with_width

USE = """
import model
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


def plans(package: Path) -> list[str]:
    return [name for name in Parts(str(package), "Gate").names() if name.endswith("plan.json")]


@pytest.mark.programs
@pytest.mark.slow
def test_each_size_is_served_by_its_own_kernels(
    model: Path, make_result: MakeResult, user_file: str, python: Python
) -> None:
    narrow, wide = make_result(user_file), with_width(make_result(user_file), 96)
    applied = apply_result(narrow, model)
    assert python(STRICT + USE, model.parent) == "{'kernel': 4, 'fallbacks': {'shape': 6}}\n"
    apply_result(wide, model)
    assert python(STRICT + USE, model.parent) == "{'kernel': 8, 'fallbacks': {'shape': 2}}\n"
    assert "'kernel': 12" in python(STRICT + USE, model.parent, "compiled")

    both = find_applied([applied.package])
    assert [one.class_name for one in both] == ["Gate", "Gate"] and len({one.name for one in both}) == 2
    assert [one.size[: len(SIZE)] for one in both] == ["", SIZE] and not any(one.changed() for one in both)

    before = plans(applied.package)
    apply_result(narrow, model)
    apply_result(wide, model)
    assert plans(applied.package) == before and len(before) == 2
    assert undo(model).restored and model.read_text() == user_file and not applied.package.exists()


@pytest.mark.slow
def test_kernels_of_an_older_text_go_when_one_size_is_done_anew(
    model: Path, make_result: MakeResult, user_file: str, python: Python
) -> None:
    apply_result(make_result(user_file), model)
    applied = apply_result(with_width(make_result(user_file), 96), model)
    assert len(plans(applied.package)) == 2
    edited = user_file.replace("torch.sigmoid(x)", "x.sigmoid()")
    model.write_text(model.read_text().replace("torch.sigmoid(x)", "x.sigmoid()"))
    apply_result(make_result(edited), model)
    assert len(plans(applied.package)) == 1
    assert python(STRICT + USE, model.parent) == "{'kernel': 4, 'fallbacks': {'shape': 6}}\n"
    undo(model)
    assert model.read_text() == edited and not applied.package.exists()


@pytest.mark.parametrize(("call", "beside"), [({}, False), ({"kwargs": {"scale": {"const": "2.0"}}}, True)])
def test_calls_with_other_plain_values_have_kernels_of_their_own(
    model: Path, make_result: MakeResult, user_file: str, facts: dict[str, Any], call: dict[str, object], beside: bool
) -> None:
    """A scan tells such calls apart; the later kernels must not replace the earlier ones."""
    other = make_result(user_file)
    change(other / "facts.json", call={**facts["call"], **call})
    applied = apply_result(make_result(user_file), model)
    for _ in range(2):
        apply_result(other, model)
        assert len(plans(applied.package)) == 1 + beside
