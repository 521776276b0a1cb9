"""Checks before a search whether its kernels could ever run in the user's program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask, ProgramMode
from kernel_assistant.source.scripted import scripted_above


def refuse_never_run(name: str, facts: Mapping[str, Any], program: ProgramMode) -> None:
    """Raises UsageError if kernels of the class `name` could never run, because of the class itself (`facts` of the
    opened task) or because the user's program runs it only in torch.jit.script."""
    refused = f"kernels would never run in place of {name}"
    if never := facts.get("never_runs"):
        raise UsageError(f"{refused}: {never}", "optimize a class inside it, or change the class")
    if program is ProgramMode.scripted:
        raise UsageError(
            f"{refused}: the last scan saw your program run it inside torch.jit.script alone, which calls no Python",
            "leave torch.jit.script out of the program (torch.compile may take its place) and scan it again",
        )


def warning_of_script(task: KernelTask, program: ProgramMode) -> str:
    """Returns a warning if the file passes the class to torch.jit.script and no scan has recorded how the program runs
    it; else "". It is only a warning, because other files may call the class in another way."""
    above = scripted_above(task.content, task.class_name) if program is ProgramMode.unknown else ""
    if not above:
        return ""
    where = f"makes {task.class_name} for " + ("" if above == task.class_name else f"{above}, which it gives to ")
    return (
        f"{Path(task.path).name} {where}torch.jit.script: kernels never run there, since it calls no Python; they run "
        f"once {above} is called as it is, or compiled by torch.compile"
    )
