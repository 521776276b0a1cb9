"""Code lenses: the line above each module class that shows its state and its commands. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from lsprotocol.types import CodeLens, Command, Position, Range

from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.reporting.verdicts import apply_title
from kernel_assistant.source.find import ModuleClass
from kernel_assistant.source.outline import Outline, SyntaxFault
from kernel_assistant_lsp.jobs.view import EditorJob, told
from kernel_assistant_lsp.names import (
    APPLY,
    CANCEL,
    CONFIRM,
    DIFF,
    DISCARD,
    KERNELS,
    OPTIMIZE,
    SHOW,
    TRANSCRIPT,
    UNDO,
)
from kernel_assistant_lsp.silence import MARK, ignored
from kernel_assistant_lsp.text.classes import in_words
from kernel_assistant_lsp.text.homeless import in_words as in_no_file
from kernel_assistant_lsp.text.snapshot import Snapshot

_NONE = ClassState()
_MOST_INDENTED = 80


def lenses(
    snapshot: Snapshot,
    known: Outline,
    states: Mapping[str, ClassState],
    running: Mapping[str, EditorJob],
) -> list[CodeLens]:
    """Returns the lenses of every class that can be optimized and that no comment hides. `known` has the document's
    classes and syntax errors; `running` maps class names to active jobs."""
    code_lenses: list[CodeLens] = []
    for one, line, character in _shown(snapshot, known):
        state, job = states.get(one.name, _NONE), running.get(one.name)
        commands = _offers_now(snapshot, one, known.fault_of(one), state, job)
        start = Position(line, character)
        code_lenses += [CodeLens(range=Range(start, start), command=command) for command in commands]
    return code_lenses


def encoded(
    snapshot: Snapshot,
    known: Outline,
    states: Mapping[str, ClassState],
    running: Mapping[str, EditorJob],
) -> str:
    """Returns `lenses` as JSON text. It is put together from strings, with a cache for most classes: building and
    encoding a thousand lens objects takes a tenth of a second, and editors ask at every keystroke."""
    texts: list[str] = []
    for one, line, character in _shown(snapshot, known):
        fault, state, job = known.fault_of(one), states.get(one.name), running.get(one.name)
        if fault is None and state is None and job is None and snapshot.is_file:
            commands = _of_unknown(snapshot.uri, one.name)
        else:
            commands = _texts(_offers_now(snapshot, one, fault, state or _NONE, job))
        at = f'{{"line": {line}, "character": {character}}}'
        texts += [f'{{"range": {{"start": {at}, "end": {at}}}, "command": {command}}}' for command in commands]
    return f"[{', '.join(texts)}]"


@lru_cache(maxsize=8192)
def _of_unknown(uri: str, name: str) -> tuple[str, ...]:
    """Return the commands in the lenses of a class that has no state, no job and no syntax error, as JSON."""
    return _texts(_offers(_NONE, None, {"uri": uri, "class": name}))


def _texts(commands: Iterable[Command]) -> tuple[str, ...]:
    return tuple(
        json.dumps({"title": one.title, "command": one.command, "arguments": list(one.arguments or ())})
        for one in commands
    )


def _shown(snapshot: Snapshot, known: Outline) -> Iterator[tuple[ModuleClass, int, int]]:
    """Yields (class, line, character) for each class that has lenses. The position is where the class statement begins,
    so that its lenses have the same indentation."""
    silent, starts = MARK in snapshot.text, snapshot.starts
    for one in known.classes:
        if one.addressable and not (silent and ignored(snapshot, one)):
            number = min(one.line, len(starts)) - 1
            # Whitespace takes one unit for each character in every position encoding.
            line = snapshot.text[starts[number] : starts[number] + _MOST_INDENTED]
            yield one, number, len(line) - len(line.lstrip(" \t\f"))


def _offers_now(
    snapshot: Snapshot,
    one: ModuleClass,
    fault: SyntaxFault | None,
    state: ClassState,
    running: EditorJob | None,
) -> list[Command]:
    argument = {"uri": snapshot.uri, "class": one.name}
    homeless = in_no_file(snapshot, one.name)
    if homeless:
        return [_command(f"Kernel Assistant: {homeless}", OPTIMIZE, argument)]
    return _offers(state, running, argument) if fault is None else _of_broken(state, running, argument, fault)


def _offers(state: ClassState, running: EditorJob | None, argument: dict[str, str]) -> list[Command]:
    if running is not None:
        return [
            _command(progress(running), SHOW, argument, running.job),
            _command("Transcript", TRANSCRIPT, argument, running.job),
            _command("Cancel", CANCEL, argument, running.job),
        ]
    if state.applied:
        return _of_applied(state, argument)
    left = [_command("its kernels are left behind, unused · clean up", UNDO, argument)] if state.unused else []
    return [*_of_job(state, argument), *left]


def _of_job(state: ClassState, argument: dict[str, str]) -> list[Command]:
    if state.state in ("interrupted", "queued", "running"):
        # Queued or running without a host that has the job: its host died.
        return [_command("Kernel Assistant: interrupted · continue", OPTIMIZE, argument)]
    if not state.outcome:
        failed = f"Kernel Assistant: failed: {state.message} · try again" if state.state == "failed" else ""
        return [_command(failed or "Optimize with Kernel Assistant", OPTIMIZE, argument), *_in_full(state, argument)]
    return _of_result(state, argument)


def _of_broken(
    state: ClassState, running: EditorJob | None, argument: dict[str, str], fault: SyntaxFault
) -> list[Command]:
    """Return the lenses of a class with a syntax error: the error, and the commands that do not need the text of the
    class."""
    commands = [_command(in_words(fault), OPTIMIZE, argument)]
    if running is not None:
        return [*commands, *_offers(state, running, argument)]
    if state.outcome:
        commands.append(_command("Show", SHOW, argument, state.job))
    return [*commands, _command("Undo", UNDO, argument)] if state.applied else commands


def progress(running: EditorJob) -> str:
    """Describe a queued or running job in one line."""
    best = f" · best {told(running.best)}" if running.best is not None else ""
    return f"Kernel Assistant: {running.message or running.status}{best}"


def _of_applied(state: ClassState, argument: dict[str, str]) -> list[Command]:
    undo = _command("Undo", UNDO, argument)
    if state.stale:
        return [_command(f"stale: {state.stale} · optimize again", OPTIMIZE, argument), undo]
    words = [state.figure, "verified", fallback_words(state), "show"]
    summary = _command(" · ".join(filter(None, words)), SHOW, argument, state.job)
    # A package that is part of the repository has no job in this store.
    kernels = [_command("Kernels", KERNELS, argument, state.job)] if state.applicable else []
    return [summary, *kernels, undo]


def _of_result(state: ClassState, argument: dict[str, str]) -> list[Command]:
    again = _command("Optimize again", OPTIMIZE, argument)
    if state.stale:
        return [_command(f"stale: {state.stale} · show", SHOW, argument, state.job), again]
    if not state.applicable:
        words = state.outcome.replace("_", " ")
        shown = _command(f"Kernel Assistant: {words} · show", SHOW, argument, state.job)
        return [shown, *_in_full(state, argument), again]
    return [
        _command(f"{state.figure} · verified · show", SHOW, argument, state.job),
        _command("Kernels", KERNELS, argument, state.job),
        _command("Review", DIFF, argument, state.job),
        _command(apply_title(state.offers, state.gain_over), APPLY, argument, state.job),
        _command("Discard", DISCARD, argument, state.job),
    ]


def _in_full(state: ClassState, argument: dict[str, str]) -> list[Command]:
    """Returns the lens that starts a full measurement of a job's candidate, if the candidate may have a gain that is
    not confirmed; else []."""
    if not state.unconfirmed:
        return []
    return [_command(f"Verify in full (job {state.unconfirmed})", CONFIRM, argument, state.unconfirmed)]


def fallback_words(state: ClassState) -> str:
    """Describes how many calls ran the original instead of the kernels in the last program; "" if no program has
    reported calls."""
    if state.kernel_calls is None:
        return ""
    left = sum(state.fallbacks.values())
    if not left:
        calls = "1 call" if state.kernel_calls == 1 else f"{state.kernel_calls} calls"
        return f"last run: {calls}, none fell back"
    reason = max(state.fallbacks, key=lambda name: state.fallbacks[name])
    return f"last run: {left} of {left + state.kernel_calls} calls fell back ({reason})"


def _command(title: str, command: str, argument: dict[str, str], job: str = "") -> Command:
    return Command(title=title, command=command, arguments=[{**argument, **({"job": job} if job else {})}])
