"""Exchanges messages about one candidate (the source of a proposed task) between the filter and the probe, the
sandboxed process that runs it. All that can be checked without running the candidate is checked here, on the filter's
side.

The probe's process runs the candidate, which could write messages itself. So each message must contain the secret word
of the request and come at the right time, and the filter computes everything else from the graph that the process
sends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import from_builtins
from kernel_assistant_training.synth.digests import computing
from kernel_assistant_training.synth.split import split_of
from kernel_assistant_training.tasks.candidates.writing import batch_of, with_batch
from kernel_assistant_training.tasks.records import Reason, Rules, TaskText

#: The stages of judging a candidate; `tidy` is the cleaning up after the candidate before.
STAGES = ("tidy", "build", "values", "turn", "fit", "graph", "compile")
#: The probe reports the median time of several calls, so at least this many calls took that long.
_SLOW_CALLS = 2


class Pipe(Protocol):
    """The interface of a connection to a probe (the process that runs candidates); each message is a line of JSON."""

    def say(self, message: dict[str, Any]) -> None: ...

    def hear(self, until: float) -> dict[str, Any]:
        """Returns the next message. Raises TimeoutError if none arrives before `until` (of `time.monotonic`), EOFError
        if the probe has ended, and ValueError for a line that is not JSON."""


class Exchange:
    """The messages about one candidate between the filter and its probe process. `timing` is a lock that is held while
    the probe measures times; `taken` returns whether a task with the given key was kept already."""

    def __init__(
        self,
        task: TaskText,
        rules: Rules,
        pipe: Pipe,
        timing: AbstractContextManager[object],
        taken: Callable[[str], bool],
    ) -> None:
        self._task, self._rules, self._pipe, self._timing, self._taken = task, rules, pipe, timing, taken
        self._word = secrets.token_hex(16)
        self._until = time.monotonic() + rules.seconds

    def run(self) -> dict[str, Any]:
        """Exchanges the messages; returns the fields of the FilterResult. Raises the errors of the pipe, and
        ValueError, KeyError or TypeError for a message that the probe would not send.
        """
        self._ask()
        message = self._heard("times", "reason")
        if "reason" in message:
            return self._refused(message)
        asked = time.monotonic()
        with self._timing:
            self._until += (began := time.monotonic()) - asked
            self._go()
            message = self._heard("timed", "reason")
        if "reason" in message:
            return self._refused(message)
        fields = self._timed(message, time.monotonic() - began)
        self._go()
        message = self._heard("graph", "reason")
        if "reason" in message:
            return fields | self._refused(message)
        fields |= self._of_graph(message)
        self._go(fields["reason"] is Reason.passed)
        if fields["reason"] is Reason.passed:
            fields |= _ended(self._heard("reason"))
        return fields

    def _ask(self) -> None:
        task, rules = self._task, self._rules
        low, high = rules.window
        about = {"text": task.text, "operators": task.operators, "number": task.number, "word": self._word}
        limits = {"low": low, "high": high, "most_bytes": rules.most_bytes, "compile": rules.compile}
        self._pipe.say({**about, **limits})

    def _go(self, go: bool = True) -> None:
        self._pipe.say({"go": go})

    def _heard(self, *kinds: str) -> dict[str, Any]:
        message = self._pipe.hear(self._until)
        if message["word"] != self._word or sum(kind in message for kind in kinds) != 1:
            raise ValueError("not the probe's turn")
        return message

    def _refused(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields for a candidate that was rejected before its graph was sent. Raises ValueError if the
        message says `passed`."""
        reason = Reason(message["reason"])
        if reason is Reason.passed:
            raise ValueError("passed without a graph")
        return _ended(message)

    def _timed(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the fields after timing: the requested source with the new batch size, and the time. Raises
        ValueError unless the time lies in the window and the elapsed `seconds` are long enough for it."""
        low, high = self._rules.window
        milliseconds, batch, text = float(message["timed"]), message["batch"], self._task.text
        if not (low <= milliseconds <= high and _SLOW_CALLS * milliseconds <= 1e3 * seconds):
            raise ValueError(f"{milliseconds} ms cannot be")
        if batch is not None and batch_of(text) is not None:
            text = with_batch(text, int(batch))
        return {"text": text, "eager_ms": milliseconds}

    def _of_graph(self, message: dict[str, Any]) -> dict[str, Any]:
        graph = from_builtins(message["graph"], OpGraph)
        if not any(computing(graph)):
            return {"reason": Reason.copy, "message": "values are moved only"}
        if message["unused"]:
            return {"reason": Reason.unused_operator, "message": ", ".join(map(str, message["unused"]))}
        try:
            key = canonical(graph).key()
            fields = {"graph": graph, "key": key, "split": split_of(graph, key), "reason": Reason.passed}
        except Exception as error:
            raise ValueError("a graph that nothing was traced to") from error
        if fields["split"] == "excluded":
            return fields | {"reason": Reason.kernelbench}
        return fields | ({"reason": Reason.duplicate} if self._taken(key) else {})


def _ended(message: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the probe's last message. Its seconds by stage are stored but not trusted."""
    spent = message.get("spent", {})
    return {
        "reason": Reason(message["reason"]),
        "message": str(message.get("message", "")),
        "spent": {name: float(spent[name]) for name in STAGES if name in spent},
    }
