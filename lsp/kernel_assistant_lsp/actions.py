"""Code actions (the editor's menu of commands) for the module classes in a range of a document. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol.types import CodeAction, CodeActionDisabled, CodeActionKind, Command, Range

from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.source.find import ModuleClass
from kernel_assistant.source.outline import Outline
from kernel_assistant_lsp.client import ClientCapabilities
from kernel_assistant_lsp.jobs.view import EditorJob
from kernel_assistant_lsp.names import (
    APPLY,
    CANCEL,
    CONFIRM,
    DIFF,
    DISCARD,
    INPUTS,
    KERNELS,
    OPTIMIZE,
    PROFILE,
    SCAN,
    SHOW,
    UNDO,
    VERIFY,
)
from kernel_assistant_lsp.silence import ignored, with_comment
from kernel_assistant_lsp.text.classes import in_words, why_not
from kernel_assistant_lsp.text.edits import workspace_edit
from kernel_assistant_lsp.text.homeless import in_words as in_no_file
from kernel_assistant_lsp.text.snapshot import Snapshot

KIND = CodeActionKind.RefactorRewrite


def actions(
    snapshot: Snapshot,
    where: Range,
    known: Outline,
    states: Mapping[str, ClassState],
    running: Mapping[str, EditorJob],
    abilities: ClientCapabilities,
) -> list[CodeAction]:
    """Returns the code actions of the innermost class around `where`. `known` has the document's classes and syntax
    errors; `states` and `running` map class names to the state and to the active job. Actions that are not possible now
    are disabled, or left out if the client cannot show disabled actions."""
    chosen = innermost(snapshot, where, known.classes)
    if chosen is None:
        return []
    job = running.get(chosen.name)
    fault = known.fault_of(chosen)
    hindrance = in_no_file(snapshot, chosen.name) or why_not(chosen) or ("" if fault is None else in_words(fault))
    offered = _of_class(snapshot, chosen, states.get(chosen.name, ClassState()), job, hindrance)
    if not ignored(snapshot, chosen):
        offered.append(_ignore(snapshot, chosen, abilities))
    if not abilities.disabled_actions:
        offered = [action for action in offered if action.disabled is None]
    return offered


def innermost(snapshot: Snapshot, where: Range, classes: Iterable[ModuleClass]) -> ModuleClass | None:
    """Returns the class that contains the start of `where`, the innermost one of nested classes; None if there is
    none."""
    line = where.start.line + 1
    around = [one for one in classes if one.line <= line <= one.end_line]
    return max(around, key=lambda one: one.line, default=None)


def resolved(action: CodeAction, snapshot: Snapshot, classes: Iterable[ModuleClass], *, versioned: bool) -> CodeAction:
    """Fills in the edit of the action that hides a class from lenses, for `codeAction/resolve`; every other action is
    returned unchanged. With `versioned`, the edit names the document's version."""
    data = action.data if isinstance(action.data, Mapping) else {}
    if action.edit is not None or data.get("do") != "ignore":
        return action
    for one in classes:
        if one.name == data.get("class") and not ignored(snapshot, one):
            action.edit = workspace_edit(snapshot, with_comment(snapshot, one), versioned=versioned)
    return action


def _of_class(
    snapshot: Snapshot, one: ModuleClass, state: ClassState, job: EditorJob | None, hindrance: str
) -> list[CodeAction]:
    argument = {"uri": snapshot.uri, "class": one.name}
    with_job = {**argument, "job": state.job} if state.job else argument
    broken = hindrance
    if job is not None:
        hindrance = hindrance or f"job {job.job} is at it"
    offered = [_action(f"Optimize this module ({one.name})", OPTIMIZE, argument, hindrance, preferred=True)]
    if job is not None:
        offered.append(_action(f"Cancel job {job.job}", CANCEL, {**argument, "job": job.job}))
    if state.applied:
        offered.append(_action(f"Undo the kernels of {one.name}", UNDO, argument))
        offered.append(_action(f"Verify the kernels of {one.name} again", VERIFY, argument, hindrance))
    elif state.unused:
        offered.append(_action(f"Clean up the unused kernels of {one.name}", UNDO, argument))
    if state.applicable and not state.applied:
        offered.append(_action(f"Review the kernels of {one.name}", DIFF, with_job))
        offered.append(
            _action(f"Apply the kernels of {one.name} ({state.figure})", APPLY, with_job, state.stale or broken)
        )
        offered.append(_action(f"Discard the kernels of {one.name}", DISCARD, with_job))
        offered.append(_action(f"Verify the kernels of {one.name} again", VERIFY, with_job, hindrance))
    if state.applicable:
        offered.append(_action(f"Show the kernels of {one.name}", KERNELS, with_job))
    if state.unconfirmed:
        unconfirmed = {**argument, "job": state.unconfirmed}
        title = f"Verify in full what job {state.unconfirmed} found for {one.name}"
        offered.append(_action(title, CONFIRM, unconfirmed, hindrance))
    if state.job:
        offered.append(_action(f"Show the report of {one.name}", SHOW, with_job))
    offered.append(_action(f"Profile {one.name} line by line", PROFILE, argument, hindrance))
    offered.append(_action(f"Draft inputs for {one.name}", INPUTS, {**argument, "how": "draft"}, broken))
    offered.append(_action("Scan a program and rank its modules", SCAN, {"uri": snapshot.uri}))
    return offered


def _action(
    title: str, command: str, argument: Mapping[str, str], hindrance: str = "", *, preferred: bool = False
) -> CodeAction:
    if hindrance:
        return CodeAction(title=title, kind=KIND, disabled=CodeActionDisabled(reason=hindrance))
    call = Command(title=title, command=command, arguments=[dict(argument)])
    return CodeAction(title=title, kind=KIND, command=call, is_preferred=True if preferred else None)


def _ignore(snapshot: Snapshot, one: ModuleClass, abilities: ClientCapabilities) -> CodeAction:
    """Return the action that hides a class from lenses. A client that supports `codeAction/resolve` asks for its edit
    later; for all other clients the action contains the edit.
    """
    action = CodeAction(
        title=f"Ignore {one.name} from now on",
        kind=KIND,
        data={"do": "ignore", "uri": snapshot.uri, "class": one.name},
    )
    if abilities.resolves_edits:
        return action
    return resolved(action, snapshot, [one], versioned=abilities.versioned_edits)
