"""Changes to a module or to PyTorch's settings that may make it faster without a kernel, such as TF32 or channels-last,
and the conditions under which each of them is tried.

They are listed in the order in which they are tried, cheap ones first. All but `compile` are applied together with
`torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..opening.open_task import OpenTask
from ..user_module.copying import deep_copy
from ..user_module.inputs import DTYPES
from .fused_attention import fuse
from .in_float32 import HALVES, InFloat32

COMPILE, FLOAT32 = "compile", "float32"
_PRODUCTS = frozenset(
    "addbmm addmm addmv baddbmm bilinear bmm dot einsum gru linear lstm matmul mm mv rnn_relu rnn_tanh "
    "scaled_dot_product_attention tensordot".split()
)
_LAYOUTS = {4: (torch.channels_last, "torch.channels_last"), 5: (torch.channels_last_3d, "torch.channels_last_3d")}


@dataclass(frozen=True)
class Change:
    """A change that may make a module faster. `write` is the line of code that applies the change. `transform` returns
    a changed module, `scope` changes settings while it compiles and runs and restores them, `options` go to
    torch.compile. `note` is a remark for the user; a `costly` change takes long to try.
    """

    name: str
    write: str
    note: str = ""
    costly: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    scope: Callable[[], AbstractContextManager[None]] = nullcontext
    transform: Callable[[torch.nn.Module], torch.nn.Module] | None = None


def changes_for(task: OpenTask) -> dict[str, Change]:
    """Returns the changes that may help a task, by name, in the order in which to try them."""
    operators = _Operators(task)
    offered = [
        Change(COMPILE, "module = torch.compile(module)"),
        in_float32(task),
        _tf32(task, operators),
        _fused_attention(task),  # returns a new module, so other transforms come later
        _channels_last(operators),
        _freezing(task, operators),
        _cuda_graphs(task),
        _max_autotune(task, operators),
    ]
    return {change.name: change for change in offered if change is not None}


def compiled(task: OpenTask, changes: Sequence[Change]) -> Callable[..., Any]:
    """Returns the task's module with all of `changes` applied, under torch.compile and not yet called. Without changes
    it is what the torch.compile baseline times.

    With changes, sizes are fixed: torch.compile in a warm worker remembers the sizes of other tasks, and would generate
    code for variable sizes where a fresh process would not.
    """
    if not changes:
        return torch.compile(task.model)
    model = task.model
    for change in changes:
        if change.transform is not None:
            model = change.transform(model)
    options: dict[str, Any] = {}
    for change in changes:
        options |= change.options
    return torch.compile(model, dynamic=False, options=options or None)


@contextmanager
def scopes(changes: Sequence[Change]) -> Iterator[None]:
    """Context manager: within the block, the settings of all `changes` are in effect."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.scope())
        yield


class _Operators:
    """The kinds of operators in a task's graph: whether it has matrix `products`, `convolutions`, and either of them in
    float32; `image_ranks` are the numbers of dimensions of the tensors on which convolution, batch norm and pooling
    work."""

    def __init__(self, task: OpenTask) -> None:
        self.products = self.convolutions = self.float32_products = self.float32_convolutions = False
        self.image_ranks: set[int] = set()
        for node in task.traced.program.graph.nodes:
            value = _first_tensor(node.meta.get("val"))
            if node.op != "call_function" or value is None:
                continue
            name = str(node.target).removeprefix("aten.").partition(".")[0]
            product, convolution = name in _PRODUCTS, name.startswith(("conv", "_convolution"))
            self.products |= product
            self.convolutions |= convolution
            self.float32_products |= product and value.dtype == torch.float32
            self.float32_convolutions |= convolution and value.dtype == torch.float32
            if value.dim() in _LAYOUTS and (convolution or "batch_norm" in name or "pool" in name):
                self.image_ranks.add(value.dim())


def in_float32(task: OpenTask) -> Change | None:
    """Returns the change that computes a 16-bit module in float32 on the CPU, where PyTorch's 16-bit kernels may be
    several times slower than those for float32. None if it does not apply.
    """
    held = {value.dtype for value in (*task.model.parameters(), *task.model.buffers())}
    given = {spec["dtype"] for spec in task.traced.input_specs}
    if task.device != "cpu" or not (held & {*HALVES} or given & {DTYPES[dtype] for dtype in HALVES}):
        return None
    dtypes = [spec["dtype"] for spec in task.out_specs]
    return Change(
        FLOAT32,
        "module = module.float()",
        note="converting inputs and outputs is timed",
        transform=lambda model: InFloat32(deep_copy(model).float(), dtypes),
    )


def _tf32(task: OpenTask, operators: _Operators) -> Change | None:
    if not task.device.startswith("cuda"):
        return None
    try:
        products = operators.float32_products and torch.get_float32_matmul_precision() == "highest"
        convolutions = operators.float32_convolutions and not torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the module's file uses the newer settings, which exclude these
        return None
    lines = ['torch.set_float32_matmul_precision("high")'] if products else []
    lines += ["torch.backends.cudnn.allow_tf32 = True"] if convolutions else []
    return Change("tf32", "; ".join(lines), scope=_tf32_allowed) if lines else None


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    precision, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = convolutions


def _channels_last(operators: _Operators) -> Change | None:
    if len(operators.image_ranks) != 1:  # Module.to accepts one layout, and rejects parameters of the other rank
        return None
    (rank,) = operators.image_ranks
    layout, name = _LAYOUTS[rank]

    def transform(model: torch.nn.Module) -> torch.nn.Module:
        model = deep_copy(model).to(memory_format=layout)  # type: ignore[call-overload]
        return ChannelsLast(model, rank)

    return Change(
        "channels_last",
        f"module = module.to(memory_format={name})",
        note="the inputs come as they did, converting them is timed",
        transform=transform,
    )


class ChannelsLast(torch.nn.Module):
    """A module that converts its tensor arguments of `rank` dimensions to channels-last and calls `child` with them."""

    def __init__(self, child: torch.nn.Module, rank: int) -> None:
        super().__init__()
        self.child, self.rank = child, rank

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(self._laid_out, (args, kwargs))
        return self.child(*args, **kwargs)

    def _laid_out(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() != self.rank:
            return value
        return value.contiguous(memory_format=_LAYOUTS[self.rank][0])


def _fused_attention(task: OpenTask) -> Change | None:
    fused = fuse(task.traced.program, task.task["path"])
    if fused is None:
        return None
    return Change("fused_attention", fused.write, transform=lambda model: fused.module)


def _freezing(task: OpenTask, operators: _Operators) -> Change | None:
    held = task.facts["parameter_bytes"] and not task.model.training
    if task.device != "cpu" or not held or not (operators.products or operators.convolutions):
        return None
    return Change(
        "freezing",
        "torch._inductor.config.freezing = True",
        note="for inference only, with weights that never change again",
        options={"freezing": True},
        scope=_freezing_on,
    )


@contextmanager
def _freezing_on() -> Iterator[None]:
    """Context manager that enables torch.compile's freezing (constant folding of parameters) globally, because its
    front end reads this setting to know whether parameters are constants."""
    import torch._inductor.config

    with torch._inductor.config.patch(freezing=True):
        yield


def _cuda_graphs(task: OpenTask) -> Change | None:
    if not task.device.startswith("cuda"):
        return None
    return Change(
        "cuda_graphs",
        'module = torch.compile(module, mode="reduce-overhead")',
        note="a call overwrites the outputs of the one before: clone those you keep",
        options=_mode("reduce-overhead"),
    )


def _max_autotune(task: OpenTask, operators: _Operators) -> Change | None:
    if task.device == "cpu" and not (operators.products or operators.convolutions):
        return None
    mode = "max-autotune-no-cudagraphs"
    return Change("max_autotune", f'module = torch.compile(module, mode="{mode}")', costly=True, options=_mode(mode))


def _mode(name: str) -> dict[str, Any]:
    import torch._inductor

    return dict(torch._inductor.list_mode_options(name))


def _first_tensor(value: Any) -> torch.Tensor | None:
    return next((leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)), None)
