"""Held-out evaluation: tasks, answers judged by the real judge, structures of plans, and the page."""

from __future__ import annotations

import json
import sys
import time
from random import Random

import msgspec
import pytest

from bench.held_out import measured_device
from bench.held_out_answers import Answer, Answers, engine
from bench.held_out_generator import is_outside, structure
from bench.held_out_judge import JudgeOptions, judge_part
from bench.held_out_page import page
from bench.held_out_tasks import HeldOutTask, tasks
from kernel_assistant.agent.directives import candidate_from
from kernel_assistant.config import resolve
from kernel_assistant.generator.emit import emit
from kernel_assistant.generator.search.search import initial
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.transcript import Message
from kernel_assistant.targets import cpu
from kernel_assistant_training.evaluation.options import WorkerOptions
from kernel_assistant_training.synth import sample, split
from tests.records.test_canonical import norm

SOURCE = """// launch: k0(x0, p0, out0, rows=B)
#include "ka/rows.h"
extern "C" void k0(const k0_args* a) {
  ka::rows(a->rows, D0, [=](int64_t r) {
    const float* x = a->x0 + r * D0;
    const float s = ka_rsqrt(ka::fold_row<ka::sum>(D0, [](float v) { return v * v; }, x) / D0 + C0);
    ka::map_row(D0, [=](float v, float w) { return v * s * w; }, a->out0 + r * D0, x, a->p0);
  });
}
"""
#: The same result by two launches and a buffer between them.
TWO = """// launch: sums(x0, sums, rows=B)
// launch: scaled(x0, p0, sums, out0, rows=B)
// scratch: sums f32[B]
"""


def task() -> HeldOutTask:
    graph = msgspec.structs.replace(norm(), dims={"B": 512})
    asked = Message(role="system", content=""), Message(role="user", content=canonical(graph).text())
    return HeldOutTask(key=canonical(graph).key(), split="held_out", level=1, graph=graph, prompt=asked, writable=True)


def fenced(source: str) -> Answer:
    return Answer(text=f"```cpp\n{source}```", tokens=100)


@pytest.mark.programs
@pytest.mark.slow
def test_answers_are_judged_by_the_environment(tmp_path):
    faulty = SOURCE.replace("C0", "0.5f"), SOURCE.replace("x0,", "x9,", 1), SOURCE.replace(" s *", " t *")
    texts = [faulty[0], SOURCE, SOURCE, *faulty[1:]]
    answers = [*map(fenced, texts), Answer(text="I cannot", tokens=3)]
    workers = WorkerOptions("cpu", sys.executable, logs=tmp_path, cache=tmp_path)
    measured_device(workers)
    asked = [(task(), Answers(key=task().key, answers=tuple(answers)))]
    for thorough in (False, True):
        judge_part(JudgeOptions(workers, time.monotonic() + 100, thorough, generator=thorough), asked)
    until_right, row = [json.loads(line)["found"] for line in (tmp_path / "rows-cpu-00.jsonl").read_text().splitlines()]
    outcomes = [attempt["outcome"] for attempt in until_right["attempts"]]
    assert outcomes == ["incorrect", "correct", "correct", "plan", "not_judged", "no_code"]
    assert (until_right["first"], until_right["best"], "generator" in until_right) == (False, True, False)
    outcomes = [attempt["outcome"] for attempt in row["attempts"]]
    assert outcomes == ["incorrect", "correct", "correct", "plan", "compile_error", "no_code"]
    assert (row["outcome"], row["first"], row["best"], row["different"]) == ("judged", False, True, 3)
    assert row["generator"]["first"] and row["generator"]["evaluations"] <= len(answers)
    text = page({"target": "cpu", "attempts": 6}, [row])
    assert "| held out | 1 | 0% | 100% | 100% | 100% |" in text
    assert "| plan | 0 | 1 |" in text


def test_what_is_outside_of_the_generator():
    graph = norm()
    schedules = initial(graph, "cpu", cpu.facts())
    theirs = emit(graph, schedules[0])
    mine = candidate_from({"kernel.cpp": SOURCE}, graph, "cpu", canonical(graph))
    other = candidate_from({"kernel.cpp": TWO}, graph, "cpu", canonical(graph))
    assert structure(mine.plan) == structure(theirs.plan) == (("kernel", "out0", "p0", "x0"),)
    assert structure(other.plan) == (("kernel", "s3", "x0"), ("kernel", "out0", "p0", "s3", "x0"))
    renamed = candidate_from({"kernel.cpp": TWO.replace("sums", "totals")}, graph, "cpu", canonical(graph))
    assert structure(renamed.plan) == structure(other.plan)
    found = [is_outside(one, graph, cpu.facts(), ()) for one in (theirs, mine, other)]
    assert found == [False, False, True]
    assert not is_outside(renamed, graph, cpu.facts(), [other])


@pytest.mark.programs
@pytest.mark.slow
def test_tasks_are_withheld_ones_and_stay_the_same(tmp_path):
    found = tasks(tmp_path / "tasks.jsonl", "cpu", "x86-64-avx2", 10, seed=3)
    assert [one.split for one in found].count("held_out") == 10 and len(found) >= 12
    assert all(split(canonical(one.graph)) == one.split for one in found)
    assert len({one.key for one in found}) == len(found)
    assert all(" x86-64-avx2 " in one.prompt[1].content and "compile" not in one.prompt[1].content for one in found)
    assert tasks(tmp_path / "tasks.jsonl", "cpu", "x86-64-avx2", 10, seed=4) == found
    assert tasks(tmp_path / "again.jsonl", "cpu", "x86-64-avx2", 10, seed=3) == found


def test_the_generator_in_a_models_place():
    one = msgspec.structs.replace(task(), graph=sample(Random(0), 1))
    (answers,), _ = engine("generator", "", "cpu", resolve()[0]).generate([one], 3)
    assert len(answers) == 3 and answers[0].text.startswith("```cpp\n//")


def test_a_page_says_what_could_not_be_opened():
    lost = {"key": "1", "split": "held_pairs", "level": 2, "writable": False, "outcome": "not_opened", "seconds": 1.0}
    judged = {"key": "2", "split": "held_out", "level": 2, "writable": True, "outcome": "judged", "seconds": 2.0}
    judged |= {"tokens": 300, "attempts": [{"outcome": "compile_error", "why": "kernel.cu L12 no x7"}]}
    text = page({}, [lost, judged | {"first": False, "best": False, "best_ms": None}])
    assert "| withheld pairs | 1 | 0% | 0% |" in text and "| 2 steps | 2 | 0% | 0% |" in text
    assert "- 1 tasks not opened" in text and "- 1 × kernel.cu L# no x#" in text
