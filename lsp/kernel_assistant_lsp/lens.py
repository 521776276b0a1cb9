"""The line above each module class: what can be done with it, and what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol.types import CodeLens, Command, Range

from kernel_assistant.session.class_state import ClassState
from kernel_assistant.source.find import ModuleClass
from kernel_assistant_lsp.jobs.view import JobView, told
from kernel_assistant_lsp.names import APPLY, CANCEL, DIFF, DISCARD, OPTIMIZE, SHOW, UNDO
from kernel_assistant_lsp.silence import ignored
from kernel_assistant_lsp.snapshot import Snapshot

_NONE = ClassState()


def lenses(
    snapshot: Snapshot,
    classes: Iterable[ModuleClass],
    states: Mapping[str, ClassState],
    running: Mapping[str, JobView],
) -> list[CodeLens]:
    """Of every class that can be optimized where it stands and is not ignored. `running` has active jobs by class."""
    found: list[CodeLens] = []
    for one in classes:
        if one.addressable and not ignored(snapshot, one):
            place = Range(snapshot.position(_start(snapshot, one)), snapshot.position(_start(snapshot, one)))
            argument = {"uri": snapshot.uri, "class": one.name}
            offers = _offers(states.get(one.name, _NONE), running.get(one.name), argument)
            found += [CodeLens(range=place, command=command) for command in offers]
    return found


def _start(snapshot: Snapshot, one: ModuleClass) -> int:
    """Where the class begins on its first line, so that the lens is indented like it."""
    line = snapshot.line(one.line - 1)
    return snapshot.starts[min(one.line, len(snapshot.starts)) - 1] + len(line) - len(line.lstrip(" \t\f"))


def _offers(state: ClassState, running: JobView | None, argument: dict[str, str]) -> list[Command]:
    if running is not None:
        return [
            _command(progress(running), SHOW, argument, running.job),
            _command("Cancel", CANCEL, argument, running.job),
        ]
    if state.applied:
        return _of_applied(state, argument)
    if state.state in ("interrupted", "queued", "running"):
        # The latter two without a host that has it: nobody came back since that host died.
        return [_command("Kernel Assistant: interrupted · continue", OPTIMIZE, argument)]
    if not state.outcome:
        failed = f"Kernel Assistant: failed: {state.message} · try again" if state.state == "failed" else ""
        return [_command(failed or "Optimize with Kernel Assistant", OPTIMIZE, argument)]
    return _of_result(state, argument)


def progress(running: JobView) -> str:
    """One line on a job that is queued or running."""
    best = f" · best {told(running.best)}" if running.best is not None else ""
    return f"Kernel Assistant: {running.message or running.state}{best}"


def _of_applied(state: ClassState, argument: dict[str, str]) -> list[Command]:
    undo = _command("Undo", UNDO, argument)
    if state.stale:
        return [_command(f"stale: {state.stale} · optimize again", OPTIMIZE, argument), undo]
    words = [state.figure, "verified", fallback_words(state), "show"]
    return [_command(" · ".join(filter(None, words)), SHOW, argument, state.job), undo]


def _of_result(state: ClassState, argument: dict[str, str]) -> list[Command]:
    again = _command("Optimize again", OPTIMIZE, argument)
    if state.stale:
        return [_command(f"stale: {state.stale} · show", SHOW, argument, state.job), again]
    if not state.improved:
        words = state.outcome.replace("_", " ")
        return [_command(f"Kernel Assistant: {words} · show", SHOW, argument, state.job), again]
    return [
        _command(f"{state.figure} · verified · show", SHOW, argument, state.job),
        _command("Review", DIFF, argument, state.job),
        _command("Apply", APPLY, argument, state.job),
        _command("Discard", DISCARD, argument, state.job),
    ]


def fallback_words(state: ClassState) -> str:
    """How often the guard left a call to the original, "" where no program has reported."""
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
