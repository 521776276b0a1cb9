"""Decides which composite operators (those that torch implements by other operators) torch decomposes in an exported
program, and replaces aliases by the names of the operators that they stand for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from torch._C import DispatchKey, _dispatch_has_kernel_for_dispatch_key
from torch._decomp import decomposition_table
from torch._ops import OperatorBase, OpOverload
from torch.export import ExportedProgram, exported_program
from torch.fx import GraphModule

#: Composite operators that torch always decomposes, and into primitive operators only. The parts of any other one are
#: not known here.
_PLAIN = frozenset(
    f"aten.{name}"
    for name in (
        "batch_norm.default",
        "broadcast_to.default",
        "chunk.default",
        "contiguous.default",
        "dropout.default",
        "expand_as.default",
        "flatten.using_ints",
        "mT.default",
        "movedim.int",
        "movedim.intlist",
        "narrow.default",
        "numpy_T.default",
        "reshape.default",
        "reshape_as.default",
        "split.sizes",
        "swapaxes.default",
        "swapdims.default",
        "to.device",
        "to.dtype",
        "to.dtype_layout",
        "to.other",
        "unflatten.int",
        "view_as.default",
    )
)

#: Aliases of other operators, and operators that are others with certain arguments. In a graph each operator has one
#: name.
_SPELLINGS = frozenset(
    "aten::" + name
    for name in (
        "absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh clip concat concatenate divide fix fliplr "
        "flipud greater greater_equal less less_equal moveaxis multiply negative not_equal row_stack special_digamma "
        "special_erf special_erfc special_exp2 special_expit special_expm1 special_gammaln special_log1p special_logit "
        "special_logsumexp special_psi special_round special_sinc subtract swapdims true_divide vstack"
    ).split()
)
_OF_TWO_TENSORS = ("aten.max.other", "aten.min.other")
#: Operators without a form of their own here. torch decomposes them into operators that have one.
DECOMPOSED = frozenset(
    "addr aminmax block_diag column_stack count_nonzero cross cumulative_trapezoid diagflat diff dist float_power "
    "gru_cell inner isclose kron linalg_cross linalg_matrix_norm lstm_cell nanmean nansum renorm rnn_relu_cell "
    "rnn_tanh_cell rot90 special_xlog1py tensordot trace trapezoid".split()
)


def decompositions(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """Returns the table for `run_decompositions`: operator → torch's function that decomposes it. It contains the
    aliases in the program's graph and the operators in `DECOMPOSED`, which a graph must not keep."""
    composite = DispatchKey.CompositeImplicitAutograd
    table = _in_python().copy()
    for target in {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)}:
        known = target._schema.name in _SPELLINGS or str(target) in _OF_TWO_TENSORS or _is_decomposed(target)
        if known and _dispatch_has_kernel_for_dispatch_key(target.name(), composite):  # type: ignore[no-untyped-call]
            table[target] = partial(target._op_dk, composite)
    return table


@lru_cache(maxsize=1)
def _in_python() -> dict[OpOverload, Callable[..., Any]]:
    """Returns torch's Python functions for the operators in `DECOMPOSED`, also for those that appear only inside the
    decomposition of another operator."""
    return {
        target: function
        for target, function in decomposition_table.items()
        if isinstance(target, OpOverload) and _is_decomposed(target)
    }


def _is_decomposed(target: OpOverload) -> bool:
    return target._schema.name.removeprefix("aten::") in DECOMPOSED


@contextlib.contextmanager
def only_those_of(program: ExportedProgram) -> Iterator[None]:
    """Context manager that makes `program.run_decompositions` faster within the block, with the same result.

    To keep composite operators whole, torch overrides all of the about five hundred that it knows, and restores them
    afterwards; within the block it overrides only those of the graph. Other composite operators can only appear inside
    an operator of the graph. If the graph has an operator that may contain some, or this torch lacks the function that
    is replaced here, nothing changes.
    """
    own = _preserved(program)
    before = getattr(exported_program, "_collect_all_valid_cia_ops", None)
    if own is None or before is None:
        yield
        return
    exported_program._collect_all_valid_cia_ops = lambda: own  # type: ignore[attr-defined]
    try:
        yield
    finally:
        exported_program._collect_all_valid_cia_ops = before  # type: ignore[attr-defined]


def _preserved(program: ExportedProgram) -> set[OperatorBase] | None:
    """Returns the composite operators of the graph that torch can keep whole; None if operators of the graph may
    contain others."""
    try:
        from torch._export.utils import _is_cia_op, _is_preservable_cia_op
    except ImportError:
        return None
    operators = set[OperatorBase]()
    targets: set[Any] = {
        node.target
        for part in program.graph_module.modules()
        if isinstance(part, GraphModule)
        for node in part.graph.nodes
        if node.op == "call_function"
    }
    for target in targets:
        if not isinstance(target, OperatorBase):
            continue  # Python's arithmetic of sizes.
        if not isinstance(target, OpOverload):
            return None
        if _is_preservable_cia_op(target):
            operators.add(target)
        # An operator that torch decomposes in Python has an implementation there besides the one for shapes.
        elif (_is_cia_op(target) or target.py_kernels.keys() - {DispatchKey.Meta}) and str(target) not in _PLAIN:
            return None
    return operators
