"""Requests about the text of a document: lenses, code actions, hovers, inlay hints and inline completions."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lsprotocol import types

from kernel_assistant.apply import is_installed
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.reporting.class_state import ClassState
from kernel_assistant.session.threads import in_thread
from kernel_assistant.source.outline import Outline
from kernel_assistant.store import JobRow
from kernel_assistant_lsp.actions import KIND, actions, innermost, resolved
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.encoded import EncodedResult
from kernel_assistant_lsp.features import fixes, ghost, inlay
from kernel_assistant_lsp.features import hover as feature
from kernel_assistant_lsp.features.unsuggested import no_plan, say_why, tasks_alone
from kernel_assistant_lsp.jobs.view import EditorJob
from kernel_assistant_lsp.lens import encoded
from kernel_assistant_lsp.text.snapshot import Snapshot

_log = logging.getLogger(__name__)


def register(context: Context) -> None:
    for of_request in (
        _register_code_lens,
        _register_code_action,
        _register_hover,
        _register_inlay_hint,
        _register_inline_completion,
    ):
        of_request(context)


def _wanted(context: Context, uri: str, switch: str = "") -> Snapshot | None:
    """Returns the open document with this URI. Returns None if it is not open, if the user does not trust the
    workspace, or if the feature `switch` is switched off."""
    snapshot = context.documents.opened(uri)
    if snapshot is None or not context.trusted or (switch and not context.configuration.is_on(snapshot.path, switch)):
        return None
    return snapshot


def _register_code_lens(context: Context) -> None:
    latest = _Latest()

    @context.server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions())
    async def code_lens(params: types.CodeLensParams) -> EncodedResult | list[types.CodeLens]:
        snapshot = _wanted(context, params.text_document.uri, "lens")
        if snapshot is None:
            return []
        known = await context.first_outline(snapshot)
        await context.first_history(snapshot)
        path = snapshot.path
        return latest.answer(snapshot, known, context.states(path), context.jobs.running(path))


class _Latest:
    """Keeps the last answer to a request for lenses, and returns it again if text, states and running jobs are the
    same."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._running: dict[str, EditorJob] = {}
        self._answer = EncodedResult("[]")

    def answer(
        self, snapshot: Snapshot, known: Outline, states: Mapping[str, ClassState], running: dict[str, EditorJob]
    ) -> EncodedResult:
        of = (snapshot, known, states)
        if not (self._of and all(map(operator.is_, of, self._of)) and running == self._running):
            self._of, self._running = of, running
            self._answer = EncodedResult(encoded(snapshot, known, states, running))
        return self._answer


def _register_code_action(context: Context) -> None:
    @context.server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[KIND, fixes.KIND], resolve_provider=True),
    )
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        snapshot, only = _wanted(context, params.text_document.uri), params.context.only
        if snapshot is None:
            return []
        offered = await _fixes(context, snapshot, params.context) if _wants(fixes.KIND, only) else []
        if not _wants(KIND, only):
            return offered
        return offered + actions(
            snapshot,
            params.range,
            context.outline(snapshot),
            context.states(snapshot.path),
            context.jobs.running(snapshot.path),
            context.abilities,
        )

    # Fills in the edit of a chosen action.
    @context.server.feature(types.CODE_ACTION_RESOLVE)
    def code_action_resolve(action: types.CodeAction) -> types.CodeAction:
        data = action.data if isinstance(action.data, Mapping) else {}
        snapshot = context.documents.opened(str(data.get("uri")))
        if snapshot is None:
            return action
        versioned = context.abilities.versioned_edits
        return resolved(action, snapshot, context.classes(snapshot), versioned=versioned)


async def _fixes(context: Context, snapshot: Snapshot, about: types.CodeActionContext) -> list[types.CodeAction]:
    versioned = context.abilities.versioned_edits
    offered = fixes.of_hints(snapshot, about.diagnostics, versioned=versioned)
    if ghost.LABEL in snapshot.text and ghost.in_workspace(snapshot.path):
        passed = await in_thread(lambda: _passed(context, snapshot.text))
        offered += fixes.of_labels(snapshot, passed=passed, versioned=versioned)
    return offered


def _passed(context: Context, text: str) -> bool:
    store = context.history.store
    return store.has_passed(text) or store.has_passed(ghost.without_labels(text))


def _wants(kind: types.CodeActionKind, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Return whether the client accepts actions of `kind`: `only` is None, or contains `kind` or a parent of it."""
    names = [str(getattr(one, "value", one)) for one in only or ()]
    return only is None or any(name in ("", kind.value) or kind.value.startswith(f"{name}.") for name in names)


def _register_hover(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        snapshot = _wanted(context, params.text_document.uri)
        if snapshot is None:
            return None
        here = types.Range(params.position, params.position)
        around = innermost(snapshot, here, context.classes(snapshot))
        if around is None:
            return None
        known = context.history.of(snapshot.path)
        profile = known.profiles.get(around.name)
        return feature.at(snapshot, params.position, profile, known.rows, known.states.get(around.name))


def _register_inlay_hint(context: Context) -> None:
    @context.server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        snapshot = _wanted(context, params.text_document.uri, "inlay")
        if snapshot is None:
            return []
        profiles = context.history.of(snapshot.path).profiles
        return [hint for profile in profiles.values() for hint in inlay.hints(snapshot, profile, params.range)]


def _register_inline_completion(context: Context) -> None:
    """Registers completions: verified kernels above their class, and a model's suggestions in CUDA files."""

    def passed(text: str) -> bool:
        # Runs in the thread that asks the model: the first access opens the store.
        return context.history.store.has_passed(text)

    @context.server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        snapshot = _wanted(context, params.text_document.uri, "ghostText")
        if snapshot is None:
            return []
        if snapshot.path.suffix == ".py":
            if not context.abilities.applies_edits or is_installed(snapshot.path):
                return []  # accepting it could not insert the import
            rows = context.history.of(snapshot.path).rows
            return await in_thread(lambda: _bodies(snapshot, params.position, rows))
        try:
            if not ghost.is_cuda(snapshot.path):
                return []
            settings = context.settings(snapshot.path)
            if not ghost.in_workspace(snapshot.path):
                raise no_plan()
            if not (settings.endpoint or settings.model):
                raise tasks_alone()
            return await ghost.continue_cuda(snapshot, params.position, lambda: context.model.client(settings), passed)
        except KernelAssistantError as error:
            _log.warning("no suggestion: %s", error.cause)
            say_why(context, error)
            return []


def _bodies(snapshot: Snapshot, position: types.Position, rows: Iterable[JobRow]) -> list[types.InlineCompletionItem]:
    """Return the completion for the first job in `rows` whose kernels can be suggested at `position`, [] if there is
    none."""
    return next((items for row in rows if (items := ghost.body(snapshot, position, row))), [])
