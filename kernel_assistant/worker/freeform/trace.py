"""Names the torch operators that run while a candidate is called. All but allocation, views and copies are forbidden.

The runner reports the names, and the judge decides. Code that bypasses the dispatcher (`at::cuda` from C++) is not seen
by the dispatch mode; if it launches kernels on a GPU, the profiler's trace names them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..runner.pytorch.trace import DispatchedOperators

#: Operators that allocate, view, copy or cast, or that read metadata.
PASSIVE = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided new_zeros new_ones new_full zeros zeros_like ones
    ones_like full full_like zero_ fill_ zero fill view _unsafe_view reshape _reshape_alias as_strided transpose t
    permute expand expand_as slice select squeeze unsqueeze narrow split split_with_sizes chunk unbind unflatten
    flatten movedim detach alias clone contiguous copy_ _copy_from _to_copy to lift_fresh lift_fresh_copy set_ resize_
    _local_scalar_dense item is_nonzero numpy_T mT numel size stride sym_size sym_numel sym_stride is_contiguous dim
    device storage_offset sym_storage_offset result_type view_as swapaxes swapdims diagonal unfold
    _has_compatible_shallow_copy_type record_stream is_pinned pin_memory resolve_conj resolve_neg type_as
    _reshape_copy""".split()
)

#: Namespaces of PyTorch's CUDA kernels, and the names that the kernels of `PASSIVE` have there.
KERNEL_SPACES = ("at::native::", "at_cuda_detail::")
PASSIVE_KERNELS = ("FillFunctor", "copy_kernel")
LONGEST = 100


def operators_of(call: Callable[[], object]) -> list[str]:
    """Runs `call`. Returns the names of the operators that are not in `PASSIVE`, then those of PyTorch's kernels that
    neither copy nor fill.

    The candidate's own operators (`torch.library`, `TORCH_LIBRARY`) do not count, because they are not in the namespace
    aten.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler, DispatchedOperators() as seen:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    events = profiler.events() or ()
    names = {str(each._schema.name) for each in seen.operators}
    names |= {event.name for event in events if event.name.startswith(("aten::", "prims::"))}
    computing = sorted(name for name in names if _computes(name))
    kernels = {event.name for event in events if event.device_type.name == "CUDA"}
    return [*computing, *sorted(name[:LONGEST] for name in kernels if _is_torch_kernel(name))]


def _computes(name: str) -> bool:
    space, _, operator = name.partition("::")
    return space in ("aten", "prims", "quantized", "mkldnn", "_c10d_functional") and operator not in PASSIVE


def _is_torch_kernel(name: str) -> bool:
    """Whether a kernel is PyTorch's and computes, judged by its mangled name. A candidate's own kernel has no reason to
    be in PyTorch's namespaces."""
    return any(space in name for space in KERNEL_SPACES) and not any(work in name for work in PASSIVE_KERNELS)
