"""Gives the outputs of a graph the strides that the real run gave them, where torch's tracing gives others (as for
resizing on CUDA). This matters because code that reads an output can see its strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..graph.export import ExportedModule
from ..graph.graph_writer import is_contiguous
from ..graph.real_strides import order_in_memory, strides_text
from ..symbols import evaluate_size


def with_real_outputs(traced: ExportedModule, outputs: Sequence[torch.Tensor]) -> ExportedModule | None:
    """Returns the trace with the strides of `outputs`: the results of a run at the traced sizes, followed by the new
    values of buffers. None if these strides leave gaps in memory and the trace has symbolic sizes."""
    dims, graph = traced.graph["dims"], traced.graph
    specs = list(traced.out_specs)
    for position, (spec, tensor) in enumerate(zip(traced.out_specs, outputs, strict=True)):
        if not strides_fit(spec, tensor, dims):
            real_spec = _with_strides(spec, tensor, free=bool(dims))
            if real_spec is None:
                return None
            specs[position] = real_spec
            graph = _with_spec(graph, graph["outputs"][position], real_spec)
    return replace(traced, graph=graph, out_specs=specs)


def strides_fit(spec: dict[str, Any], tensor: torch.Tensor, dims: dict[str, int]) -> bool:
    """Whether `tensor` has the strides of `spec` (a TensorSpec, whose strides are expressions) at the sizes `dims`;
    strides of dimensions of size 1 do not count."""
    if spec["strides"] is None:
        return is_contiguous(tensor.shape, tensor.stride())
    wanted = [evaluate_size(stride, dims) for stride in spec["strides"]]
    rows = zip(tensor.shape, tensor.stride(), wanted, strict=True)
    return tensor.numel() == 0 or all(size == 1 or one == other for size, one, other in rows)


def _with_strides(spec: dict[str, Any], tensor: torch.Tensor, free: bool) -> dict[str, Any] | None:
    if is_contiguous(tensor.shape, tensor.stride()):
        return {**spec, "strides": None}
    order = order_in_memory(tensor.shape, tensor.stride())
    if order is None:
        return None if free else {**spec, "strides": [str(stride) for stride in tensor.stride()]}
    return {**spec, "strides": strides_text(spec["shape"], order)}


def _with_spec(graph: dict[str, Any], name: str, spec: dict[str, Any]) -> dict[str, Any]:
    nodes = [{**node, "spec": spec} if node["name"] == name else node for node in graph["nodes"]]
    return {**graph, "nodes": nodes}
