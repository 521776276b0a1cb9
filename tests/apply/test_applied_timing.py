"""Tests that the timing of an edited file reports whether kernels or the original served its calls."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_assistant.apply import applied_variants
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.kinds.applied_timing import AppliedRow, AppliedTiming, conclude
from tests.apply.conftest import FACTS, ROOT, MakeResult, Python
from tests.common.tasks import task_of

INPUTS = """

def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return []
"""
CHILD = "self.out = nn.Identity()"
#: What the user's file has that the job did not see, and the reason why the original runs then.
CHANGES = {
    "": (CHILD, CHILD),
    "hooks": (CHILD, f"{CHILD}\n        self.out.register_forward_hook(lambda module, args, output: None)"),
    "attributes": ("scale: float = 1.5", "scale: float = 1.6"),
}


@pytest.mark.timed
@pytest.mark.parametrize("reason", CHANGES)
def test_kernels_that_never_ran_are_told_from_slow_ones(
    model: Path, user_file: str, make_result: MakeResult, reason: str
) -> None:
    text = user_file.replace(*CHANGES[reason]) + INPUTS
    timing = timed(model, text, make_result(text))
    if reason:
        assert (timing.kernel_calls, set(timing.fallbacks), timing.worth) == (0, {reason}, False)
        assert timing.summary().startswith("the kernels never ran in the edited file")
    else:
        assert timing.kernel_calls and not timing.fallbacks and not timing.failure


def test_a_scripted_child_does_not_keep_kernels_from_running(
    model: Path, user_file: str, make_result: MakeResult, python: Python
) -> None:
    """TorchScript remembers the name under which a file was imported, and the timing imports it under another one."""
    script = "self.out = torch.jit.script(nn.Identity())\n        self.act = torch.jit.script(Act())"
    child = "class Act(nn.Module):\n    def forward(self, x):\n        return torch.sigmoid(x)\n\n\nclass Gate"
    text = user_file.replace(CHILD, script).replace("class Gate", child).replace("torch.sigmoid(x) *", "self.act(x) *")
    text += INPUTS
    model.write_text(text)
    result = make_result(text)
    (result / "facts.json").write_text(python(FACTS, model.parent, str(model), "Gate", env={"PYTHONPATH": str(ROOT)}))
    timing = timed(model, text, result)
    assert timing.kernel_calls and not timing.fallbacks and not timing.failure


def test_what_was_measured_before_the_time_is_over_counts(model: Path, user_file: str, make_result: MakeResult) -> None:
    text = user_file + INPUTS
    timing = timed(model, text, make_result(text), limit=0.0)
    assert [row.name for row in timing.rows] == ["alone"]
    assert timing.kernel_calls and timing.compiled_parent == "original"


@pytest.mark.parametrize(
    ("before", "behind", "imports"),
    [("", "", 1), ("@kept\n", "", 2), ("", "\n\nkept(Gate.forward)\n", 2)],
    ids=["plain", "decorated", "named"],
)
def test_the_file_is_imported_once_to_be_timed_unless_it_does_more_with_the_class(
    model: Path, user_file: str, make_result: MakeResult, before: str, behind: str, imports: int
) -> None:
    """`kept` may be any object, such as a decorator that keeps the `forward` that it gets."""
    counted = model.with_name("imports")
    count = f"\nwith open({str(counted)!r}, 'a') as file:\n    file.write('once ')\n"
    head = f"from torch import nn\n{count}\n\ndef kept(it):\n    return it\n"
    text = user_file.partition("\n\nif __name__")[0].replace("from torch import nn\n", head)
    text = text.replace("class Gate", f"{before}class Gate") + behind + INPUTS
    timing = timed(model, text, make_result(text), ahead=True)
    assert timing.kernel_calls and not timing.fallbacks and not timing.failure
    assert counted.read_text().split() == ["once"] * imports


def timed(model: Path, text: str, result: Path, *, ahead: bool = False, limit: float = 1e5) -> AppliedTiming:
    """The timing of the file with this text. `ahead` says that the process imported the file earlier; `limit` as in
    `time_applied`.
    """
    model.write_text(text)
    variants = applied_variants(result, model, model.with_name("variants"))
    task = to_builtins(task_of(model, text, "Gate", target="cpu"))
    params = {"task": task, "applied": variants.applied.read_text(), "edited": str(variants.applied)}
    params |= {"package": str(variants.package), "device": 0, "cache_bytes": 1 << 20, "limit": limit}
    worker = WorkerClient(sys.executable, measuring={})
    try:
        worker.start()
        if ahead:
            worker.call("import_file", {"task": params["task"]}, timeout=120.0)
        answer = worker.call("time_applied", params, timeout=120.0)
    finally:
        worker.close()
    rows = tuple(from_builtins(row, AppliedRow) for row in answer["rows"])
    return conclude(rows, answer["kernel_calls"], answer["fallbacks"])
