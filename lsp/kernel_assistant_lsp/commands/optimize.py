"""Commands that start a job for a class. They do not wait for its end."""

from __future__ import annotations

from typing import Any

from kernel_assistant.session.reporting.check_report import ClassCheck
from kernel_assistant.session.threads import in_thread
from kernel_assistant.store import JobKind
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.flows.arguments import class_of, job_of
from kernel_assistant_lsp.flows.asking import ask, errors_shown
from kernel_assistant_lsp.flows.installed import is_of_library
from kernel_assistant_lsp.following.start import start
from kernel_assistant_lsp.names import INPUTS
from kernel_assistant_lsp.text.snapshot import Snapshot


async def optimize(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Start a job for a class, with its text as it is in the editor. Does not wait for the job's end.

    Return `{"job"}`, or `{"job": null, "needs": "inputs", …}` with choices if the inputs of the class are unknown.
    """
    return await submit(context, argument, JobKind.optimize)


async def submit(context: Context, argument: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    from kernel_assistant.session.prepare import prepare
    from kernel_assistant.source.declared import NoInputsError

    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    spec = f"{snapshot.path}:{name}"

    def prepared() -> Any:
        return prepare(
            spec, settings, text=snapshot.text, kind=kind, inputs=settings.inputs, elsewhere=bool(settings.host)
        )

    try:
        task, options = await in_thread(prepared)
    except NoInputsError as error:
        needed = _needed(snapshot, name, error)
        if context.abilities.messages_with_choices:
            context.spawn(_offer(context, needed))
        return needed
    return await start(context, task, options, settings)


def _needed(snapshot: Snapshot, name: str, error: Any) -> dict[str, Any]:
    argument = {"uri": snapshot.uri, "class": name}
    drafts = [{"title": "Draft a stub", "command": INPUTS, "arguments": [{**argument, "how": "draft"}]}]
    recorded = {"title": "Record them from a program", "command": INPUTS, "arguments": [{**argument, "how": "record"}]}
    return {
        "job": None,
        "needs": "inputs",
        "message": error.cause,
        "nextStep": error.next_step,
        # A draft would be written into the library's file.
        "choices": [*([] if is_of_library(snapshot) else drafts), recorded],
    }


async def _tried(context: Context, choice: dict[str, Any]) -> tuple[str, tuple[str, dict[str, Any]]]:
    """Drafts inputs and runs the class with them. Returns a choice for the user: (title, (command, argument)). The
    command inserts the draft and, if the class ran, starts a job."""
    argument = choice["arguments"][0]
    draft = await drafted(context, *class_of(context, argument))
    line = draft["text"].splitlines()[-1].removeprefix("# kernel-assistant: ")
    title = f"Draft them, not run: {draft['problem']}" if draft["problem"] else f"Optimize with {line}"
    return title, (choice["command"], {**argument, "text": draft["text"], "optimize": not draft["problem"]})


async def _offer(context: Context, needed: dict[str, Any]) -> None:
    """Ask the user how to get inputs, for a client without dialogs of its own. One of the choices is a draft that has
    been run.
    """
    *drafts, record = needed["choices"]
    with errors_shown(context):
        choices = dict([await _tried(context, one) for one in drafts])
        choices[record["title"]] = (record["command"], record["arguments"][0])
        await ask(context, f"{needed['message']}. {needed['nextStep']}", choices)


async def profile(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Time each line of a class's forward, with its text as it is in the editor. Inlay hints and hovers show the
    result.

    Return `{"job"}`. For a class without inputs, return the same answer as `optimize`.
    """
    return await submit(context, argument, JobKind.lines)


async def verify(context: Context, argument: dict[str, Any]) -> dict[str, Any]:
    """Starts a job that verifies kernels again: those applied in the file, or the candidate of the job that the
    argument names.

    Returns `{"job"}`. If the applied kernels are out of date, so that no job is needed, returns `{"job": null,
    "status", "message", "nextStep"}`.
    """
    from kernel_assistant.session.kinds.again import prepare_again

    snapshot, name = class_of(context, argument)
    settings = context.settings(snapshot.path)
    prepared = await in_thread(
        lambda: prepare_again(
            snapshot.path,
            name,
            settings,
            lambda: job_of(context, argument),
            applied="job" not in argument,
            projects=context.folders(),
        )
    )
    if isinstance(prepared, ClassCheck):
        verdict = {"status": prepared.status.value, "message": prepared.message, "nextStep": prepared.next_step}
        return {"job": None, **verdict}
    return await start(context, *prepared, settings)


async def drafted(context: Context, snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Drafts inputs for a class and runs the class with them. Returns `{"text", "origin", "problem"}`: the comment,
    where its values come from, and why the class does not run ("" if it does). Takes as long as importing and running
    the class."""
    from kernel_assistant.session.drafting import draft_that_runs

    settings = context.settings(snapshot.path)
    tried = await in_thread(lambda: draft_that_runs(f"{snapshot.path}:{name}", settings, snapshot.text))
    return {"text": tried.draft.text, "origin": tried.draft.origin, "problem": tried.problem}
