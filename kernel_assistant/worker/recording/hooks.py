"""Replaces `Module.__call__`, `Module.__init__` and `os._exit` to record calls and to write the recording at exit."""

from __future__ import annotations

import atexit
import os
import sys
import types
from typing import Any, NoReturn

import torch

from .recorder import Recorder


def install(folder: str, began: float, *, outermost: bool = False) -> Recorder:
    """Installs a recorder that writes to `folder`, and returns it. `began` is the first `time.perf_counter()` of the
    process. With `outermost`, only calls that are not inside another module's call are timed."""
    recorder = Recorder(folder, began, outermost=outermost)
    _replace_call(recorder)
    if not outermost:
        _replace_init(recorder)
    _hide_from_compiler()
    atexit.register(recorder.end, "exit")
    _replace_exit(recorder)
    os.register_at_fork(after_in_child=recorder.stop)
    return recorder


def _replace_call(recorder: Recorder) -> None:
    original, is_compiling = torch.nn.Module.__call__, torch.compiler.is_compiling
    enter, leave = recorder.enter, recorder.leave

    def wrapped_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not recorder.active:
            return original(self, *args, **kwargs)
        frame = enter(self, args, kwargs)
        if frame is None:
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            leave(frame, None)
            raise
        leave(frame, result)
        return result

    torch.nn.Module.__call__ = wrapped_call  # type: ignore[method-assign]
    _mark(wrapped_call.__code__)


def _replace_init(recorder: Recorder) -> None:
    original, is_compiling, constructed = (
        torch.nn.Module.__init__,
        torch.compiler.is_compiling,
        recorder.constructors.note,
    )

    def wrapped_init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if recorder.active and not is_compiling():
            constructed(self, sys._getframe(1))

    torch.nn.Module.__init__ = wrapped_init  # type: ignore[method-assign]
    _mark(wrapped_init.__code__)


def _replace_exit(recorder: Recorder) -> None:
    leave_now = os._exit

    def wrapped_exit(status: int) -> NoReturn:
        recorder.end("os._exit")
        leave_now(status)

    os._exit = wrapped_exit


def _hide_from_compiler() -> None:
    """Makes torch.compile skip every function of this package that runs between two compiled graphs."""
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            for value in list(vars(module).values()):
                for member in [value, *(vars(value).values() if isinstance(value, type) else ())]:
                    function = member.fget if isinstance(member, property) else member
                    if isinstance(function, types.FunctionType) and function.__module__ == name:
                        _mark(function.__code__)


def _mark(code: types.CodeType) -> None:
    """Makes torch.compile skip `code` and the functions inside it."""
    _skip(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _mark(constant)


def _skip(code: types.CodeType) -> None:
    """Marks `code` to be skipped by torch.compile, as `torch._dynamo` marks its own helpers, without importing it. If
    torch has no function for that, nothing is marked."""
    from torch._C._dynamo import eval_frame

    set_strategy = getattr(eval_frame, "set_code_exec_strategy", None)
    if set_strategy is not None:
        action = eval_frame._FrameAction
        set_strategy(code, eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(code)
