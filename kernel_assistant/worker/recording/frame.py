"""One call while it runs, and which calls are none of ours."""

from __future__ import annotations

from typing import Any

import torch

from .classes import Configuration, ModuleClass, Signature


class Frame:
    """One call that runs now. Times are of the CPU's clock."""

    __slots__ = (
        "above",
        "began",
        "begun",
        "cls",
        "compiled",
        "configuration",
        "first",
        "inside",
        "module",
        "overhead",
        "signature",
        "target",
        "unserved",
    )

    def __init__(self, module: Any, cls: ModuleClass, above: Frame | None) -> None:
        self.module, self.cls, self.above = module, cls, above
        self.began = self.overhead = 0.0
        self.begun: Any = None
        self.compiled = False
        self.first = False
        self.inside = False
        self.target = cls
        self.unserved = ""
        self.configuration: Configuration | None = None
        self.signature: Signature | None = None


def not_eager(module: Any) -> str:
    """Why a call is passed by: "" if it is not."""
    cls = type(module)
    if cls.__name__ == "OptimizedModule" or module.__dict__.get("_compiled_call_impl") is not None:
        return "torch.compile"
    if isinstance(module, torch.jit.ScriptModule) or torch._C._get_tracing_state() is not None:
        return "torch.jit"
    if cls.__module__.startswith("torch.fx"):
        return "torch.fx"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "functional transform"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "dispatch mode"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        return "CUDA graph capture"
    return ""
