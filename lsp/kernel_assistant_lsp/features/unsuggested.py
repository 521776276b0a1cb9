"""The reasons why nothing is suggested in a CUDA file. Each reason is shown to the user once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_assistant.errors import KernelAssistantError, MissingError, UsageError
from kernel_assistant_lsp.names import UNSUGGESTED_NOTIFICATION

if TYPE_CHECKING:
    from kernel_assistant_lsp.context import Context


def no_plan() -> UsageError:
    """Returns the error for a CUDA file that does not belong to generated kernels: there is no plan.json beside it."""
    return UsageError(
        "nothing is suggested in CUDA files that have no plan.json beside them",
        "open the kernels of a job: their folder has the plan that launches them",
    )


def tasks_alone() -> MissingError:
    """Returns the error for the model that comes with the package: it was trained to write whole kernels for a class,
    and cannot continue a file."""
    return MissingError(
        "nothing is suggested in CUDA files: the model that comes with the package writes whole kernels for a class "
        "and cannot continue a file",
        "name a general model: the setting endpoint, or kernel-assistant models use NAME",
    )


def say_why(context: Context, error: KernelAssistantError) -> None:
    """Shows the reason `error` to the user, each reason once while the server runs. The VS Code extension gets it as a
    notification and decides how to show it."""
    if error.cause in context.unsuggested:
        return
    context.unsuggested.add(error.cause)
    if context.abilities.job_events:
        document = {"message": error.cause, "nextStep": error.next_step}
        context.server.protocol.notify(UNSUGGESTED_NOTIFICATION, document)
    else:
        context.tell(". Next: ".join(filter(None, (error.cause, error.next_step))))
