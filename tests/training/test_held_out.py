"""Held-out tasks, the comparison of answers with right ones, and the imports of the processes that make tasks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from kernel_assistant.records.canonical import canonical
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.episodes.lines import read_lines
from kernel_assistant_training.folder import save_folder
from kernel_assistant_training.greedy import GreedyAnswer, judge, judge_greedy
from kernel_assistant_training.held_out import HeldOutMaker, read_tasks
from kernel_assistant_training.synth import split
from kernel_assistant_training.tokenizer import load, vocabulary_size


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("held_out") / "held_out.jsonl"
    with HeldOutMaker(path, 3) as maker:
        maker.wait()
    return path


def test_tasks_are_held_out_and_have_answers(file):
    tasks = read_tasks(file)
    assert [task.target for task in tasks] == ["cuda"] * 3 + ["cpu"] * 3
    for task in tasks:
        assert split(canonical(task.graph)) == "held_out"
        assert canonical(task.graph).text() in task.prompt[1].content
        assert task.answers and "// launch:" in task.answers[0]
    assert len({canonical(task.graph).key() for task in tasks[:3]}) == 3


def test_an_answer_is_compared_with_right_ones(file):
    task = read_tasks(file)[-1]
    source = task.answers[0].strip()
    right = judge(task, f"```cpp\n{source}\n```\n")
    assert right.same and right.same_form and not right.problem
    other = judge(task, f"```cpp\n{re.sub(r'=[0-9]+', '=3', source, count=1)}\n```\n")
    assert other.same_form and not other.same
    wrong = judge(task, "```cpp\n// launch: k0(x99)\nint x;\n```\n")
    assert not wrong.same_form and "x99" in wrong.problem
    assert judge(task, "I cannot").problem == "no code"


def test_greedy_answers_are_kept_with_their_tasks(file, tmp_path):
    torch.manual_seed(0)
    shape = replace(SMALL, vocabulary=vocabulary_size(load()), width=64, inner=128, layers=1, heads=1)
    save_folder(Llama(shape), tmp_path / "model")
    figures = judge_greedy(tmp_path / "model", file, tmp_path / "answers.jsonl", torch.device("cpu"), most=12)
    assert figures == {key: {"tasks": 3, "same": 0, "same_form": 0, "readable": 0} for key in ("cuda", "cpu")}
    answered = list(read_lines(tmp_path / "answers.jsonl", GreedyAnswer))
    assert [one.task for one in answered] == read_tasks(file)
    assert all(one.answer and one.problem == "no code" for one in answered)
