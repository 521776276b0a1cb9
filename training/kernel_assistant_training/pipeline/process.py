"""One stage's process: started so that it ends with the pipeline, asked to stop, and made to."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.session.training_run import RunState, Wish, ask, read_status

#: Seconds from the limit to SIGTERM, and from SIGTERM to SIGKILL at the limit and on Ctrl-C.
GRACE_S, TERM_S, INTERRUPT_S = 30.0, 15.0, 30.0
#: Between two looks, and between two times that a wish is written: a stage forgets what was wanted before it began.
TICK_S, REPEAT_S = 0.25, 1.0
_PR_SET_PDEATHSIG = 1


class Ending(str, Enum):
    """Why a stage was made to end."""

    itself = "ended"
    limit = "limit"
    asked = "stopped"
    interrupted = "interrupted"


@dataclass(frozen=True)
class Ended:
    """`code` as the shell has it: 128 + n for signal n."""

    code: int
    ending: Ending


class StageProcess:
    """A command in a session of its own, its output appended to `log`, `lock` held by it as well. `folder` is where it
    is watched and told what is wanted."""

    def __init__(
        self, command: Sequence[str], folder: Path, log: Path, lock: int, environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        parent = os.getpid()
        with boundary(StoreError, f"cannot start {command[0]} with its output in {log}"), log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
                pass_fds=(lock,),
                preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509 - the pipeline has no other thread
            )
        self._ending = Ending.itself
        self._since = self._repeated = 0.0
        self._handed = Wish.go_on
        self._sent: set[int] = set()

    def wait(self, look: Callable[[float, bool], bool], wish: Callable[[], Wish], signals: Callable[[], int]) -> Ended:
        """Until it has ended. `look` is told the seconds since the last look and whether the stage is paused, and says
        whether it has had its time; `wish` is what is wanted of the pipeline, `signals` how many came."""
        looked, heard = time.monotonic(), 0
        try:
            while (code := self._ended()) is None:
                now = time.monotonic()
                status = read_status(self._folder)
                over = look(now - looked, status is not None and status.state is RunState.paused)
                looked = now
                if signals() > heard:
                    heard = signals()
                    self._interrupt(again=heard > 1)
                elif wish() is Wish.stop:
                    self._begin(Ending.asked)
                elif over:
                    self._begin(Ending.limit)
                self._hand_on(wish(), now)
                self._press(now)
        finally:
            self._clean()
        look(time.monotonic() - looked, False)
        status = read_status(self._folder)
        if code == 0 and self._ending is Ending.itself and status is not None and status.state is RunState.stopped:
            # Somebody stopped this stage, not the pipeline: the next is not to begin.
            return Ended(code, Ending.asked)
        return Ended(code, self._ending)

    def _interrupt(self, *, again: bool) -> None:
        """It is to leave a checkpoint and end; asked again, to end at once."""
        self._begin(Ending.interrupted)
        self._signal(signal.SIGKILL if again else signal.SIGTERM)

    def _begin(self, ending: Ending) -> None:
        # An interrupt is not taken back by a limit that comes after it; at the limit nobody needs to ask any more.
        order = (Ending.itself, Ending.asked, Ending.limit, Ending.interrupted)
        if order.index(ending) > order.index(self._ending):
            self._ending, self._since = ending, time.monotonic()

    def _hand_on(self, wanted: Wish, now: float) -> None:
        if self._ending in (Ending.asked, Ending.limit):
            wanted = Wish.stop
        if not self._folder.is_dir():
            return  # nobody looks there yet; it is written again
        if wanted is not self._handed or (wanted is not Wish.go_on and now - self._repeated >= REPEAT_S):
            ask(self._folder, wanted)
            self._handed, self._repeated = wanted, now

    def _press(self, now: float) -> None:
        """More and more, the longer it takes. Who was asked by a person may take its time: its step is to end."""
        since = now - self._since
        if self._ending is Ending.limit and since > GRACE_S:
            self._signal(signal.SIGTERM)
        if since > {Ending.limit: GRACE_S + TERM_S, Ending.interrupted: INTERRUPT_S}.get(self._ending, float("inf")):
            self._signal(signal.SIGKILL)

    def _ended(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(TICK_S)
            return code if code >= 0 else 128 - code
        return None

    def _signal(self, number: int) -> None:
        """Once each. SIGKILL is for all of its session's first group, others are for the stage to hand on."""
        if number in self._sent:
            return
        self._sent.add(number)
        with suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    def _clean(self) -> None:
        """Nothing of it is left behind, also not where looking at it failed."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        ask(self._folder, Wish.go_on)


def _end_with(parent: int) -> None:
    """In the child: Linux sends SIGTERM when the pipeline is gone, however it went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
