"""Checks that a module can be judged: its calls give the same results when repeated, change nothing, and return
tensors."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ..graph.operators import draws
from ..process.memory import available_bytes
from ..process.worker_errors import TaskError
from ..user_module.inputs import DTYPES

#: Largest difference of two runs on equal inputs, relative to the largest value of the output; and in roundings of its
#: dtype where nothing is drawn or kept: sums in another order differ by rounding, which a deep network spreads.
REPEAT_TOLERANCE, ROUNDINGS = 1e-6, 8


def check_signature(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises TaskError (forward_failed) if the declared inputs do not fit the signature of `forward`."""
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TaskError(
            "forward_failed",
            f"{type(model).__name__}.forward{signature} does not take the declared inputs: {error}",
            "declare as many inputs as forward takes; keyword arguments go into kwargs={...}",
        ) from error


def tensor_outputs(result: Any, name: str) -> tuple[torch.Tensor, ...]:
    """Returns the tensors of a module's result in pytree order, without any None. Raises TaskError (unsupported_output)
    if there is anything else in it, or no tensor; `name` is the class for the message."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            what = f"a {type(leaf).__name__}"
        elif leaf.layout != torch.strided or leaf.dtype not in DTYPES:
            what = f"a {leaf.layout} tensor of {leaf.dtype}"
        else:
            continue
        raise TaskError(
            "unsupported_output",
            f"{name}.forward returns {what}",
            "return dense tensors (in tuples, lists or dicts), move the rest out of forward",
        )
    if not leaves:
        raise TaskError("unsupported_output", f"{name}.forward returns no tensor", "return the result from forward")
    return tuple(leaves)


class MutationCheck:
    """Notes the state of `tensors`; `changed()` returns the indices of those that were written to since then."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        self.versions = [tensor._version for tensor in self.tensors]
        # Version counters miss writes through `.data` or numpy; copies reveal them, if there is memory for copies.
        total = sum(tensor.nbytes for tensor in self.tensors)
        room = available_bytes(str(self.tensors[0].device)) if self.tensors else 0
        self.copies = [tensor.clone() for tensor in self.tensors] if 4 * total < room else None

    def changed(self) -> list[int]:
        return [
            index
            for index, tensor in enumerate(self.tensors)
            if tensor._version != self.versions[index]
            or (self.copies is not None and not same(tensor, self.copies[index]))
        ]


def check_inputs_unchanged(watch: MutationCheck, name: str) -> None:
    """Raises TaskError (mutates_inputs) if the call wrote to a tensor of `watch`; `name` is the class for the
    message."""
    changed = watch.changed()
    if changed:
        raise TaskError(
            "mutates_inputs",
            f"{name}.forward changes its input tensor {changed[0]} (counted from 0) in place",
            "work on a copy: x = x.clone() at the start of forward, or use operators without a trailing underscore",
        )


def held_state(model: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """Returns the `id` and the version counter of every parameter and buffer, by dotted name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (id(tensor), tensor._version) for name, tensor in named}


def check_state_unchanged(
    before: dict[str, tuple[int, int]], model: torch.nn.Module, allowed: Collection[str] = ()
) -> None:
    """Raises TaskError (mutates_inputs) if a call changed a parameter or a buffer that is not in `allowed`. `before` is
    the result of `held_state` before the call."""
    after = held_state(model)
    changed = [name for name in after if before.get(name) != after[name] and name not in allowed]
    if changed:
        raise TaskError(
            "mutates_inputs",
            f"{type(model).__name__}.forward changes its own {changed[0]}",
            _next_step(model, changed[0], before[changed[0]][0] if changed[0] in before else None),
        )


def check_held_by_module(foreign: Collection[str], name: str) -> None:
    """Raises TaskError (unsupported_input) if `foreign` is not empty: the names of tensors that the graph reads and
    that are no parameters, buffers or attributes of the module. An applied kernel could not read them from the module,
    and so would never run."""
    if foreign:
        raise TaskError(
            "unsupported_input",
            f"{name}.forward uses a tensor that the module does not hold, and not as a few numbers",
            "register it as a buffer, or the module that has it as a child, in __init__",
        )


def _next_step(model: torch.nn.Module, name: str, identity: int | None) -> str:
    buffer = dict(model.named_buffers()).get(name)
    if buffer is not None and id(buffer) != identity:
        return f"write the new value into the buffer instead of replacing it: self.{name}.copy_(...)"
    return "evaluate it in a mode that changes nothing (eval), or move the update out of forward"


def kept_attribute(effects: Sequence[str]) -> str:
    """Returns the first attribute of the module, such as `self.hidden`, that a call changes according to `effects`
    (texts that `side_effects.watched` found); "" if there is none."""
    changed = (effect.removeprefix("changes ") for effect in effects)
    return next((name for name in changed if name.startswith("self.")), "")


def keep_in_a_buffer(name: str) -> str:
    """Returns the advice to a user whose forward changes the attribute `name`: keep it in a buffer, because a graph can
    contain the new values of buffers."""
    owner, _, own = name.rpartition(".")
    return f'keep it in a buffer: {owner}.register_buffer("{own}", ...) in __init__, {name}.copy_(...) in forward'


def check_repeats(
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
    name: str,
    program: ExportedProgram | None,
    effects: Sequence[str] = (),
) -> bool:
    """Whether two runs gave equal bits. False if they differ by rounding only and nothing is drawn at random; raises
    TaskError (nondeterministic) if they differ otherwise. `name` is the class; `program` and `effects` show what may be
    the cause."""
    pairs = list(zip(first, second, strict=True)) if len(first) == len(second) else []
    if pairs and all(same(one, other) for one, other in pairs):
        return True
    if pairs and all(_close(one, other, REPEAT_TOLERANCE) for one, other in pairs):
        return False
    random, kept = _random_operators(program), kept_attribute(effects)
    may_round = program is not None and not random and not kept
    if pairs and may_round and all(_close(one, other, _rounding(one.dtype)) for one, other in pairs):
        return False
    if kept and not random:
        message = (
            f"{name}.forward gives different results for the same inputs: each call changes {kept}, which is no buffer"
        )
        raise TaskError("nondeterministic", message, keep_in_a_buffer(kept))
    cause = f" (it draws random numbers: {', '.join(random)})" if random else ""
    raise TaskError(
        "nondeterministic",
        f"{name}.forward gives different results for the same inputs{cause}",
        "switch randomness off in eval mode, e.g. F.dropout(x, training=self.training), or pass the noise as an input",
    )


def traceback_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have equal dtype, shape and values; NaN equals NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def largest_value_bytes(program: ExportedProgram) -> int:
    """Returns the bytes of the largest tensor that a program creates, at the sizes it was exported with."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "call_function"]
    return max((_value_bytes(leaf) for leaf in pytree.tree_leaves(values)), default=0)


def _value_bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    return value.element_size() * math.prod(_size(size) for size in value.shape)


def _size(size: Any) -> int:
    """Returns the value of a size at export; 1 if it depends on values of tensors. A symbolic size is not converted,
    because that would fix it in the program."""
    return size if isinstance(size, int) else int(getattr(getattr(size, "node", None), "hint", None) or 1)


def _rounding(dtype: torch.dtype) -> float:
    """Returns the largest difference, relative to the largest value, that may come from adding in another order."""
    return ROUNDINGS * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def _close(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or not one.is_floating_point():
        return False
    if not torch.equal(one.isfinite(), other.isfinite()):
        return False
    finite = one.isfinite()
    one, other = one[finite].double(), other[finite].double()
    return bool((one - other).abs().max() <= tolerance * one.abs().max()) if one.numel() else True


def _random_operators(program: ExportedProgram | None) -> list[str]:
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, GraphModule)] if program else []
    names = [
        str(node.target).split(".")[1].removeprefix("native_")
        for graph in graphs
        for node in graph.nodes
        if draws(node)
    ]
    return list(dict.fromkeys(names))
