"""A broken device is told as such, whatever else fails on the way out."""

from __future__ import annotations

import pytest

from kernel_assistant.worker.process.worker_errors import BrokenDevice, broken_device, with_inputs


class AcceleratorError(RuntimeError):
    """Has the name of torch's own, which needs a GPU."""


def raised(first: Exception, then: Exception | None) -> Exception:
    """What leaves a block that raises `first` with inputs of a name, and whose lock then raises `then`."""
    with pytest.raises(Exception) as left:  # noqa: PT011, PT012 - whatever leaves is the subject
        try:
            with with_inputs("N(0, 1) × 10"):
                raise first
        finally:
            if then is not None:
                raise then
    return left.value


@pytest.mark.parametrize("then", [None, AcceleratorError("CUDA error: device-side assert triggered")])
@pytest.mark.parametrize(
    "first",
    [BrokenDevice("forward failed at model.py:3"), AcceleratorError("CUDA error: an illegal memory access")],
    ids=["told", "late"],
)
def test_the_inputs_that_broke_it_are_named(first: Exception, then: Exception | None) -> None:
    found = broken_device(raised(first, then))
    assert found is not None and found.inputs == "N(0, 1) × 10" and "forward failed" in found.message


def test_other_errors_stay_what_they_are() -> None:
    error = raised(ValueError("no CUDA here"), None)
    assert isinstance(error, ValueError) and broken_device(error) is None
