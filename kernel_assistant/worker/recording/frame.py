"""The record of one running call, and the conditions under which a call is not recorded."""

from __future__ import annotations

from typing import Any

import torch

from .classes import ObservedClass, ObservedConfiguration, ObservedSignature
from .rounds import OutermostCalls


class CallFrame:
    """One running call of `module`; `above` is the recorded call around it, if any. `began` and `overhead` (time of the
    recorder itself within the call) are in seconds of the CPU's clock; `begun` is what `CallClock.begin` returned;
    `inside` says whether a call of the same class is around it; `target` is the class to which its time counts."""

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
        "outermost",
        "overhead",
        "phase",
        "signature",
        "target",
        "unserved",
    )

    def __init__(self, module: Any, cls: ObservedClass, above: CallFrame | None) -> None:
        self.module, self.cls, self.above = module, cls, above
        self.began = self.overhead = 0.0
        self.begun: Any = None
        self.outermost: OutermostCalls | None = None
        self.phase: int = 0 if above is None else above.phase
        self.compiled = False
        self.first = False
        self.inside = False
        self.target = cls
        self.unserved = ""
        self.configuration: ObservedConfiguration | None = None
        self.signature: ObservedSignature | None = None


def not_eager(module: Any) -> str:
    """Returns the reason why a call of `module` is not recorded as a normal eager call, such as "torch.compile"; "" if
    it is one."""
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
