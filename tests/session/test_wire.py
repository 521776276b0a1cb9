"""An error has the same class on the other side of the socket, if that side knows the class."""

from __future__ import annotations

import pytest

from kernel_assistant import errors
from kernel_assistant.environment.worker_client import failure
from kernel_assistant.serving.errors import NoModelError
from kernel_assistant.session.wire import HostShuttingDown, error_from_wire, error_to_wire

ALL = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.KernelAssistantError)]


@pytest.mark.parametrize("kind", [*ALL, HostShuttingDown])
def test_a_kind_of_error_stays_what_it_is(kind):
    found = error_from_wire(error_to_wire(kind("cause", "next", detail="more")))
    assert type(found) is kind and (found.cause, found.next_step, found.detail) == ("cause", "next", "more")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failure({"kind": "out_of_memory", "message": "building Huge needs 9 GiB"}), errors.UsageError),
        (failure({"kind": "device_lost", "message": "CUDA error"}), errors.WorkerError),
        (NoModelError(), errors.MissingError),
    ],
)
def test_what_is_derived_elsewhere_is_what_it_is_derived_from(error, kind):
    found = error_from_wire(error_to_wire(error))
    assert type(found) is kind and (found.cause, found.exit_code) == (error.cause, error.exit_code)
