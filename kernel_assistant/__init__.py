"""Makes a slow PyTorch module faster with kernels that are written, verified and timed on this machine.

`kernel_assistant.optimize(module, inputs)` is the Python call; `kernel-assistant` is the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_assistant.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernel_assistant.records import OptimizeResult

__all__ = ["__version__", "accelerated", "optimize"]


def optimize(
    module: Any,
    inputs: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: str = "auto",
    budget: float = 120.0,
    numerics: str = "kernelbench",
    policy: str = "auto",
    free_wins: bool = True,
    progress: Callable[[str], object] | None = None,
) -> OptimizeResult:
    """Writes kernels for `module` as it is called with `inputs` and `kwargs`, and returns the result with the confirmed
    speed-ups.

    `module` is a `torch.nn.Module` instance, `inputs` its positional arguments (tensors of any shape and dtype, plain
    numbers, or tuples, lists and dicts of them), `budget` the wall time in seconds. The module itself is not changed;
    the paths of the written files are in `result.artifacts`. Module and inputs are written below the state folder,
    readable by you only.

    `policy` says who writes kernels ("auto", "generator" or "model"). With `free_wins` the result also has the
    speed-ups that need no kernel; measuring them may take a third of the budget. `progress` is called in this thread
    with one line of text for each event.

    The class may be defined in a file, or in the cells of a notebook or an IPython session (Python's own prompt keeps
    no source text before 3.13). A class of such a session is copied into a file below the state folder, with the
    imports, constants, functions and classes that it uses, as they are now. Run its kernels with `accelerated`.

    Limits: it must be possible to pickle the instance, and a script that defines the class must keep its own calls
    behind `if __name__ == "__main__":`.

    Raises UsageError for a module or inputs that are not supported, MissingError if the machine lacks something,
    InternalError for failures of this tool.
    """
    from kernel_assistant.errors import noted
    from kernel_assistant.session.live.call import optimize_module

    flags = {"target": target, "budget": budget, "numerics": numerics, "policy": policy, "free_wins": free_wins}
    with noted():
        return optimize_module(module, inputs, kwargs=kwargs, flags=flags, progress=progress)


def accelerated(module: Any, result: OptimizeResult, *, force: bool = False) -> Any:
    """Returns a copy of `module` in which every instance of the optimized class (the class of `result`) runs the
    kernels, in this process.

    This works for a class of a notebook, and for a class of a file without editing that file. `module` is the module
    that was optimized, or contains instances of its class; it does not change, and the copy has its own parameters. The
    kernels run for calls as they were verified (shapes, dtype, device, mode, no gradient needed), and your own code for
    all other calls; `kernel_counters()` of each instance says how often each of them ran.

    The functions, constants and other names of a notebook that the class uses are compared with those of the job only
    when this function is called. The copy does not notice later changes: after running the cells of these names again,
    call this function again.

    Raises UsageError if there is no candidate, if no gain was confirmed (unless `force`), or if the class, or a
    definition beside it that it uses, has changed since the job.
    """
    from kernel_assistant.errors import noted
    from kernel_assistant.session.live.accelerated import accelerated_copy

    with noted():
        return accelerated_copy(module, result, force=force)
