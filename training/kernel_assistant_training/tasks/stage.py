"""The stage `synth`: sends candidates (sources of proposed tasks) through the filter until there are enough tasks, then
writes shards and data card."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from kernel_assistant.sandbox.choose import choose
from kernel_assistant.session.training_run import replace_file
from kernel_assistant_training.episodes.lines import EpisodeFile, read_lines
from kernel_assistant_training.evaluation.options import share_of_gpu
from kernel_assistant_training.run_control import RunControl
from kernel_assistant_training.run_settings import claim_run
from kernel_assistant_training.tasks.candidates.composer import Composer, asked
from kernel_assistant_training.tasks.candidates.operators import Operator
from kernel_assistant_training.tasks.candidates.writers import Writers
from kernel_assistant_training.tasks.filter import Filter, window
from kernel_assistant_training.tasks.records import FilterResult, Reason, Rules, TaskText
from kernel_assistant_training.tasks.shards import CARD, arrow, card, write_tasks
from kernel_assistant_training.tasks.stream import ASKED, StreamSource, Texts

VERDICTS, ANSWERS = "verdicts.jsonl", "answers.jsonl"
REPORT_EVERY = 10
#: Probes for which one writing process suffices.
SERVED = 8


@dataclass(frozen=True)
class SynthesisSettings:
    """The settings that may not change within a folder. `recipe` chooses the range of accepted times. `blocks` is the
    number of modules of transformers (-1: all), `variants` the number of sources for each operator of a package,
    `answers` the number of answers of a language model, `compile` a backend of torch.compile."""

    target: str
    recipe: str
    seed: int = 0
    blocks: int = 60
    variants: int = 2
    compile: str = "inductor"
    answers: int = 0


@dataclass(frozen=True)
class SynthesisOptions:
    """Options of one run. It ends after `count` tasks, `most` candidates, or at the time `until` of `time.monotonic`.
    `devices` has one entry (cpu, cuda:0, …) for each worker."""

    out: Path
    asked: SynthesisSettings
    count: int
    devices: tuple[str, ...]
    sandbox: str = "auto"
    most: int = 1 << 62
    until: float = float("inf")


class SynthesisRun:
    """One run of the stage. `composer`, which asks a language model for tasks, is required if `asked.answers` is not 0.
    `unbuilt`, `unfit` and `unreadable` count, by reason, operators, compositions and answers that became no
    candidate."""

    def __init__(self, options: SynthesisOptions, control: RunControl, composer: Composer | None) -> None:
        self._options, self._control, self._composer = options, control, composer
        path = options.out / VERDICTS
        self._lines = EpisodeFile(path)
        self.verdicts = list(read_lines(path, FilterResult))
        self._keys = {one.key for one in self.verdicts if one.reason is Reason.passed}
        self._lock = threading.Lock()
        self._timing = {device: threading.Lock() for device in options.devices}
        self._failed = False
        self.unbuilt: Counter[str] = Counter()
        self.unfit: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        self._answers = EpisodeFile(options.out / ANSWERS)
        wanted = options.asked
        source = StreamSource(wanted.seed, wanted.target, wanted.blocks, wanted.variants)
        self._writers = Writers(source, len(options.devices) // SERVED)
        self._stream = self._candidates(Texts(source))
        self._began, self._before = time.monotonic(), len(self.verdicts)

    def run(self) -> None:
        """Runs until there are enough tasks, the time is over or a stop is requested. Raises DeviceError if no probe
        (process that runs candidates) can be started."""
        with ThreadPoolExecutor(len(self._options.devices), "probe") as pool:
            ends = [pool.submit(self._work, number) for number in range(len(self._options.devices))]
            for end in ends:
                end.result()
        self._report()

    def close(self) -> None:
        self._writers.close()
        self._lines.close()
        self._answers.close()

    def _candidates(self, texts: Texts) -> Iterator[TaskText]:
        done = {one.number for one in self.verdicts}
        if self._options.asked.answers:
            yield from self._asked(texts.operators, done)
        for one in self._writers.texts(texts.numbers(done)):
            if isinstance(one, TaskText):
                yield one
            elif one is None:
                self.unfit["no operator fitted"] += 1
            else:
                self.unbuilt[one.reason] += 1

    def _asked(self, operators: list[Operator], done: set[int]) -> Iterator[TaskText]:
        """Yields the model's answers whose numbers are not in `done`. Answers that an earlier run received are read
        from its file."""
        known = list(read_lines(self._options.out / ANSWERS, TaskText))
        yield from (one for one in known if one.number not in done)
        assert self._composer is not None
        numbers = range(max((one.number - ASKED + 1 for one in known), default=0), self._options.asked.answers)
        answers = asked(
            self._composer,
            operators,
            self._options.asked.seed,
            iter(numbers),
            lambda: self._failed,
            lambda why: self.unreadable.update([why]),
        )
        for one in answers:
            self._answers.add(one)
            yield one

    def _next(self) -> TaskText | None:
        """Returns the next candidate; None at the end of the run. During a pause all threads wait here."""
        options = self._options
        with self._lock:
            over = self._failed or len(self._keys) >= options.count or time.monotonic() >= options.until
            if over or len(self.verdicts) >= options.most or not self._control.goes_on(len(self.verdicts)):
                return None
            return next(self._stream)

    def _taken(self, key: str) -> bool:
        with self._lock:
            return key in self._keys

    def _work(self, number: int) -> None:
        options = self._options
        on_gpu = options.asked.target == "cuda"
        rules = Rules(
            device=options.devices[number],
            share=share_of_gpu(len(options.devices), len(set(options.devices))) if on_gpu else 1.0,
            window=window(options.asked.recipe, options.asked.target),
            compile=options.asked.compile,
            most_bytes=(1 << 30) if on_gpu else (64 << 20),
        )
        try:
            log = options.out / f"probe-{number:02}.log"
            with Filter(rules, choose(options.sandbox), self._taken, log, self._timing[rules.device]) as judge:
                while (task := self._next()) is not None:
                    self._keep(judge.judge(task))
        except BaseException:
            self._failed = True
            raise

    def _keep(self, verdict: FilterResult) -> None:
        with self._lock:
            if verdict.reason is Reason.passed and verdict.key in self._keys:
                # Another worker judged a task with this key at the same time.
                verdict = _duplicate(verdict)
            if verdict.reason is Reason.passed:
                self._keys.add(verdict.key)
            self._lines.add(verdict)
            self.verdicts.append(verdict)
            if len(self.verdicts) % REPORT_EVERY == 0:
                self._report()

    def _report(self) -> None:
        made = len(self.verdicts) - self._before
        figures = {
            "tasks": len(self._keys),
            "kept_rate": len(self._keys) / max(len(self.verdicts), 1),
            "candidates_per_min": 60 * made / max(time.monotonic() - self._began, 1e-9),
        }
        self._control.report(len(self.verdicts), figures)


def synthesise(options: SynthesisOptions, composer: Composer | None = None) -> str:
    """Runs the stage; returns the data card. Raises UsageError for a folder with other settings, MissingError without
    pyarrow, and DeviceError if candidates cannot be run."""
    arrow()
    claim_run(options.out, {"stage": "synth", **asdict(options.asked)})
    with RunControl(options.out, "synth") as control:
        run = SynthesisRun(options, control, composer)
        try:
            run.run()
        finally:
            run.close()
        low, high = window(options.asked.recipe, options.asked.target)
        about = {**asdict(options.asked), "window": f"{low:g}–{high:g} ms of eager PyTorch"}
        missing = {"operators without a text": run.unbuilt, "compositions without a text": run.unfit}
        text = card(run.verdicts, about, {**missing, "answers that are no task": run.unreadable})
        write_tasks(options.out, run.verdicts, options.asked.target, options.asked.seed)
        replace_file(options.out / CARD, text.encode())
    return text


def _duplicate(verdict: FilterResult) -> FilterResult:
    import msgspec

    return msgspec.structs.replace(verdict, reason=Reason.duplicate, graph=None)
