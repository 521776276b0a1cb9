"""The library side of the generator (`library.py`), where this installation has it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from kernel_assistant.records import BufferSpec, Launch, OpGraph

_NAME = "kernel_assistant.generator.library"
_library: ModuleType | None = importlib.import_module(_NAME) if importlib.util.find_spec(_NAME) else None

Groups = tuple[tuple[str, ...], ...]


def library_nodes(graph: OpGraph, target: str) -> Groups:
    """Groups of node names, each computed by one library part; none without the module or on the CPU."""
    found: Groups = _library.library_nodes(graph, target) if _library is not None and target == "cuda" else ()
    return found


def emit_library(graph: OpGraph, prefix: str) -> tuple[list[Launch], tuple[BufferSpec, ...]]:
    """Launches and scratch of one group."""
    assert _library is not None
    launches, scratch = _library.emit_library(graph, prefix)
    return list(launches), tuple(scratch)
