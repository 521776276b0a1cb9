"""Code actions of the module classes in a range. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol.types import CodeAction, CodeActionDisabled, CodeActionKind, Command, Range

from kernel_assistant.session.class_state import ClassState
from kernel_assistant.source.find import ModuleClass
from kernel_assistant_lsp.classes import why_not
from kernel_assistant_lsp.client import Abilities
from kernel_assistant_lsp.edits import workspace_edit
from kernel_assistant_lsp.jobs.view import JobView
from kernel_assistant_lsp.names import (
    APPLY,
    CANCEL,
    DIFF,
    DISCARD,
    INPUTS,
    OPTIMIZE,
    PROFILE,
    SCAN,
    SHOW,
    UNDO,
    VERIFY,
)
from kernel_assistant_lsp.silence import ignored, with_comment
from kernel_assistant_lsp.snapshot import Snapshot

KIND = CodeActionKind.RefactorRewrite


def actions(
    snapshot: Snapshot,
    where: Range,
    classes: Iterable[ModuleClass],
    states: Mapping[str, ClassState],
    running: Mapping[str, JobView],
    abilities: Abilities,
) -> list[CodeAction]:
    """Of the innermost class around `where`; what cannot be done now is shown as disabled to a client that shows it."""
    chosen = innermost(snapshot, where, classes)
    if chosen is None:
        return []
    job = running.get(chosen.name)
    found = _of_class(snapshot, chosen, states.get(chosen.name, ClassState()), job, why_not(chosen))
    if not ignored(snapshot, chosen):
        found.append(_ignore(snapshot, chosen, abilities))
    if not abilities.disabled_actions:
        found = [action for action in found if action.disabled is None]
    return found


def innermost(snapshot: Snapshot, where: Range, classes: Iterable[ModuleClass]) -> ModuleClass | None:
    """The class around the beginning of `where`, of several the one that begins last."""
    line = where.start.line + 1
    around = [one for one in classes if one.line <= line <= one.end_line]
    return max(around, key=lambda one: one.line, default=None)


def resolved(action: CodeAction, snapshot: Snapshot, classes: Iterable[ModuleClass], *, versioned: bool) -> CodeAction:
    """`action` with its edit, where it stands for one. Others, and those of other servers, come back as they are."""
    data = action.data if isinstance(action.data, Mapping) else {}
    if action.edit is not None or data.get("do") != "ignore":
        return action
    for one in classes:
        if one.name == data.get("class") and not ignored(snapshot, one):
            action.edit = workspace_edit(snapshot, with_comment(snapshot, one), versioned=versioned)
    return action


def _of_class(
    snapshot: Snapshot, one: ModuleClass, state: ClassState, job: JobView | None, hindrance: str
) -> list[CodeAction]:
    argument = {"uri": snapshot.uri, "class": one.name}
    with_job = {**argument, "job": state.job} if state.job else argument
    if job is not None:
        hindrance = hindrance or f"job {job.job} is at it"
    found = [_action(f"Optimize this module ({one.name})", OPTIMIZE, argument, hindrance, preferred=True)]
    if job is not None:
        found.append(_action(f"Cancel job {job.job}", CANCEL, {**argument, "job": job.job}))
    if state.applied:
        found.append(_action(f"Undo the kernels of {one.name}", UNDO, argument))
        found.append(_action(f"Verify the kernels of {one.name} again", VERIFY, argument, hindrance))
    elif state.improved:
        found.append(_action(f"Review the kernels of {one.name}", DIFF, with_job))
        found.append(_action(f"Apply the kernels of {one.name} ({state.figure})", APPLY, with_job, state.stale))
        found.append(_action(f"Discard the kernels of {one.name}", DISCARD, with_job))
        found.append(_action(f"Verify the kernels of {one.name} again", VERIFY, with_job, hindrance))
    if state.job:
        found.append(_action(f"Show the report of {one.name}", SHOW, with_job))
    found.append(_action(f"Profile {one.name} line by line", PROFILE, argument, hindrance))
    found.append(_action(f"Draft inputs for {one.name}", INPUTS, {**argument, "how": "draft"}, why_not(one)))
    found.append(_action("Scan a program and rank its modules", SCAN, {"uri": snapshot.uri}))
    return found


def _action(
    title: str, command: str, argument: Mapping[str, str], hindrance: str = "", *, preferred: bool = False
) -> CodeAction:
    if hindrance:
        return CodeAction(title=title, kind=KIND, disabled=CodeActionDisabled(reason=hindrance))
    call = Command(title=title, command=command, arguments=[dict(argument)])
    return CodeAction(title=title, kind=KIND, command=call, is_preferred=True if preferred else None)


def _ignore(snapshot: Snapshot, one: ModuleClass, abilities: Abilities) -> CodeAction:
    """A client that resolves gets the edit when it asks for it, any other at once."""
    action = CodeAction(
        title=f"Ignore {one.name} from now on",
        kind=KIND,
        data={"do": "ignore", "uri": snapshot.uri, "class": one.name},
    )
    if abilities.resolves_edits:
        return action
    return resolved(action, snapshot, [one], versioned=abilities.versioned_edits)
