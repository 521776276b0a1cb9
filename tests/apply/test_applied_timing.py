"""Tests that the timing of an edited file reports whether kernels or the original served its calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_assistant.apply import applied_variants
from kernel_assistant.environment.worker_client import WorkerClient
from kernel_assistant.records.codec import from_builtins, to_builtins
from kernel_assistant.session.kinds.applied_timing import AppliedRow, AppliedTiming, conclude
from tests.apply.conftest import FACTS, ROOT
from tests.common.tasks import task_of

MakeResult = Callable[..., Path]

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
    tmp_path: Path, user_file: str, make_result: MakeResult, reason: str
) -> None:
    text = user_file.replace(*CHANGES[reason]) + INPUTS
    source = tmp_path / "model.py"
    source.write_text(text)
    timing = timed(tmp_path, make_result(text), source)
    if reason:
        assert (timing.kernel_calls, set(timing.fallbacks), timing.worth) == (0, {reason}, False)
        assert timing.summary().startswith("the kernels never ran in the edited file")
    else:
        assert timing.kernel_calls and not timing.fallbacks and not timing.failure


def test_a_scripted_child_does_not_keep_kernels_from_running(
    tmp_path: Path, user_file: str, make_result: MakeResult, python: Callable[..., str]
) -> None:
    """TorchScript remembers the name under which a file was imported. The timing imports the file under another name
    than the user.
    """
    script = "self.out = torch.jit.script(nn.Identity())\n        self.act = torch.jit.script(Act())"
    child = "class Act(nn.Module):\n    def forward(self, x):\n        return torch.sigmoid(x)\n\n\nclass Gate"
    text = user_file.replace(CHILD, script).replace("class Gate", child).replace("torch.sigmoid(x) *", "self.act(x) *")
    source = tmp_path / "model.py"
    source.write_text(text + INPUTS)
    result = make_result(text + INPUTS)
    (result / "facts.json").write_text(python(FACTS, tmp_path, str(source), "Gate", env={"PYTHONPATH": str(ROOT)}))
    timing = timed(tmp_path, result, source)
    assert timing.kernel_calls and not timing.fallbacks and not timing.failure


def test_what_was_measured_before_the_time_is_over_counts(
    tmp_path: Path, user_file: str, make_result: MakeResult
) -> None:
    source = tmp_path / "model.py"
    source.write_text(user_file + INPUTS)
    timing = timed(tmp_path, make_result(user_file + INPUTS), source, limit=0.0)
    assert [row.name for row in timing.rows] == ["alone"]
    assert timing.kernel_calls
    assert timing.compiled_parent == "original"


@pytest.mark.parametrize(
    ("before", "behind", "imports"),
    [("", "", 1), ("@kept\n", "", 2), ("", "\n\nkept(Gate.forward)\n", 2)],
    ids=["plain", "decorated", "named"],
)
def test_the_file_is_imported_once_to_be_timed_unless_it_does_more_with_the_class(
    tmp_path: Path, user_file: str, make_result: MakeResult, before: str, behind: str, imports: int
) -> None:
    """`kept` may be any object, such as a decorator that keeps the `forward` that it gets."""
    count = f"\nwith open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('once ')\n"
    head = f"from torch import nn\n{count}\n\ndef kept(it):\n    return it\n"
    text = user_file.partition("\n\nif __name__")[0].replace("from torch import nn\n", head)
    text = text.replace("class Gate", f"{before}class Gate") + behind
    source = tmp_path / "model.py"
    source.write_text(text + INPUTS)
    result = make_result(text + INPUTS)
    (tmp_path / "imports").unlink(missing_ok=True)
    timing = timed(tmp_path, result, source, ahead=True)
    assert timing.kernel_calls and not timing.fallbacks and not timing.failure
    assert (tmp_path / "imports").read_text().split() == ["once"] * imports


def timed(folder: Path, result: Path, source: Path, *, ahead: bool = False, limit: float = 1e5) -> AppliedTiming:
    """`ahead` says that the process imported the file earlier; `limit` as in `time_applied`."""
    variants = applied_variants(result, source, folder / "variants")
    task = task_of(source, source.read_text(), "Gate", target="cpu")
    params: dict[str, Any] = {
        "task": to_builtins(task),
        "applied": variants.applied.read_text(),
        "edited": str(variants.applied),
        "package": str(variants.package),
        "device": 0,
        "cache_bytes": 1 << 20,
        "limit": limit,
    }
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
