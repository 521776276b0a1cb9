"""Explains why torch.export could not trace a module, as the front end shows it."""

from __future__ import annotations

import linecache
import os
import re
import traceback

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..process.worker_errors import SMALLER, TaskError, first_line, is_out_of_memory
from ..symbols import InexpressibleError
from . import task_checks as checks

_LONGEST_CODE = 80


#: torch's words for an attribute that is no buffer and gets another tensor, or other values.
_STATE = re.compile(r"is mutated in the forward|(was|were) assigned during export", re.IGNORECASE)
#: torch's words for an operator of another library that says nothing about its results' shapes.
_NO_FAKE = re.compile(r"no fake impl|register_fake|missing a? ?fake", re.IGNORECASE)


def trace_failure(error: Exception, name: str, path: str, kept: str = "") -> TaskError:
    """Returns the TaskError for an `error` from exporting the class `name` in the file `path`. `kept` is an attribute
    that `forward` changes, "" if there is none. If code depends on a tensor's values, the message names that line of
    code if it is known, because torch's own message only names symbols of its tracer."""
    if kept and _STATE.search(str(error)):
        message = f"{name}.forward changes {kept}, which is no buffer, so that its trace does not show it"
        return TaskError("mutates_inputs", message, checks.keep_in_a_buffer(kept), checks.traceback_text(error))
    kind, reason, next_step = _explanation(error, path)
    message = f"torch.export cannot trace {name}.forward: {reason}"
    return TaskError(kind, message, next_step, checks.traceback_text(error))


def _explanation(error: Exception, path: str) -> tuple[str, str, str]:
    """Returns the kind, the reason and the next step for the TaskError that explains `error`."""
    if is_out_of_memory(error):
        return "out_of_memory", first_line(error), SMALLER
    if isinstance(error, InexpressibleError) and re.search(r"\bu\d+\b", str(error)):
        reason = "a tensor inside has a size that depends on values, as x[mask], nonzero and unique give it"
        return (
            "forward_failed",
            reason,
            "keep sizes fixed (torch.where instead of x[mask]), or move that out of forward",
        )
    depends = _data_dependent(error)
    if depends is None and _NO_FAKE.search(str(error)):
        return "forward_failed", first_line(error), "register its shapes with torch.library.register_fake"
    if depends is None:
        return "forward_failed", first_line(error), "take branches and sizes that depend on values out of forward"
    reason = f"{_line(depends, path)} needs the values of a tensor to go on; kernels are written before there are any"
    return "forward_failed", reason, "write the choice with torch.where, or move that line out of forward"


def _data_dependent(error: BaseException | None) -> BaseException | None:
    """Returns the first exception among `error` and its causes by which torch reports that a branch or a size depends
    on values; None if there is none."""
    while error is not None and not isinstance(error, GuardOnDataDependentSymNode):
        error = error.__cause__ or error.__context__
    return error


def _line(error: BaseException, path: str) -> str:
    """Returns file, number and text of the last line of the user's code in the traceback: a line of the file `path`, or
    else of any file that is not torch's. Returns "a line of it" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    torch_folder = f"{os.sep}torch{os.sep}"
    own = [frame for frame in frames if frame.filename == path] or [
        frame for frame in frames if torch_folder not in frame.filename and frame.filename.endswith(".py")
    ]
    if not own:
        return "a line of it"
    code = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
    code = code if len(code) <= _LONGEST_CODE else code[: _LONGEST_CODE - 1] + "…"
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" + (f" ({code})" if code else "")
