"""Held-out tasks with the teacher's answers, and what a model answers to them greedily, all at once.

Whether an answer is right is the judge's to say; here it is compared with the teacher's, and its launch lines are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec
import torch
from transformers import AutoModelForCausalLM

from kernel_assistant.agent.calls import code_of
from kernel_assistant.agent.directives import UNITS, DirectiveError, candidate_from
from kernel_assistant.errors import InternalError
from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.source import TARGETS
from kernel_assistant_training.tokenizer import load

MOST_TOKENS = 640
#: Answers of the teacher that one is compared with.
_ANSWERS = 24


class HeldOut(Record, frozen=True, kw_only=True):
    """A task: its graph, the prompt, and what the teacher answers, best guess first."""

    target: str
    split: str
    graph: OpGraph
    prompt: tuple[Message, ...]
    answers: tuple[str, ...]


class Answered(Record, frozen=True, kw_only=True):
    """`same` as one of the teacher's answers, or but for its constants; `problem` is why its lines cannot be read."""

    task: HeldOut
    answer: str
    same: bool
    same_form: bool
    problem: str


def tasks(target: str, count: int, seed: int) -> list[HeldOut]:
    """`count` different ones of the held-out split, of all levels alike."""
    from kernel_assistant_training.synth import prompt, sample, split
    from kernel_assistant_training.teacher import answers

    random, found = Random(f"held out {target} {seed}"), dict[str, HeldOut]()
    while len(found) < count:
        graph = sample(random, 1 + len(found) % 5)
        task = canonical(graph)
        if split(task) != "held_out" or task.key() in found:
            continue
        written = answers(task, target, random, _ANSWERS)
        if written:
            found[task.key()] = HeldOut(
                target=target,
                split="held_out",
                graph=graph,
                prompt=tuple(prompt(task, target, random)),
                answers=tuple(answer.source for answer in written),
            )
    return list(found.values())


class HeldOutMaker:
    """Writes `count` tasks of each target to a file, in a process of its own. A context manager."""

    def __init__(self, file: Path, count: int, seed: int = 0) -> None:
        self._process = get_context("spawn").Process(target=write_tasks, args=(file, count, seed), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def wait(self) -> None:
        """Until the file is there. Raises InternalError where it is not."""
        self._process.join()
        if self._process.exitcode:
            raise InternalError("held-out tasks were not made", "see the message of that process")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


def write_tasks(file: Path, count: int, seed: int) -> None:
    found = [task for target in TARGETS for task in tasks(target, count, seed)]
    file.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in found))


def judge_greedy(folder: Path, file: Path, out: Path, device: torch.device) -> dict[str, Any]:
    """Answers to the tasks of `file`, written to `out`; by target, the shares of what `Answered` says."""
    found = [msgspec.json.decode(line, type=HeldOut) for line in file.read_bytes().splitlines()]
    figures: dict[str, Any] = {}
    with out.open("wb") as lines:
        for target in TARGETS:
            chosen = [task for task in found if task.target == target]
            answers = greedy(folder, [task.prompt for task in chosen], device) if chosen else []
            judged = [judge(task, answer) for task, answer in zip(chosen, answers, strict=True)]
            lines.writelines(msgspec.json.encode(one) + b"\n" for one in judged)
            figures[target] = {
                "tasks": len(judged),
                "same": sum(one.same for one in judged),
                "same_form": sum(one.same_form for one in judged),
                "readable": sum(not one.problem for one in judged),
            }
    return figures


def judge(task: HeldOut, answer: str) -> Answered:
    code = code_of(answer)
    problem = "no code"
    if code is not None:
        try:
            files = {"kernel" + UNITS[task.target][0]: code}
            candidate_from(files, task.graph, task.target, canonical(task.graph))
            problem = ""
        except DirectiveError as error:
            problem = str(error)
    written = (code or "").strip()
    return Answered(
        task=task,
        answer=answer,
        same=written in {one.strip() for one in task.answers},
        same_form=_form(written) in {_form(one) for one in task.answers},
        problem=problem,
    )


def _form(source: str) -> str:
    return "\n".join(line for line in source.strip().splitlines() if not line.startswith("// set:"))


def greedy(
    folder: Path, prompts: Sequence[Sequence[Message]], device: torch.device, most: int = MOST_TOKENS
) -> list[str]:
    """One answer each, without its end token. In one batch, prompts filled up on the left."""
    tokenizer = load()
    encoder = Encoder(tokenizer)
    ids = [encoder.prompt(prompt) for prompt in prompts]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.to(device).eval()
    filler, longest = model.config.pad_token_id, max(map(len, ids))
    padded = torch.tensor([[filler] * (longest - len(one)) + one for one in ids], device=device)
    shown = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in ids], device=device)
    with torch.inference_mode():
        made = model.generate(padded, attention_mask=shown, max_new_tokens=most, do_sample=False)
    answers = []
    for row in made[:, longest:].tolist():
        end = row.index(model.config.eos_token_id) if model.config.eos_token_id in row else len(row)
        answers.append(str(tokenizer.decode(row[:end], skip_special_tokens=False)))
    return answers


def read(file: Path) -> list[Answered]:
    """What `judge_greedy` wrote."""
    return [msgspec.json.decode(line, type=Answered) for line in file.read_bytes().splitlines()]
