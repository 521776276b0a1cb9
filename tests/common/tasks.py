"""Tasks as `build_task` makes them; a test names what it is about."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from kernel_assistant.records import InputSource, KernelTask, Workload


def unattended() -> dict[str, Any]:
    """How tests open a task: in a sandbox, and nobody cancels or listens."""
    return {"sandbox_mode": "auto", "cancel": threading.Event(), "emit": lambda event: None}


def task_of(path: Path | str, content: str, class_name: str = "Net", **fields: Any) -> KernelTask:
    """A task of a class whose file has `get_inputs`, except for `fields`."""
    known = {"source": InputSource.get_inputs, "workloads": (Workload(),), **fields}
    return KernelTask(path=str(path), content=content, class_name=class_name, **known)
