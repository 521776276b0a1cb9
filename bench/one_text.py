"""The generator's text with names for sizes and numbers: for how many tasks there is one, whether it is read back, and
whether it compiles to the machine code of the text with numbers.

`python -m bench.one_text cuda --tasks 400 --compiled 60` prints JSON. Tasks are sampled as for training, and four
schedules of each drawn at random; tokens are those of the committed vocabulary.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import msgspec

from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.environment.builds.header import plan_header
from kernel_assistant.generator.emit import SOURCE, emit, text_of
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.ir.named_graph import named_graph
from kernel_assistant.generator.ir.schedule import Schedule
from kernel_assistant.generator.search.drawn import drawn
from kernel_assistant.records import Candidate, OpGraph
from kernel_assistant.records.canonical import Canonical, canonical
from kernel_assistant.targets import cpu, cuda
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.synth.answers import DEVICES
from kernel_assistant_training.synth.memory import fitted
from kernel_assistant_training.synth.sampler import sample
from kernel_assistant_training.tokenizer import load

MOST_LEVEL = 5
#: Schedules of a task whose texts are written, as training takes them.
SCHEDULES = 4


@dataclass
class Texts:
    """`written` and `read` of `tasks`; the others fail as `why` says. `same` of `compiled` texts have the machine code
    of the text with numbers, `different` are schedules of those that have not. `per_second` are texts a second of one
    core, with sampling and drawing; `characters` is their median length, `tokens` their median and 99th percentile."""

    target: str
    tasks: int = 0
    written: int = 0
    read: int = 0
    per_second: float = 0.0
    characters: int = 0
    tokens: tuple[int, int] = (0, 0)
    compiled: int = 0
    same: int = 0
    different: list[str] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)


def measured(target: str, tasks: int, compiled: int, seed: int) -> Texts:
    found, pairs, texts = Texts(target, tasks), list[tuple[Candidate, Candidate]](), list[str]()
    began, spent = time.process_time(), 0.0
    for task, some in _written(target, tasks, seed, found.why):
        texts += [text for _, text in some]
        found.written += 1
        pausing = time.process_time()
        try:
            graph, (schedule, text) = task.concrete(), some[0]
            pairs.append((emit(graph, schedule), _read(graph, task, schedule, text)))
            found.read += 1
        except DirectiveError as error:
            found.why[str(error)] += 1
        spent += time.process_time() - pausing
    found.per_second = round(len(texts) / (time.process_time() - began - spent), 1)
    found.characters = sorted(map(len, texts))[len(texts) // 2]
    encoder = Encoder(load())
    lengths = sorted(len(encoder.reply(text)) for text in texts)
    found.tokens = lengths[len(lengths) // 2], lengths[len(lengths) * 99 // 100]
    with ThreadPoolExecutor() as pool:
        for (plain, _), same in zip(pairs, pool.map(_same_code, pairs[:compiled]), strict=False):
            found.compiled, found.same = found.compiled + 1, found.same + same
            found.different += [] if same else [plain.plan.schedule]
    return found


def _written(
    target: str, tasks: int, seed: int, why: Counter[str]
) -> Iterator[tuple[Canonical, list[tuple[Schedule, str]]]]:
    """Sampled tasks with the texts of schedules that are drawn at random."""
    random = Random(seed)
    for _ in range(tasks):
        graph = None
        while graph is None:
            graph = fitted(sample(random, random.randint(1, MOST_LEVEL)), target, random)
        task = canonical(graph)
        try:
            some = drawn(named_graph(task), target, DEVICES[target], random, SCHEDULES)
            yield task, [(schedule, text_of(candidate)) for schedule, candidate in some]
        except Unsupported as error:
            why[str(error)] += 1


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
