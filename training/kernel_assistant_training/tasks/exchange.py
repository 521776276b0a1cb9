"""What filter and probe say to each other about one candidate. What can be told without running it is told here.

The probe's process runs the candidate, so a line of it is believed only as far as it must be: it has the word that came
with the request, its turn is kept, and of a graph nothing counts but the graph itself.
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
from kernel_assistant_training.tasks.records import Reason, Rules, TaskText
from kernel_assistant_training.tasks.writing import batch_of, with_batch

#: Of a candidate, and `tidy` behind the one before.
STAGES = ("tidy", "build", "values", "turn", "fit", "graph", "compile")
#: A probe takes the median of a few calls: so many of them at least took the time that it says.
_SLOW_CALLS = 2


class Pipe(Protocol):
    """Lines to a probe and from it."""

    def say(self, message: dict[str, Any]) -> None: ...

    def hear(self, until: float) -> dict[str, Any]:
        """Raises TimeoutError, EOFError, and ValueError for what is no line of JSON."""


class Exchange:
    """About one candidate. `timing` is held while the probe times; `taken` says whether a key was kept before."""

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
        """Fields of the verdict. Raises what the pipe raises, and ValueError, KeyError or TypeError for what the
        probe would not say."""
        self._ask()
        said = self._heard("times", "reason")
        if "reason" in said:
            return self._refused(said)
        asked = time.monotonic()
        with self._timing:
            self._until += (began := time.monotonic()) - asked
            self._go()
            said = self._heard("timed", "reason")
        if "reason" in said:
            return self._refused(said)
        found = self._timed(said, time.monotonic() - began)
        self._go()
        said = self._heard("graph", "reason")
        if "reason" in said:
            return found | self._refused(said)
        found |= self._of_graph(said)
        self._go(found["reason"] is Reason.passed)
        if found["reason"] is Reason.passed:
            found |= _ended(self._heard("reason"))
        return found

    def _ask(self) -> None:
        task, rules = self._task, self._rules
        low, high = rules.window
        about = {"text": task.text, "operators": task.operators, "number": task.number, "word": self._word}
        limits = {"low": low, "high": high, "most_bytes": rules.most_bytes, "compile": rules.compile}
        self._pipe.say({**about, **limits})

    def _go(self, go: bool = True) -> None:
        self._pipe.say({"go": go})

    def _heard(self, *kinds: str) -> dict[str, Any]:
        said = self._pipe.hear(self._until)
        if said["word"] != self._word or sum(kind in said for kind in kinds) != 1:
            raise ValueError("not the probe's turn")
        return said

    def _refused(self, said: dict[str, Any]) -> dict[str, Any]:
        """Before there is a graph nothing passes."""
        reason = Reason(said["reason"])
        if reason is Reason.passed:
            raise ValueError("passed without a graph")
        return _ended(said)

    def _timed(self, said: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The time is in the window and was there; the text is the one that was asked, with another batch size."""
        low, high = self._rules.window
        found, batch, text = float(said["timed"]), said["batch"], self._task.text
        if not (low <= found <= high and _SLOW_CALLS * found <= 1e3 * seconds):
            raise ValueError(f"{found} ms cannot be")
        if batch is not None and batch_of(text) is not None:
            text = with_batch(text, int(batch))
        return {"text": text, "eager_ms": found}

    def _of_graph(self, said: dict[str, Any]) -> dict[str, Any]:
        graph = from_builtins(said["graph"], OpGraph)
        if not any(computing(graph)):
            return {"reason": Reason.copy, "message": "values are moved only"}
        if said["unused"]:
            return {"reason": Reason.unused_operator, "message": ", ".join(map(str, said["unused"]))}
        try:
            key = canonical(graph).key()
            found = {"graph": graph, "key": key, "split": split_of(graph, key), "reason": Reason.passed}
        except Exception as error:
            raise ValueError("a graph that nothing was traced to") from error
        if found["split"] == "excluded":
            return found | {"reason": Reason.kernelbench}
        return found | ({"reason": Reason.duplicate} if self._taken(key) else {})


def _ended(said: dict[str, Any]) -> dict[str, Any]:
    """The probe's last line. Its seconds decide nothing."""
    spent = said.get("spent", {})
    return {
        "reason": Reason(said["reason"]),
        "message": str(said.get("message", "")),
        "spent": {name: float(spent[name]) for name in STAGES if name in spent},
    }
