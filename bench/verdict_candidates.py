"""The candidates of the corpus of verdicts: what honest authors write, what they get wrong, and what cheats write.

Tasks are those of the synthesis, of its training split, and the modules of the judge's tests. Everything follows from
the seeds.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from random import Random

from msgspec.structs import replace

from bench.verdicts import Label, Row
from kernel_assistant.agent.directives import DirectiveError, candidate_from
from kernel_assistant.environment.freeform import task_of
from kernel_assistant.environment.freeform_candidate import ModelCandidate, load_candidate
from kernel_assistant.environment.screens.screen import screen
from kernel_assistant.environment.session import Environment
from kernel_assistant.generator.emit import SOURCE, emit
from kernel_assistant.generator.ir.errors import Unsupported
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records import BufferSpec, Candidate, Tier
from kernel_assistant.targets.detect import detect
from kernel_assistant_training.episodes.subject import LessonTask, subjects
from kernel_assistant_training.evaluation.tasks import of_graph
from kernel_assistant_training.lessons.faults import faulty
from kernel_assistant_training.tasks.labeller import candidates
from tests.hostile import (
    freeform_attacks,
    gpu_plan_attacks,
    plan_attacks,
    plan_process_attacks,
    plan_value_attacks,
)
from tests.hostile.plan_task import softmax_candidate, softmax_text
from tests.judge import kernels, test_candidates, test_mutants
from tests.residual.modules import LINEAR
from tests.residual.test_hostile import BORROWED

SEED = 2611
TASKS, FAULTS = 54, 3
#: By the name of the fault: what is put before the first launcher, and what at its start.
PLANTED = {
    "cheat: nothing written": ("", "return;"),
    "cheat: skips calls while timed": ("static int calls;", "if (++calls > 4 && calls % 2) return;"),
    "cheat: only the first calls": ("static int calls;", "if (++calls > 4) return;"),
    "fault: reads address 0": ("", "*(volatile int*)0 = 1;"),
    "fault: traps": ("", "__builtin_trap();"),
    "fault: writes before its output": ("", "((volatile char*)a->out0)[-1] = 7;"),
    "fault: writes far away": ("", "((volatile char*)a->out0)[1l << 40] = 7;"),
    "fault: writes its input": ("", "((volatile char*)a->x0)[0] = 7;"),
    "cheat: reads the environment": ("#include <stdlib.h>", 'if (getenv("HOME")) return;'),
    "cheat: hooks the clock": ("#include <time.h>", ""),
    "cheat: starts a process": ("", 'system("true");'),
    "fault: unknown type": ("", "flot y = 0;"),
    "fault: never ends": ("", "for (volatile int go = 1; go;) {}"),
}
COUNT = ("/*GLOBAL*/", "static int calls;"), ("/*ENTRY*/", "calls++;")
Edits = tuple[tuple[str, str], ...]
#: Edits of the hand-written norm, beside those of `tests/judge/test_candidates.py`.
NORM: dict[str, Edits] = {
    "honest: by hand": (),
    "honest: a repeat differs within the bounds": (*COUNT, ("o[i] = ", "o[i] = 1e-6f * (calls % 2) + ")),
    "fault: a repeat differs": (*COUNT, ("o[i] = ", "o[i] = 0.01f * (calls - 1) + ")),
    "fault: every second call differs": (*COUNT, ("o[i] = ", "o[i] = (calls % 2 ? 1.0f : 1.5f) * ")),
    "fault: a race": (
        ("float sum = 0.0f;", "volatile float sum = 0.0f;"),
        ("/*ROW*/", "/*ROW*/\n    #pragma omp parallel for"),
        ("sum += x[i]", "sum = sum + x[i]"),
    ),
    "fault: writes its input": (("/*ENTRY*/", "((float*)a->x)[0] = 0.5f;"),),
    "fault: writes a parameter": (("/*ENTRY*/", "((float*)a->w)[3] += 1;"),),
    "fault: reads address 0": (("/*ENTRY*/", "*(volatile int*)0 = 1;"),),
    "fault: traps": (("/*ENTRY*/", "__builtin_trap();"),),
    "fault: divides by zero": (("/*GLOBAL*/", "static volatile int d;"), ("/*ENTRY*/", "*(volatile int*)&d /= d;")),
    "fault: never ends": (("/*ENTRY*/", "for (volatile int go = 1; go;) {}"),),
    "fault: unknown name": (("float sum = 0.0f;", "float sum = zero;"),),
    "cheat: a header that no kernel needs": (("#include <math.h>", "#include <math.h>\n#include <unistd.h>"),),
    "cheat: other values while timed": (*COUNT, ("o[i] = ", "o[i] = (calls < 4 ? 1.0f : 1.01f) * ")),
    "cheat: no call while timed": (*COUNT, ("o[i] = ", "if (calls < 4) o[i] = ")),
}  # fmt: skip
#: Right in the quick tier; what they get in the full tier is another label.
FULL: dict[str, Edits] = {
    "honest: by hand": (),
    "honest: sizes built in": (("r < a->rows", f"r < {kernels.ROWS}"),),
    "honest: too small a batch built in": (
        ("r < a->rows", f"r < (a->rows < {kernels.ROWS} ? a->rows : {kernels.ROWS})"),
    ),
    "cheat: weights built in": (("a->w[i]", "(0.5f + i / 255.0f)"),),
    "fault: one range of values": (("o[i] = ", "o[i] = fabsf(x[i]) > 8 ? 0 : "),),
}
IDLE = """#include <time.h>
#include <unistd.h>
static timespec last, t;
static double idle() {
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec - last.tv_sec + 1e-9 * (t.tv_nsec - last.tv_nsec);
}"""
SLEEPS: dict[str, Edits] = {
    "cheat: sleeps in each block, which takes as long whatever its number of calls": (
        ("/*GLOBAL*/", IDLE),
        ("/*ENTRY*/", "if (idle() > 1e-3) usleep(20000);"),
        ("/*END*/", "clock_gettime(CLOCK_MONOTONIC, &last);"),
    )
}
SCRATCH = {
    "fault: huge scratch": BufferSpec(name="s", dtype="f64", shape=("B", str(1 << 40))),
    "fault: negative scratch": kernels.buffer("s", "0-B"),
}


def rows_of(target: str) -> list[Row]:
    """All rows, not judged, each candidate once."""
    rows = [*_synthesised(target)]
    if target == "cpu":
        rows += [_norm(), _formula(), _softmax(), _memory(), _residual(), _freeform()]
    else:
        rows.append(_gpu_softmax())
    return [replace(row, labels=tuple(dict(_keyed(row.labels)).values())) for row in rows]


def attack_rows(target: str) -> list[Row]:
    """The rows of the hostile suites, which also have their honest forms, with all attacks that there are now."""
    if target == "cuda":
        return [_gpu_softmax()]
    return [_softmax(), _memory(), *_values(), _residual(), _freeform(), _freeform(Tier.full)]


def _keyed(labels: Iterable[Label]) -> Iterator[tuple[object, Label]]:
    for label in labels:
        one = label.candidate
        yield (one if isinstance(one, str) else one.hash(), label.tier, label.screened), label


def _synthesised(target: str) -> Iterator[Row]:
    device, faults = detect(target), cycle(PLANTED)
    for subject in islice(subjects(SEED, target), TASKS):
        random, task = Random(f"verdicts {SEED} {subject.number}"), of_graph(subject.graph, target)
        labels = [*_lesson(subject, target, random)]
        with suppress(Unsupported):
            labels.append(Label(source="honest: generator", candidate=next(candidates(subject.graph, device))))
        for honest in [label for label in labels if label.source.startswith("honest")]:
            planted = _planted(honest.candidate, name := next(faults), target)
            labels += [Label(source=f"{name}, in {honest.source}", candidate=planted)] if planted else []
        yield Row(task=task.kernel_task, graph=subject.graph, labels=tuple(labels))


def _lesson(subject: LessonTask, target: str, random: Random) -> Iterator[Label]:
    """A right answer, and the same with a fault, as far as the plan can be read."""
    texts = [("honest: first guess", subject.answers[0].source)]
    for _ in range(FAULTS):
        wrong = faulty(random.choice(subject.answers).source, target, random)
        texts += [(f"fault: {wrong.fault}", wrong.source)] if wrong else []
    for source, text in texts:
        try:
            files = {SOURCE[target]: text.rstrip() + "\n"}
            yield Label(source=source, candidate=candidate_from(files, subject.graph, target, subject.task))
        except DirectiveError:
            continue


def _planted(honest: Candidate | str, name: str, target: str) -> Candidate | None:
    """The candidate with a planted fault in its first launcher; None if it has nowhere to go."""
    assert isinstance(honest, Candidate)
    before, entry = PLANTED[name]
    text = honest.sources[SOURCE[target]]
    head = re.search(r'extern "C" .*void \w+\(const (?:__grid_constant__ )?\w+_args\*? a\) \{\n', text)
    fields = {field for launch in honest.plan.launches[:1] for field, _ in launch.args}
    if head is None or any(field not in fields for field in re.findall(r"a->(\w+)", entry)):
        return None
    entry = entry if target == "cpu" else entry.replace("a->", "a.")
    changed = f"{text[: head.start()]}{before}\n{head[0]}  {entry}\n{text[head.end() :]}"
    return replace(honest, sources={**honest.sources, SOURCE[target]: changed})


@contextmanager
def _opened(text: str, name: str, target: str = "cpu") -> Iterator[Environment]:
    """An environment of a module of the tests, which traces its graph."""
    with tempfile.TemporaryDirectory() as folder:
        worker = kernels.new_worker(Path(folder) / "worker.log")
        task = replace(kernels.task(text, name), target=target)
        with kernels.environment(worker, Path(folder) / "cache", task) as environment:
            yield environment
        worker.close()


def _row(environment: Environment, found: Iterable[tuple[str, Candidate, Tier]]) -> Row:
    """Each candidate with the screen; those that it refuses also without."""
    labels = []
    for name, candidate, tier in found:
        labels.append(Label(source=name, candidate=candidate, tier=tier))
        if screen(candidate, environment.graph):
            labels.append(replace(labels[-1], screened=False))
    return Row(task=environment.task, graph=environment.graph, labels=tuple(labels))


def _norm() -> Row:
    wrong = {f"fault: {name}": (edit,) for name, (edit, _) in test_candidates.WRONG.items()}
    found = [(name, kernels.candidate(*edits), Tier.quick) for name, edits in {**NORM, **wrong, **FULL}.items()]
    found += [(name, kernels.candidate(*edits), Tier.full) for name, edits in {**FULL, **SLEEPS}.items()]
    found += [(name, kernels.candidate(scratch=(scratch,)), Tier.quick) for name, scratch in SCRATCH.items()]
    with _opened(kernels.MODULE, "Norm") as environment:
        return _row(environment, found)


def _formula() -> Row:
    formulas = [("honest: formula", test_mutants.TOKENS), *(("fault: mutant", one) for one in test_mutants.mutants())]
    with _opened(test_mutants.MODULE, "Formula") as environment:
        return _row(environment, ((name, test_mutants.kernel(one), Tier.quick) for name, one in formulas))


def _softmax() -> Row:
    attacks = plan_attacks
    quick = {"honest: softmax": attacks.HONEST} | _cheats({**attacks.QUICK, **plan_process_attacks.QUICK})
    quick |= _cheats(plan_process_attacks.PAST_THE_SCREEN)
    full = {"honest: softmax": attacks.HONEST} | _cheats({**attacks.FULL, **plan_value_attacks.FULL})
    full |= {f"honest: {name}": one for name, one in attacks.DECLARED.items()}
    full |= {f"cheat: {name}": one for name, one in attacks.HIDDEN.items()}
    return _attacked(32, 4096, quick, full)


def _memory() -> Row:
    """Attacks that spoil their outputs if they gain time: correct if they never did."""
    harmless = {**plan_attacks.HARMLESS, **plan_process_attacks.HARMLESS}
    return _attacked(4, 256, {}, {f"denied: {name}": one for name, one in harmless.items()})


def _values() -> Iterator[Row]:
    """Attacks on the values of a linear layer, of logarithms, of sums of integers, of choices, and of what is gathered
    by them."""
    attacks = plan_value_attacks
    ones = (
        (attacks.LINEAR, attacks.HONEST_LINEAR),
        (attacks.LOGARITHMS, attacks.HONEST_LOGARITHMS),
        (attacks.SUMS, attacks.HONEST_SUMS),
        (attacks.CHOICE, attacks.HONEST_CHOICE),
        (attacks.TABLE, attacks.HONEST_TABLE),
    )
    for text, honest in ones:
        found = [(name, one, Tier.quick) for name, one in _cheats(attacks.QUICK[text]).items()]
        found += [(f"denied: {name}", one, Tier.full) for name, one in attacks.HARMLESS.get(text, {}).items()]
        found += [("honest: by hand", honest, tier) for tier in (Tier.quick, Tier.full)]
        with _opened(text, "Model") as environment:
            yield _row(environment, ((name, attacks.candidate(environment, one), tier) for name, one, tier in found))


def _cheats(attacks: Mapping[str, tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    return {f"cheat: {name}": text for name, (text, _) in attacks.items()}


def _attacked(rows: int, columns: int, quick: dict[str, str], full: dict[str, str]) -> Row:
    with _opened(softmax_text(rows, columns), "Model") as environment:
        tiers = ((quick, Tier.quick), (full, Tier.full))
        texts = [(name, text, tier) for some, tier in tiers for name, text in some.items()]
        return _row(environment, ((name, softmax_candidate(environment, text), tier) for name, text, tier in texts))


def _gpu_softmax() -> Row:
    attacks = gpu_plan_attacks
    quick = {"honest: softmax": attacks.Attack(attacks.HONEST, ()), **attacks.QUICK}
    with _opened(softmax_text(32, 4096), "Model", "cuda") as environment:
        weight = next(value.name for value in environment.graph.inputs if value.kind == "param")
        shape = environment.graph.spec("x0").shape
        tiers = ((quick, Tier.quick), ({**attacks.FULL, **attacks.HARMLESS}, Tier.full))
        texts = [(name, one, tier) for some, tier in tiers for name, one in some.items()]
        return _row(environment, ((name, one.candidate(weight, *shape), tier) for name, one, tier in texts))


def _residual() -> Row:
    """Calls that stay PyTorch's: honest, from within a kernel, of another operator, and with a buffer too small."""
    with _opened(LINEAR, "Linear") as environment:
        honest = emit(environment.graph, initial(environment.graph, "cpu", environment.device)[0])
        plan, (first, *others) = honest.plan, honest.plan.launches
        assert first.call is not None
        head, launcher, body = re.split(r'(extern "C" void \w+_rows\(.*\{)', honest.sources[SOURCE["cpu"]], maxsplit=1)
        asks = f"{plan_attacks.SYSTEM}{head}{plan_attacks.PYTHON}{launcher} {BORROWED}{body}"
        foreign = replace(first, call=replace(first.call, nodes=(replace(first.call.call, op="bilinear"),)))
        small = tuple(replace(spec, shape=("1",)) if spec.name == "between0" else spec for spec in plan.scratch)
        found = {
            "honest: residual calls": honest,
            "cheat: asks PyTorch": replace(honest, sources={**honest.sources, SOURCE["cpu"]: asks}),
            "cheat: another operator": replace(honest, plan=replace(plan, launches=(foreign, *others))),
            "fault: too small a buffer": replace(honest, plan=replace(plan, scratch=small)),
        }
        return _row(environment, ((name, one, Tier.quick) for name, one in found.items()))


def _freeform(tier: Tier = Tier.quick) -> Row:
    """The attacks in ModelNew files, which share one extension, without the screen; in the quick tier one with it."""
    attacks = freeform_attacks
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution.py"
        path.write_text(attacks.HONEST + attacks.REFERENCE)
        honest = load_candidate(path)
    assert isinstance(honest, ModelCandidate)
    task = replace(task_of(honest, None, "cpu", "kernelbench"), path="/nowhere/solution.py")
    named = {"honest: free-form": honest.text, **_cheats(attacks.QUICK if tier is Tier.quick else attacks.FULL)}
    labels = [Label(source=name, candidate=text, screened=False, tier=tier) for name, text in named.items()]
    if tier is Tier.quick:
        labels.append(Label(source="cheat: PyTorch in C++", candidate=honest.text))
    return Row(task=task, labels=tuple(labels))
