"""The candidates of the product's loop in KernelBench's form: a folder for each problem, and its row of the loop."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Row
from bench.kernelbench.judges import Judging, is_of_memory, lacked_memory
from bench.kernelbench.loop import Best, search
from bench.kernelbench.problems import Problem
from kernel_assistant.apply import export
from kernel_assistant.environment.session import Environment
from kernel_assistant.environment.worker_client import DeviceOutOfMemory, WorkerClient
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.session.artifacts import write_result

#: Columns of the loop's row that the rows of an evaluation repeat.
KEPT = ("outcome", "schedule", "speedup_vs_eager", "speedup_vs_compile", "speedup_vs_compile_ci", "reason")


@dataclass(frozen=True)
class Exported:
    """`text` is the file with `ModelNew`, None if there is no candidate. `loop` is the loop's row."""

    text: Path | None
    loop: Row

    @property
    def inline(self) -> bool:
        """Whether the file has its kernels inline."""
        return self.text is not None and not self.text.with_name("model_new_kernels").is_dir()


@dataclass(frozen=True)
class Exports:
    """The folder `root`. A problem that is not there yet is searched for `seconds`; a file has its kernels inline only
    if `inline`."""

    root: Path
    how: Judging
    seconds: float
    inline: bool

    def of(self, problem: Problem, worker: WorkerClient) -> Exported:
        """The problem's candidate, from an earlier run or by a search. A search that fails is kept too."""
        folder = self.root.absolute() / f"level{problem.level}" / problem.name
        known = folder.with_name(f"{folder.name}.json")
        if not known.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            row = self._found(problem, worker, folder)
            known.write_text(json.dumps(row), encoding="utf-8")
        text = folder / "model_new.py"
        return Exported(text if text.exists() else None, json.loads(known.read_text(encoding="utf-8")))

    def _found(self, problem: Problem, worker: WorkerClient, folder: Path) -> Row:
        try:
            with self.how.opened(problem.source(self.how.precision, self.how.cache), worker) as environment:
                row, best = search(environment, self.seconds)
                if best is not None:
                    self._write(environment, best, folder)
                elif lacked_memory(row):
                    raise DeviceOutOfMemory("all candidates ran out of memory", "fewer --judges")
                return row
        except KernelAssistantError as error:
            if is_of_memory(error):
                raise  # it is searched again without others
            return {"outcome": "failed", "reason": error.cause}

    def _write(self, environment: Environment, best: Best, folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="ka-result-") as made:
            result = Path(made) / "result"
            write_result(
                result,
                task=environment.task,
                graph=environment.graph,
                device=environment.device,
                facts=environment.facts,
                candidate=best.candidate,
                evaluation=best.evaluation,
                binaries=environment.binaries(best.candidate, others=False),
            )
            export(result, "kernelbench", folder, inline=self.inline)
