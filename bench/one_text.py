"""The generator's text with names for sizes and numbers: for how many tasks there is one, whether it is read back, and
whether it compiles to the machine code of the text with numbers.

`python -m bench.one_text cuda --tasks 400 --compiled 60` prints a line of JSON. Tasks are sampled as for training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import msgspec

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.generator.emit import SOURCE, canonical_text, emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.targets import cpu, cuda
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.synth.memory import fitted
from kernel_assistant_training.synth.sampler import sample

#: Devices of this kind are what schedules are chosen for; none is used.
DEVICES = {
    "cpu": DeviceFacts(target="cpu", name="CPU", arch="x86-64-avx2", cores=4, threads=4, cache_bytes=32 << 20),
    "cuda": DeviceFacts(
        target="cuda", name="H200", arch="sm_90", cores=132, cache_bytes=50 << 20, shared_bytes_per_block=227 << 10
    ),
}
MOST_LEVEL = 5
#: Schedules of a task whose texts are written, as training takes them.
SCHEDULES = 4


@dataclass
class Texts:
    """`written` and `read` of `tasks`; the others fail as `why` says. `same` of `compiled` texts have the machine code
    of the text with numbers, `different` are schedules of those that have not. `per_second` are texts a second of one
    core, once a task's schedules are known; `characters` is their median length."""

    target: str
    tasks: int = 0
    written: int = 0
    read: int = 0
    per_second: float = 0.0
    characters: int = 0
    compiled: int = 0
    same: int = 0
    different: list[str] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)


def measured(target: str, tasks: int, compiled: int, seed: int) -> Texts:
    found, random, lengths, pairs = Texts(target), Random(seed), list[int](), list[tuple[Candidate, Candidate]]()
    seconds, texts = 0.0, 0
    while found.tasks < tasks:
        graph = fitted(sample(random, random.randint(1, MOST_LEVEL)), target, random)
        if graph is None:
            continue
        found.tasks += 1
        task = canonical(graph)
        try:
            schedules = initial(graph, target, DEVICES[target])[:SCHEDULES]
            began = time.process_time()
            written = [canonical_text(task, schedule) for schedule in schedules]
            seconds, texts = seconds + time.process_time() - began, texts + len(written)
            found.written += 1
            lengths += map(len, written)
            pairs.append((emit(graph, schedules[0]), _read(graph, task, schedules[0], written[0])))
            found.read += 1
        except (Unsupported, DirectiveError) as error:
            found.why[f"{type(error).__name__}: {error}"] += 1
    found.per_second = round(texts / seconds, 1)
    found.characters = sorted(lengths)[len(lengths) // 2]
    with ThreadPoolExecutor() as pool:
        for (plain, _), same in zip(pairs, pool.map(_same_code, pairs[:compiled]), strict=False):
            found.compiled, found.same = found.compiled + 1, found.same + same
            found.different += [] if same else [plain.plan.schedule]
    return found


def _read(graph: OpGraph, task: Canonical, schedule: Schedule, text: str) -> Candidate:
    return candidate_from({SOURCE[schedule.target]: text}, graph, schedule.target, task)


def _same_code(pair: tuple[Candidate, Candidate]) -> bool:
    """Whether a candidate with numbers and one with names, without headers, compile to the same bytes."""
    plain, named = pair
    codes = []
    for candidate in (plain, msgspec.structs.replace(named, sources={**plain.sources, **named.sources})):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**candidate.sources, "plan.h": plan_header(candidate.plan)}.items():
                Path(folder, name).write_text(text, encoding="utf-8")
            source, target = SOURCE[candidate.plan.target], candidate.plan.target
            words = [cpu.compiler(), *cpu.FLAGS, *cpu.LINK_FLAGS] if target == "cpu" else [cuda.compiler(), *cuda.FLAGS]
            words += ["-arch=sm_90"] if target == "cuda" else []
            subprocess.run([*words, source, "-I.", "-o", "code"], cwd=folder, check=True, capture_output=True)
            codes.append(Path(folder, "code").read_bytes())
    return codes[0] == codes[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="The generator's text with names for sizes and numbers.")
    parser.add_argument("target", choices=list(DEVICES))
    parser.add_argument("--tasks", type=int, default=400, help="tasks that are sampled")
    parser.add_argument("--compiled", type=int, default=60, help="tasks of which two texts are compiled")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(json.dumps(asdict(measured(given.target, given.tasks, given.compiled, given.seed)), indent=1))


if __name__ == "__main__":
    main()
