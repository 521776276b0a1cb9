"""Composite operators of torch: only those of a program are made ready; second names become the first ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch._C import DispatchKey, _dispatch_has_kernel_for_dispatch_key
from torch._ops import OperatorBase, OpOverload
from torch.export import ExportedProgram, exported_program
from torch.fx import GraphModule

#: Composite operators that torch always takes apart, and into nothing but primitive ones. What any other is made of is
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

#: Second names of other operators, and calls of others with certain numbers. One operator has one name in a graph.
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


def spellings(program: ExportedProgram) -> dict[OpOverload, Callable[..., Any]]:
    """For `run_decompositions`: operators of the graph that are other names, each with what torch makes of it."""
    composite = DispatchKey.CompositeImplicitAutograd
    targets = {node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)}
    return {
        target: partial(target._op_dk, composite)
        for target in targets
        if (target._schema.name in _SPELLINGS or str(target) in _OF_TWO_TENSORS)
        and _dispatch_has_kernel_for_dispatch_key(target.name(), composite)  # type: ignore[no-untyped-call]
    }


@contextlib.contextmanager
def only_those_of(program: ExportedProgram) -> Iterator[None]:
    """Within it, `program.run_decompositions` gives what it always gives, sooner.

    So that none of its composite operators is taken apart, torch gives each of some five hundred that it knows another
    implementation, and takes all of them back afterwards. An operator that is not in the graph can only be met inside
    one that is: with any such in it that is not known to be harmless, and under a torch without what is replaced here,
    nothing is changed.
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
    """The composite operators of the graph that torch can leave whole; None where these may not be all."""
    try:
        from torch._export.utils import _is_cia_op, _is_preservable_cia_op
    except ImportError:
        return None
    found = set[OperatorBase]()
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
            found.add(target)
        # What torch takes apart in Python has an implementation there beyond that of shapes.
        elif (_is_cia_op(target) or target.py_kernels.keys() - {DispatchKey.Meta}) and str(target) not in _PLAIN:
            return None
    return found
