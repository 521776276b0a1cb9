"""Makes a slow PyTorch module faster with kernels that are written, verified and timed on this machine.

`kernel_assistant.optimize(module, inputs)` is the Python call; `kernel-assistant` is the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_assistant.records import OptimizeResult

__version__ = "0.1.0"

__all__ = ["__version__", "optimize"]


def optimize(
    module: Any,
    inputs: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: str = "auto",
    budget: float = 120.0,
    numerics: str = "kernelbench",
) -> OptimizeResult:
    """Have kernels written for `module` as it is called with `inputs` and `kwargs`; returns what was confirmed.

    `module` is a `torch.nn.Module` instance, `inputs` its positional arguments (tensors of any shape and dtype, plain
    numbers, or tuples, lists and dicts of them), `budget` wall time in seconds. The module itself is not changed; the
    files are named in `result.artifacts`. Module and inputs are written below the state folder, readable by you only.

    Limits: the class must live in a source file (not in a notebook cell or a REPL), the instance must pickle, and a
    script that defines the class must keep its own calls behind `if __name__ == "__main__":`.

    Raises UsageError for a module or inputs that do not fit, MissingError for a machine that lacks something,
    InternalError for our failures.
    """
    from kernel_assistant.session.call import optimize_module

    return optimize_module(module, inputs, kwargs=kwargs, target=target, budget=budget, numerics=numerics)
