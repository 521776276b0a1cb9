"""Exported candidates in the hands of KernelBench's own code: searched and built side by side, timed one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.harness import IsolatedProcess, Row
from bench.kernelbench.checkout import Asked, build, prepare
from bench.kernelbench.exports import KEPT, Exported, Exports
from bench.kernelbench.judges import OUT_OF_MEMORY
from bench.kernelbench.problems import Problem
from kernel_assistant.environment.device_locks import alone
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.worker.measuring.compiled import SUFFIX
from kernel_assistant_training.evaluation.options import share_of_cores

#: Seconds for the build of an extension or for one evaluation.
MOST_SECONDS = 300.0


@dataclass(frozen=True)
class Evaluation:
    """How candidates are evaluated: `evaluate` is `checkout.official` or `hidden_inputs.verified`."""

    exports: Exports
    root: Path
    evaluate: Callable[[Asked], Row]
    inputs: str
    judges: int

    def of(self, problem: Problem, worker: WorkerClient) -> Row:
        """The problem's row. Its evaluation has a process of its own, which imports while the search runs, and the
        device for itself."""
        how = self.exports.how
        with IsolatedProcess(MOST_SECONDS) as process:
            process.begin(prepare, self.root, self._environment())
            began = time.monotonic()
            exported = self.exports.of(problem, worker)
            searched = time.monotonic()
            asked = self._asked(problem, exported)
            if exported.inline:
                process.call(build, asked)
            process.call(time.sleep, 0)  # the imports are done
            built = time.monotonic()
            with alone(how.device, threading.Event()):
                entered = time.monotonic()
                row = self._evaluated(process, asked)
        if OUT_OF_MEMORY.search(row.get("message", "")):
            raise DeviceOutOfMemory(row["message"], "fewer --judges")
        seconds = {"search": searched - began, "build": built - searched, "evaluate": time.monotonic() - entered}
        return _named(row, exported) | {"spent": {name: round(one, 1) for name, one in seconds.items()}}

    def _evaluated(self, process: IsolatedProcess, asked: Asked) -> Row:
        """The row; if the candidate ends the process, that of the reference alone, with the reason."""
        try:
            return process.call(self.evaluate, asked)
        except RuntimeError as error:
            if not asked.candidate:
                raise
            process.call(prepare, self.root, self._environment())
            reference = process.call(self.evaluate, replace(asked, candidate=""))
            return reference | {"correct": False, "message": str(error)}

    def _asked(self, problem: Problem, exported: Exported) -> Asked:
        how = self.exports.how
        builds = how.cache / "extensions" / f"level{problem.level}" / problem.name
        builds.mkdir(parents=True, exist_ok=True)
        text = exported.text.read_text(encoding="utf-8") if exported.text else ""
        return Asked(self.root, problem.path, text, builds, how.device.target, self.inputs)

    def _environment(self) -> dict[str, str]:
        """As the search's workers have it, so that torch.compile finds what it compiled there."""
        cache = self.exports.how.cache
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor") + SUFFIX,
            **share_of_cores(self.judges),
        }


def _named(row: Row, exported: Exported) -> Row:
    outcome = "no_candidate" if exported.text is None else "correct" if row["correct"] else "incorrect"
    return row | {
        "outcome": outcome,
        "reason": row.get("message") or exported.loop.get("reason", ""),
        "form": None if exported.text is None else "inline" if exported.inline else "package",
        "loop": {name: exported.loop[name] for name in KEPT if name in exported.loop},
    }
