"""Chooses sizes that the user did not declare, but that a candidate can fairly be expected to support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ..graph.export import ExportedModule
from ..process.worker_errors import BrokenDevice, first_line, is_device_lost, user_streams, with_inputs
from ..symbols import evaluate_size
from ..user_module.inputs import Args, Kwargs, inputs_name

Call = Callable[[Args, Kwargs], tuple[torch.Tensor, ...]]

#: Largest difference of graph and module, relative to the largest value: both run the same operators.
_TOLERANCE = 1e-3


def held_out_dims(
    model: torch.nn.Module,
    call: Call,
    traced: ExportedModule,
    make: Callable[[dict[str, int]], tuple[Args, Kwargs]],
    avoid: Collection[str] = (),
) -> list[dict[str, int]]:
    """Returns sizes of the free (symbolic) dimensions at which candidates are checked too, each as {name: size}: 1, an
    odd size and 1.5 times the declared one, as far as module and graph agree there.

    The module may refuse a size, and the graph (traced at the declared sizes) may not be valid for it: a branch on a
    size, a batch that must be even. `make` returns inputs for sizes, `call` outputs for inputs. Inputs whose names are
    in `avoid` are left out. Raises BrokenDevice if a call breaks the device.
    """
    cases = []
    for dims in _proposals(traced):
        name = inputs_name(0, "declared", tuple(dims.items()))
        with with_inputs(name):
            if name not in avoid and _agrees(model, call, traced, make, dims):
                cases.append(dims)
    return cases


def _proposals(traced: ExportedModule) -> Iterator[dict[str, int]]:
    base: dict[str, int] = traced.graph["dims"]
    rules: list[Callable[[int], int]] = [lambda size: 1, _odd, lambda size: size + (size + 1) // 2]
    seen = [base]
    for rule in rules:
        dims = {name: rule(size) for name, size in base.items()}
        if dims not in seen and all(_within(size, *traced.ranges[name]) for name, size in dims.items()):
            seen.append(dims)
            yield dims


def _odd(size: int) -> int:
    """Returns an odd size of about three quarters of `size`, at least 3."""
    return max(3, (3 * size // 4) | 1)


def _within(size: int, lowest: int, highest: int | None) -> bool:
    return size >= lowest and (highest is None or size <= highest)


def _agrees(
    model: torch.nn.Module,
    call: Call,
    traced: ExportedModule,
    make: Callable[[dict[str, int]], tuple[Args, Kwargs]],
    dims: dict[str, int],
) -> bool:
    # A size that the module refuses is skipped, whatever it raises, unless the process is broken.
    try:
        with user_streams(), torch.no_grad():
            args, kwargs = make(dims)
            wanted = call(args, kwargs)
            got = _run_graph(model, traced, args, kwargs)
            shapes = [[evaluate_size(size, dims) for size in spec["shape"]] for spec in traced.out_specs]
            return shapes == [list(tensor.shape) for tensor in wanted] and all(map(_near, got, wanted))
    except BrokenDevice:
        raise
    except Exception as error:
        if is_device_lost(error):
            raise BrokenDevice(first_line(error)) from error
        return False


def _run_graph(model: torch.nn.Module, traced: ExportedModule, args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    """Runs the exported operators without torch's guards (which refuse size 1 in any case). Returns the user's tensor
    outputs, then the new values of the buffers in `traced.written`."""
    program = traced.program
    held: dict[str, Any] = {
        **program.constants,
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    leaves = iter(pytree.tree_leaves((args, kwargs)))
    values = [
        next(leaves) if spec.kind == InputKind.USER_INPUT else held[str(spec.target)]
        for spec in program.graph_signature.input_specs
    ]
    result = torch.fx.Interpreter(program.graph_module).run(*values)
    given = list(zip(program.graph_signature.output_specs, result, strict=True))
    changed = {str(spec.target): value for spec, value in given if spec.kind == OutputKind.BUFFER_MUTATION}
    users = [value for spec, value in given if spec.kind == OutputKind.USER_OUTPUT and isinstance(value, torch.Tensor)]
    return [*users, *(changed[path] for path in traced.written)]


def _near(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point():
        return torch.equal(got, wanted)
    scale = float(wanted[wanted.isfinite()].abs().amax()) if bool(wanted.isfinite().any()) else 1.0
    return torch.allclose(got, wanted, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)
