"""Exports a module by `torch.export` and reads it as an OpGraph: chooses the free dimensions (those whose sizes stay
symbolic), and the first of several ways of exporting that works."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from ..process.worker_errors import user_streams
from ..user_module.copying import deep_copy
from .attention_calls import simplify_attention
from .composites import decompositions, only_those_of
from .fast_fakes import fast_fakes
from .graph_limit import CallLimit
from .graph_writer import GraphWriter
from .in_place import out_of_place
from .literal_tensors import made_in_forward
from .recurrent import right_states
from .storage_positions import from_owners
from .windows_in_place import keep_between_windows

#: Free dimensions of each tensor leaf of (args, kwargs), in order.
Free = Sequence[frozenset[int]]


@dataclass(frozen=True)
class ExportedModule:
    """An exported module.

    `graph` is an OpGraph as builtins. `input_specs` has every tensor input of the user, used or not, `out_specs` every
    tensor output (both TensorSpecs as builtins). `constants` maps graph names to ("param" | "buffer", dotted path,
    tensor if it is neither a parameter nor a buffer of the module). `ranges` has the lowest and the highest size of
    each free dimension (whose size is symbolic) for which the trace is valid (None: no upper bound). The last outputs
    are the new values of the buffers in `written`, in that order; `added` maps the dotted paths of counters, which are
    not in the graph, to the number that a call adds. `foreign` are the names of the `constants` that the module does
    not hold.
    """

    graph: dict[str, Any]
    input_specs: list[dict[str, Any]]
    out_specs: list[dict[str, Any]]
    constants: dict[str, tuple[str, str, torch.Tensor | None]]
    ranges: dict[str, tuple[int, int | None]]
    program: ExportedProgram
    written: list[str] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


def export_graph(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Traces `model` and returns its OpGraph as builtins. The size of dimension 0 of tensor inputs is symbolic where
    the model allows it."""
    return trace(model, args, kwargs).graph


def trace(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], free: Free | None = None
) -> ExportedModule:
    """Exports the module with the dimensions in `free` symbolic (default: `default_free`), or with fixed sizes only if
    that fails.

    Raises what the user's forward or torch.export raises, InexpressibleError if no graph can express what the module
    does, or TaskError. The module keeps its attributes: its structure is copied for tracing, its tensors are shared.
    """
    free = default_free(args, kwargs) if free is None else free
    if any(free):
        # Whatever fails with free sizes (also the user's own checks of sizes) may work with fixed ones. If it does not,
        # that second error is the one to report.
        with contextlib.suppress(Exception):
            return read_program(export_program(model, args, kwargs, free), args, kwargs)
    static = [frozenset[int]()] * len(free)
    return read_program(export_program(model, args, kwargs, static), args, kwargs)


def default_free(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Free:
    """Returns, for each tensor in (args, kwargs), the dimensions whose sizes stay symbolic: dimension 0, unless its
    size is 0 or 1, which torch.export treats as fixed."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return [frozenset({0} if tensor.dim() and tensor.shape[0] > 1 else ()) for tensor in tensors]


def export_program(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], free: Free
) -> ExportedProgram:
    """Returns the program that torch.export makes of the module, with its in-place operators. `free` has, for each
    tensor in (args, kwargs), the dimensions whose sizes stay symbolic. The module runs on fake tensors, so that nothing
    is computed or allocated."""
    # New tensor objects over the same memory: a tensor that is passed twice would become one input of the program.
    args, kwargs = pytree.tree_map(_alias, (args, kwargs))
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    model = _structure_copy(model)
    shapes: Any = ShapesCollection()  # type: ignore[no-untyped-call]
    for tensor, dims in zip(tensors, free, strict=True):
        if dims:
            shapes[tensor] = dict.fromkeys(sorted(dims), Dim.AUTO)
    dynamic = shapes.dynamic_shapes(model, args, kwargs) if any(free) else None
    # With gradients enabled, blocks of a module that disable them would be exported as nested regions.
    with user_streams(), _silence(), right_states(), fast_fakes(), torch.no_grad(), CallLimit(model):
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)


def read_program(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedModule:
    """Removes in-place operators from an exported program and returns it with its OpGraph. If a module writes to its
    inputs through `.data`, torch 2.9 crashes here, so the module's behaviour has to be checked first."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    keep_between_windows(program)
    made = made_in_forward(program)
    out_of_place(program)
    with _silence(), right_states(), fast_fakes(), torch.no_grad(), only_those_of(program):
        program = program.run_decompositions(decompositions(program))
        _mend_shapes(program.graph)
        simplify_attention(program)
        from_owners(program, tensors)
    writer = GraphWriter(program, tensors, made)
    graph = writer.write()
    return ExportedModule(
        graph,
        writer.input_specs,
        writer.out_specs,
        writer.constants,
        writer.ranges,
        program,
        writer.written,
        writer.added,
        writer.foreign,
    )


#: Losses of class indices. When torch decomposes them with a free batch, it takes those without reduction for scalars.
_MISTAKEN = ("aten.cross_entropy_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss.default")


def _mend_shapes(graph: Graph) -> None:
    """Computes the fake values (`meta["val"]`) of the losses in `_MISTAKEN`, and of nodes computed from them, again
    from their operands, because torch gives them wrong shapes."""
    mended: set[Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or not callable(node.target):
            continue
        if str(node.target) in _MISTAKEN or not mended.isdisjoint(node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
            fake = detect_fake_mode((args, kwargs))
            with fake or contextlib.nullcontext():
                value = node.target(*args, **kwargs)
            if _shapes(value) != _shapes(node.meta["val"]):
                node.meta["val"] = value
                mended.add(node)


def _shapes(value: Any) -> list[str]:
    return [str(leaf.shape) for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Context manager that suppresses torch's logs and warnings, because the caller reports the same problem or does
    not need it.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _alias(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _structure_copy(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a deep copy that shares every parameter and buffer, so that tracing leaves no fake tensor in the
    original; the original itself if it cannot be copied."""
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    try:
        return deep_copy(model, shared)
    except Exception:  # noqa: BLE001 - deepcopy runs the user's __deepcopy__ and __reduce__; the original will do
        return model
