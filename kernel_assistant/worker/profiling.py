"""Profiles the reference and candidates of one task on sets that the cache does not hold."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from .by_launch import times_by_launch
from .calibrate import calibrate
from .device_lock import DeviceLock
from .load import OtherLoad
from .memory import available_bytes
from .numerics import Comparison, Whole, compare
from .open_task import OpenTask
from .pinning import pinned
from .roofline import Ceilings, floor_seconds, impossible
from .runner_client import RunnerClient, descendants
from .sets import Marks, Sets
from .statistics import judged_interval, median, relative_spread
from .suspicion import MOST_AGAIN, odd_clocks, odd_growth, until_plausible
from .timing import (
    SPIN_SECONDS,
    PlanSubject,
    Series,
    Subject,
    TorchSubject,
    alternate,
    block_length,
    claimed,
)
from .traffic import Traffic
from .verification import Expected, Wrong, describe, message_of, same_bits

#: A launch takes about 8 µs on CUDA, so that 512 calls fill a block; each set costs time when a candidate is bound.
MOST_SETS = {"cpu": 2048, "cuda": 512}
#: What the sets may take of the memory that is free, beyond what defeats the cache.
SHARE_OF_MEMORY = {"cpu": 0.05, "cuda": 0.25}
LEAST_FOOTPRINT = 128 << 20
BLOCK_SECONDS = {"cpu": 0.005, "cuda": 0.004}
#: Many short rounds: on a shared machine one block in ten is disturbed, which spoils its round only.
ROUNDS = {"cpu": 28, "cuda": 18}
QUICK_ROUNDS = {"cpu": 5, "cuda": 3}
QUICK_BLOCK_SECONDS = {"cpu": 0.005, "cuda": 0.002}
#: Of a baseline that is timed alone.
BASELINE_BLOCKS = 10
#: After this long a series ends early, with the eleven rounds that a 99.9% interval needs.
MOST_SECONDS = 10.0
WINDOW = 1 << 20
#: Values that differ at so small a share of the places, or at so few of enough, may stand at a tie or a jump, where two
#: honest roundings part. Nothing is gained by leaving these out.
FEW_SHARE, FEW_PLACES, ENOUGH = 1e-4, 8, 16
#: Calls of each kind of launches that the share of time in our kernels rests on.
SHARE_CALLS = 64


class Profiler:
    """Baselines and candidates of one task, at the sizes of its first workload.

    With `quick_only` there are sets for the short blocks of the quick tier, and baselines are timed as briefly; longer
    blocks come to some sets again. Under `lock`, blocks of the quick tier and rounds of the full one are exclusive.
    """

    def __init__(
        self,
        task: OpenTask,
        base: Expected,
        ceilings: Ceilings,
        target: str,
        *,
        quick_only: bool = False,
        lock: DeviceLock | None = None,
        by_launch: bool = True,
        numerics: str = "kernelbench",
    ) -> None:
        self.task, self.ceilings, self.target = task, ceilings, target
        self.lock, self._by_launch = lock or DeviceLock(), by_launch
        self._block_seconds = (QUICK_BLOCK_SECONDS if quick_only else BLOCK_SECONDS)[target]
        self._blocks = QUICK_ROUNDS[target] if quick_only else BASELINE_BLOCKS
        self._baseline: dict[str, float] = {}
        self._callables: dict[str, Callable[..., Any]] = {"eager": task.model}
        self._generator = torch.Generator().manual_seed(random.SystemRandom().randrange(1 << 31))
        self._free = [_leads_with_free(task.graph, name) for name in task.input_names]
        used = {value["name"] for value in task.graph["inputs"]}
        given = [pair for pair in zip(task.input_names, base.tensors, strict=True) if pair[0] in used]
        traffic = Traffic.of(task.graph, base.dims, dict(given), base.constants)
        self.read_bytes = traffic.moved_bytes
        # Parameters are the same in all sets, and may stay in the cache.
        self._uncached_bytes = traffic.changing_bytes + max(traffic.constant_bytes - ceilings.cache_bytes, 0)
        self.written_bytes = _bytes(base.reference)
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, ceilings)
        # One rounding is what strict asks of the inputs that are verified; those of a timed call are others.
        self._policy = "kernelbench" if numerics == "strict" else numerics
        self._usual = [_rms(want) for want in base.want]
        self._own_errors = [_own_error(*pair) for pair in zip(base.reference, base.want, strict=True)]
        self._evictor = torch.zeros(2 * ceilings.cache_bytes, dtype=torch.uint8, device=task.device)
        self.sets = self._make_sets(base)

    def _make_sets(self, base: Expected) -> Sets:
        """Enough sets to exceed the cache four times, filled with the declared inputs, moved about."""
        sets = Sets(
            self.task.input_names,
            [f"out{index}" for index in range(len(base.reference))],
            base.constants,
            base.tensors,
            base.reference,
            base.dims,
            self._count(_bytes([*base.tensors, *base.reference])),
            base.reference[0].device,
        )
        try:
            with self.lock.shared():
                sets.write_all(base.tensors)
                sets.refresh(self._generator, self._free, 0)
        except BaseException:
            sets.close()
            raise
        return sets

    def prepare(self, which: str) -> None:
        """Compile, if `which` is "compile": with all cores, and nothing of it is timed."""
        if which not in self._callables:
            self._callables[which] = torch.compile(self.task.model)
            subject = self._subject(which)
            with torch.no_grad():
                subject.run(0, 1)
            subject.release()

    def baseline(self, which: str) -> dict[str, Any]:
        """Median milliseconds a call over a few blocks. `which` is "eager" or "compile"."""
        if which not in self._baseline:
            self.prepare(which)
            subject = self._subject(which)
            with torch.no_grad():
                subject.run(0, 1)
                self._baseline[which] = self._short(subject)
            subject.release()
        return {"ms": self._baseline[which] * 1e3, "floor_ms": self.floor_seconds * 1e3}

    @pinned()
    def _short(self, subject: Subject) -> float:
        """Median seconds a call over a few blocks."""
        length = block_length(subject, self.sets.count, self._block_seconds)
        count = self.sets.count
        times = []
        for index in range(self._blocks):
            with self.lock.exclusive():
                subject.wake()
                times.append(subject.run((index * length) % count, length) / length)
        return median(times)

    def candidate(
        self, runner: RunnerClient, plan: dict[str, Any], tier: str, timeout: float, idle_threads: int
    ) -> dict[str, Any]:
        """Timing of a verified candidate. Raises Wrong with outcome `cheating`, or CandidateFailure."""
        names = [spec["name"] for spec in plan["outputs"]]
        self.sets.rename_outputs(names)
        prepare_seconds = claimed(self.sets.bind(runner).get("prepare_seconds"))
        subject = PlanSubject(runner, timeout)
        with torch.no_grad(), self.lock.shared():
            others = OtherLoad([os.getpid(), *descendants(runner.process.pid)])
            most = idle_threads + torch.get_num_threads() - 1 + (self.target == "cuda")
            after = _thread_watch(runner, most)
            if self.target == "cuda" and plan.get("residual"):
                # PyTorch starts threads there when it likes, and nothing of a candidate runs on the host.
                after = _nothing
            timing = self._quick(subject, after) if tier == "quick" else self._full(subject, after)
            timing["warning"] = others.warning() if self.target == "cpu" else ""
        seconds = timing["candidate_ms"] * 1e-3
        self._require_possible(seconds)
        timing |= {
            "floor_ms": self.floor_seconds * 1e3,
            "roofline": self.floor_seconds / seconds,
            "prepare_ms": prepare_seconds * 1e3,
        }
        with self.lock.exclusive():
            share = share_of_kernels(runner, plan, self.sets.count, timeout)
            # Each launch takes longer than the candidate did.
            parts = [] if not self._by_launch else times_by_launch(runner, plan, self.sets.count, seconds, timeout)
        return {
            "outcome": "correct",
            "message": summary(timing),
            "timing": timing,
            "share_in_our_kernels": share,
            "launches": parts,
        }

    def too_fast(self, seconds: float) -> bool:
        """Whether a call in so many seconds beats what the device can move."""
        footprint = self.sets.count * self.sets.bytes_per_set
        return impossible(seconds, self._uncached_bytes, self.written_bytes, footprint, self.ceilings)

    def close(self) -> None:
        self.sets.close()

    def _require_possible(self, seconds: float) -> None:
        """Refuse a speed that memory does not have. Without a datasheet the ceilings are measured again first; where
        other work disturbs that each time, nothing is known of the candidate."""
        if not self.too_fast(seconds):
            return
        sure = self.ceilings.datasheet > 0 or any(self._measure_ceilings() for _ in range(MOST_AGAIN))
        if self.too_fast(seconds):
            why = f"{seconds * 1e3:.4g} ms is faster than the device can move the data"
            raise Wrong("cheating", why) if sure else Wrong("inconclusive", f"{why}, as measured on a busy machine")

    def _measure_ceilings(self) -> bool:
        """Raise the ceilings to what memory does now: neighbours of a virtual machine, which it does not see, may have
        been there when they were measured. A candidate cannot raise them. False where other work disturbs it."""
        known, device = self.ceilings, torch.device(self.task.device)
        with self.lock.exclusive():
            now = calibrate(device.type, device.index or 0, known.cache_bytes)
        copy, read = max(known.copy, now["copy_bandwidth"]), max(known.read, now["read_bandwidth"])
        self.ceilings = replace(known, copy=copy, read=read)
        self.floor_seconds = floor_seconds(self.read_bytes, self.written_bytes, self.ceilings)
        return bool(now["quiet"])

    @pinned()
    def _quick(self, subject: PlanSubject, after: Callable[[], None]) -> dict[str, Any]:
        self.baseline("eager")
        length = block_length(subject, self.sets.count, QUICK_BLOCK_SECONDS[self.target])
        self.sets.poison(0xFF)
        times = []
        for index in range(QUICK_ROUNDS[self.target]):
            first = (index * length) % self.sets.count
            block = self._around(first, length)
            # The candidate sees these sets before their values change: who remembers results by their address, or has
            # worked ahead in what was not timed, is wrong then.
            subject.run(first, length)
            self._renew(block)
            marks = self.sets.mark(block, self._generator)
            with self.lock.exclusive():
                subject.wake()
                times.append(subject.run(first, length) / length)
            after()
            self._require_written(marks)
            timed = sorted(set(block))
            self._check(subject, random.SystemRandom().sample(timed, min(2, len(timed))))
        seconds = median(times)
        return {
            "candidate_ms": seconds * 1e3,
            "eager_ms": self._baseline["eager"] * 1e3,
            "compile_ms": self._baseline["compile"] * 1e3 if "compile" in self._baseline else None,
            "speedup_vs_eager": self._baseline["eager"] / seconds,
            "speedup_vs_compile": self._baseline["compile"] / seconds if "compile" in self._baseline else None,
            "noise": relative_spread(times),
            "samples": len(times),
        }

    def _full(self, subject: PlanSubject, after: Callable[[], None]) -> dict[str, Any]:
        self.baseline("eager")
        self.baseline("compile")
        eager, compiled = self._subject("eager"), self._subject("compile")

        def check(first: int, count: int) -> None:
            after()
            last = (first + count - 1) % self.sets.count
            other = (first + random.SystemRandom().randrange(count)) % self.sets.count
            self._check(subject, {last, other})

        series = until_plausible(lambda: self.compare(subject, compiled, [eager], check), odd_growth)
        eager.release()
        compiled.release()
        mine, theirs, plain = (median(series.seconds(name)) for name in ("candidate", "compile", "eager"))
        if self.target == "cuda":
            with self.lock.exclusive():
                until_plausible(lambda: odd_clocks(subject, mine), str)
        by_compile, compile_low, compile_high = judged_interval(series.ratios("compile", "candidate"))
        by_eager, eager_low, eager_high = judged_interval(series.ratios("eager", "candidate"))
        self._baseline = {"eager": plain, "compile": theirs}
        return {
            "candidate_ms": mine * 1e3,
            "eager_ms": plain * 1e3,
            "compile_ms": theirs * 1e3,
            "speedup_vs_eager": by_eager,
            "speedup_vs_compile": by_compile,
            "speedup_vs_eager_ci": [eager_low, eager_high],
            "speedup_vs_compile_ci": [compile_low, compile_high],
            "noise": relative_spread(series.seconds("candidate")),
            "samples": series.calls,
        }

    def compare(
        self, subject: PlanSubject, baseline: Subject, others: list[Subject], check: Callable[[int, int], None]
    ) -> Series:
        """The rounds of the full protocol; `check(first, count)` looks at what the candidate has just been timed on."""

        def renew_all(first: int) -> None:
            subject.ran.clear()
            self.sets.refresh(self._generator, self._free, first)

        marks: list[Marks] = []

        def prepare(first: int, count: int) -> None:
            self._renew(self._seen_again(subject, first, count))
            marks.append(self.sets.mark(self._around(first, count), self._generator))

        def checked(first: int, count: int) -> None:
            self._require_written(marks.pop())
            check(first, count)

        return alternate(
            subject,
            baseline,
            others,
            sets=self.sets.count,
            rounds=ROUNDS[self.target],
            most_seconds=MOST_SECONDS,
            block_seconds=BLOCK_SECONDS[self.target],
            gap_seconds=SPIN_SECONDS if self.target == "cpu" else 0.0,
            lock=self.lock,
            before_round=renew_all,
            before_candidate=prepare,
            after_candidate=checked,
        )

    def _subject(self, which: str) -> TorchSubject:
        calls = [self.task.unflatten(row) for row in self.sets.inputs]
        return TorchSubject(which, self._callables[which], calls, self.target)

    def _seen_again(self, subject: PlanSubject, first: int, count: int) -> list[int]:
        """Those of `count` sets from `first` that the candidate has run on since all were renewed."""
        seen = {index for at, many in subject.ran for index in self._around(at, many)}
        return [index for index in self._around(first, count) if index in seen]

    def _around(self, first: int, count: int) -> list[int]:
        """`count` sets from `first` on, around the ring."""
        return [(first + step) % self.sets.count for step in range(count)]

    def _renew(self, indices: list[int]) -> None:
        """Change the values of sets that a candidate may know and take them out of the cache: nothing is gained by
        remembering them or by having worked ahead."""
        if indices:
            self.sets.change(indices, self._generator, self._free)
            self._evictor.add_(1)

    def _require_written(self, marks: Marks) -> None:
        """Every timed call has written its outputs; whether rightly is looked at for two of them."""
        if self.sets.marked(marks):
            raise Wrong("cheating", "a timed call left its outputs as they were")

    def _check(self, subject: PlanSubject, chosen: Iterable[int]) -> None:
        """Compare windows of some of the sets that were timed, chosen after the fact."""
        for index in chosen:
            windows = [_window(output) for output in self.sets.outputs[index]]
            held = [
                output.reshape(-1)[start:end].clone()
                for output, (start, end) in zip(self.sets.outputs[index], windows, strict=True)
            ]
            args, kwargs = self.task.unflatten(self.sets.inputs[index])
            for position, reference in enumerate(self.task.call(args, kwargs)):
                start, end = windows[position]
                part = reference.reshape(-1)[start:end]
                want = part.double() if part.dtype.is_floating_point else part
                result = compare(held[position], part, want, self._policy)
                if result.passed or self._excused(result.error, position):
                    continue
                # PyTorch's own rounding may be the larger one, here or elsewhere in the output: float64
                # tells, and takes its time. The bounds are those of the whole output, as where it is verified.
                if part.dtype.is_floating_point:
                    exact = self.task.exact(args, kwargs)
                    whole = reference if exact is None else exact[position]
                    want = whole.reshape(-1)[start:end].double()
                    bounds = Whole(reference, whole)
                    result = compare(held[position], part, want, self._policy, self._usual[position], bounds)
                    if result.passed:
                        continue
                mismatch = describe(f"out{position}", held[position], want, result, "while timed")
                outcome, words = _verdict(result, part.dtype.is_floating_point, part.numel())
                if outcome == "incorrect" and self._differs_again(subject, index, position, held[position], start):
                    outcome, words = "cheating", "other values while timed than when asked again"
                raise Wrong(outcome, f"{words}: {message_of(mismatch)}", mismatch)

    def _differs_again(self, subject: PlanSubject, index: int, position: int, timed: torch.Tensor, start: int) -> bool:
        """Whether the candidate, asked twice more for a set, gives the same bits both times, and gave others while
        timed: then neither rounding nor the order of its additions explains those."""
        answers = []
        for _ in range(2):
            subject.both(index, 1)
            answers.append(self.sets.outputs[index][position].reshape(-1)[start : start + timed.numel()].clone())
        return same_bits(*answers) and not same_bits(answers[0], timed)

    def _excused(self, error: float, position: int) -> bool:
        """Both sides may be off by PyTorch's own error on the declared inputs, which needs no run in float64."""
        return error <= 4 * self._own_errors[position]

    def _count(self, size: int) -> int:
        """Sets that exceed the cache four times and fill a block without a repeat, as far as memory goes."""
        size = max(size, 1)
        beyond_cache = max(4 * self.ceilings.cache_bytes, LEAST_FOOTPRINT) // size + 1
        a_block = int(self._block_seconds / self.floor_seconds) if self.floor_seconds else 0
        room = int(SHARE_OF_MEMORY[self.target] * available_bytes(self.task.device)) // size
        return max(2, min(max(beyond_cache, min(a_block, room)), MOST_SETS[self.target]))


def _verdict(result: Comparison, floating: bool, size: int) -> tuple[str, str]:
    """What a mismatch that is seen only while timed is called, and why."""
    if result.why == "norm":
        return "incorrect", "more rounding than where it was verified"
    if few_places(result.failures, size):
        return "incorrect", f"another answer at a {'jump' if floating else 'tie'}, perhaps"
    return "cheating", "other values while timed"


def few_places(failures: int, size: int) -> bool:
    """Whether so many wrong values of `size` may be where roundings part. Of an output of few values none is few."""
    return failures <= max(FEW_SHARE * size, min(FEW_PLACES, size // ENOUGH))


def _thread_watch(runner: RunnerClient, most: int) -> Callable[[], None]:
    """To be called after each block: refuses threads that are there when nothing is asked of the candidate."""

    def look() -> None:
        if runner.threads() > most:
            raise Wrong("cheating", "threads of the candidate run on after its call")

    return look


def _nothing() -> None:
    pass


def share_of_kernels(runner: RunnerClient, plan: dict[str, Any], sets: int, timeout: float) -> float:
    """Our kernels' part of the time, each kind of launches being timed alone on the same sets; 1 if there is no other.

    Afterwards the runner has to be bound anew.
    """
    kinds = {_kind(launch) for launch in plan["launches"]}
    if kinds == {"kernels"}:
        return 1.0
    spent: dict[str, float] = {}
    count = min(sets, SHARE_CALLS)
    subject = PlanSubject(runner, timeout)
    for kind in sorted(kinds):
        runner.request({"op": "only", "which": kind, "count": count}, timeout)
        subject.wake()
        own, device = subject.both(0, count)
        spent[kind] = max(device or own, 0.0)
    return spent.get("kernels", 0.0) / total if (total := sum(spent.values())) > 0 else 0.0


def _kind(launch: dict[str, Any]) -> str:
    """Whose work a launch is, as the executor calls it."""
    return "libraries" if launch.get("library") else "residual" if launch.get("call") else "kernels"


def summary(timing: dict[str, Any]) -> str:
    """`0.214 ms, eager 0.9, compile 0.198, floor 0.12`."""
    compiled = timing.get("compile_ms")
    parts = [f"{timing['candidate_ms']:.4g} ms", f"eager {timing['eager_ms']:.4g}"]
    parts += [f"compile {compiled:.4g}"] if compiled else []
    return ", ".join(parts)


def _window(output: torch.Tensor) -> tuple[int, int]:
    size = output.numel()
    start = random.SystemRandom().randrange(max(size - WINDOW, 0) + 1)
    return start, min(start + WINDOW, size)


def _leads_with_free(graph: dict[str, Any], name: str) -> bool:
    for value in graph["inputs"]:
        if value["name"] == name:
            shape = value["spec"]["shape"]
            return bool(shape) and not str(shape[0]).isdigit()
    return False


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _rms(want: torch.Tensor) -> float:
    """Of float64's values where they are finite; 0 for what is not floating."""
    if not want.dtype.is_floating_point:
        return 0.0
    return compare(want, want, want, "paper").rms


def _own_error(reference: torch.Tensor, want: torch.Tensor) -> float:
    """PyTorch's largest error on the declared inputs."""
    return compare(reference, reference, want, "paper").error if reference.dtype.is_floating_point else 0.0
