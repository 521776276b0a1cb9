"""`optimize` by the command line, as a user runs it, for many modules; rows of jobs and their table.

`python -m bench.jobs ROWS` prints the table of a file of rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cli_cost import own_home
from bench.harness import Row, RowFile, markdown, shown
from kernel_assistant.config import resolve
from kernel_assistant.records import OptimizeResult
from kernel_assistant.records.codec import from_builtins
from kernel_assistant.records.evaluation import measurably_faster
from kernel_assistant.records.free_win import over_change

#: Seconds behind the budget after which a job counts as hanging.
HANGING = 180.0
#: The module of the first job of each session host, and its budget.
FIRST, FIRST_SECONDS = Path(__file__).resolve().parent.parent / "examples" / "gated_rms_norm.py", 3.0
COLUMNS = ("module", "outcome", "× compile", "× eager", "over the better", "seconds", "what stood in the way")
FIGURES = (
    *("candidate_ms", "eager_ms", "compile_ms", "speedup_vs_compile", "speedup_vs_compile_ci", "speedup_vs_eager"),
    *("speedup_vs_eager_ci", "error_ratio", "share_in_our_kernels", "residual"),
)


@dataclass(frozen=True)
class SessionHost:
    """A session host of its own, below `home`, with a warm worker as a user's behind the first job. With `modes`, jobs
    also measure the modes of torch.compile and the other changes of docs/free_wins.md."""

    home: Path
    environment: dict[str, str]
    target: str
    budget: float
    modes: bool = False

    def command(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `kernel-assistant`. Raises TimeoutExpired behind the budget and `HANGING`."""
        return subprocess.run(
            (sys.executable, "-m", "kernel_assistant", *words),
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=self.budget + HANGING,
            check=False,
        )

    def output(self, *words: str) -> str:
        """Standard output of a command. Raises RuntimeError if it fails."""
        done = self.command(*words)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def optimize(self, *words: str, budget: float | None = None, cwd: Path | None = None) -> dict[str, Any]:
        """The document of a job of the generator. Raises RuntimeError if there is none, and as `command` does."""
        how = ("--policy", "generator", "--budget", f"{budget or self.budget:g}s", "--target", self.target)
        changes = () if self.modes else ("--no-free-wins",)
        done = self.command("optimize", *words, *how, *changes, "--json", cwd=cwd)
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            raise RuntimeError(f"exit {done.returncode}: {' '.join(done.stderr.split())[-300:]}") from None

    def job(self, *words: str, cwd: Path | None = None) -> Row:
        """The row of a job: outcome, gains with 99.9% intervals, seconds, progress, and what stood in the way."""
        began = time.monotonic()
        try:
            document = self.optimize(*words, cwd=cwd)
        except subprocess.TimeoutExpired:
            return {"outcome": "hangs"}
        best, seconds = document.get("best") or {}, round(time.monotonic() - began, 1)
        kept = {name: best.get(name) for name in FIGURES}
        told = {name: document.get(name) for name in ("outcome", "offer", "why", "evaluations", "obstacles")}
        job = (document.get("artifacts") or {}).get("job")
        return {"seconds": seconds, "job": job, **kept, **told, **_changes(document), "steps": self._steps()}

    def _steps(self) -> list[tuple[float, str]]:
        """What the last job told of its progress, each with the seconds since it started."""
        last = max(self.home.rglob("jobs/*/events.jsonl"), key=lambda path: int(path.parent.name))
        events = [json.loads(line) for line in last.read_text().splitlines()]
        told = [(event["time"] - events[0]["time"], event.get("message", "")) for event in events]
        return [(round(seconds, 2), message) for seconds, message in told if message]


def _changes(document: dict[str, Any]) -> Row:
    """The speed-up over torch.compile of each change that was measured, with its interval and whether it is right, and
    the kernel's over the fastest mode."""
    measured = [one for one in document.get("free_wins") or () if one.get("speedup_vs_compile")]
    if not measured:
        return {}
    gains = {one["name"]: [one["speedup_vs_compile"], one["speedup_vs_compile_ci"], one["passes"]] for one in measured}
    return {"changes": gains, "over_best_mode": over_the_best_mode(document)}


def over_the_best_mode(document: dict[str, Any]) -> Row | None:
    """Speed-up over the fastest of eager and the modes of torch.compile that were measured, by point estimates, and
    whether it is measurable: whether the intervals over each of them exclude 1 (those over a mode have the quotients
    of opposite ends). None without a candidate or a mode."""
    result = from_builtins(document, OptimizeResult)
    best, wins = result.best, [win for win in result.free_wins if win.mode and win.passes and win.measured]
    if best is None or best.speedup_vs_compile is None or not wins:
        return None
    gains = [over_change(best.speedup_vs_compile, best.speedup_vs_compile_ci, win) for win in wins]
    gains += [
        (best.speedup_vs_compile, best.speedup_vs_compile_ci),
        (best.speedup_vs_eager, best.speedup_vs_eager_ci),
    ]
    known = [(speedup, interval) for speedup, interval in gains if speedup is not None and interval is not None]
    return {
        "speedup": min(speedup for speedup, _ in known),
        "measurable": all(measurably_faster(*one) for one in known),
        "modes": [win.mode for win in wins],
    }


def host_environment(home: Path) -> dict[str, str]:
    """Environment variables of a session host below `home`, with the user's cache of builds."""
    return {**own_home(home), "KERNEL_ASSISTANT_CACHE_DIR": str(resolve()[0].cache_dir)}


@contextmanager
def session_host(target: str, budget: float, home: Path | None = None, *, modes: bool = False) -> Iterator[SessionHost]:
    """A session host below `home`, else below a temporary folder; builds are kept in the user's cache."""
    with tempfile.TemporaryDirectory(prefix="ka-") as folder:
        home = home or Path(folder)
        host = SessionHost(home, host_environment(home), target, budget, modes)
        try:
            host.optimize(f"{FIRST}:GatedRMSNorm", budget=FIRST_SECONDS)
            yield host
        finally:
            host.command("host", "stop")


def over_the_better(row: Row) -> float | None:
    """Speed-up over the faster of eager and torch.compile."""
    return min((row[name] for name in ("speedup_vs_compile", "speedup_vs_eager") if row.get(name)), default=None)


def page(rows: Iterable[Row]) -> str:
    """The table as Markdown, modules in order."""
    return "\n".join(markdown(COLUMNS, map(_cells, sorted(rows, key=lambda row: str(row["module"])))))


def _cells(row: Row) -> list[str]:
    reason = row.get("why") or row.get("reason") or "; ".join(map(_obstacle, row.get("obstacles") or ()))
    gains = [_gain(row, "compile"), _gain(row, "eager"), shown(over_the_better(row))]
    return [row["module"], row["outcome"], *gains, shown(row["seconds"], ".0f"), reason[:160]]


def _gain(row: Row, over: str) -> str:
    speedup, ends = row.get(f"speedup_vs_{over}"), row.get(f"speedup_vs_{over}_ci")
    return shown(speedup) + (f" ({ends[0]:.2f}–{ends[1]:.2f})" if speedup and ends else "")


def _obstacle(obstacle: dict[str, Any]) -> str:
    return " ".join(str(obstacle[name]) for name in ("outcome", "message") if obstacle.get(name))


if __name__ == "__main__":
    print(page(RowFile(Path(sys.argv[1])).read()))
