"""Computes a model's greedy answer and other likely answers. Compares greedy answers to held-out tasks with right
answers.

Whether an answer is correct, only the environment can find out by running it. This module compares the text with known
right answers, and parses its launch lines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from kernel_assistant.agent.calls import code_of
from kernel_assistant.agent.directives import UNITS, DirectiveError, candidate_from
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.codec import Record
from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.llama.best_first import START, WIDTH, BestFirstSearch
from kernel_assistant.serving.template import TURN_END
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.decode import Decoder, GenerationRequest, Reply
from kernel_assistant_training.folder import load_folder
from kernel_assistant_training.held_out import HeldOut, read_tasks
from kernel_assistant_training.reply import MOST_REPLY
from kernel_assistant_training.source import TARGETS
from kernel_assistant_training.tokenizer import id_of, load

#: A number that is no part of a name.
_NUMBER = re.compile(r"(?<![\w.])\d+")
#: Conversations at once, if nothing else is asked for.
ROWS = {"cuda": 512, "cpu": 32}
#: The empty reply, for a beginning that is already a complete answer.
_NOTHING = Reply([], [], ended=True, others=[])


class GreedyAnswer(Record, frozen=True, kw_only=True):
    """A model's greedy answer to a held-out task. `same`: whether its code equals one of the task's answers;
    `same_form`: whether it equals one if all numbers are replaced by 0. `problem` says why the launch lines cannot be
    parsed; empty if they can."""

    task: HeldOut
    answer: str
    same: bool
    same_form: bool
    problem: str


def judge_greedy(folder: Path, file: Path, out: Path, device: torch.device, most: int = MOST_REPLY) -> dict[str, Any]:
    """Answers the tasks of `file` with the model in `folder` and writes the answers to `out`, one JSON text a line.
    Returns for each target the numbers `tasks`, `same`, `same_form` and `readable` (answers without a `problem`).
    Answers have at most `most` tokens."""
    tasks = read_tasks(file)
    # All in one batch, because a step costs the same for many rows.
    answers = greedy(folder, [task.prompt for task in tasks], device, most) if tasks else []
    judged = [judge(task, answer) for task, answer in zip(tasks, answers, strict=True)]
    out.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in judged))
    return {target: _figures([one for one in judged if one.task.target == target]) for target in TARGETS}


def _figures(judged: Sequence[GreedyAnswer]) -> dict[str, int]:
    return {
        "tasks": len(judged),
        "same": sum(one.same for one in judged),
        "same_form": sum(one.same_form for one in judged),
        "readable": sum(not one.problem for one in judged),
    }


def judge(task: HeldOut, answer: str) -> GreedyAnswer:
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
    return GreedyAnswer(
        task=task,
        answer=answer,
        same=written in {one.strip() for one in task.answers},
        same_form=_form(written) in {_form(one) for one in task.answers},
        problem=problem,
    )


def _form(source: str) -> str:
    return _NUMBER.sub("0", source.strip())


def greedy(
    folder: Path, prompts: Sequence[Sequence[Message]], device: torch.device, most: int = MOST_REPLY
) -> list[str]:
    """Returns the model's greedy answer of at most `most` tokens to each prompt, as text without the end token."""
    answers, _ = likeliest(folder, prompts, 1, device=device, rows=len(prompts), most=most)
    return [text for ((text, _),) in answers]


def likeliest(
    folder: Path,
    prompts: Sequence[Sequence[Message]],
    count: int,
    *,
    device: torch.device | None = None,
    rows: int = 0,
    most: int = MOST_REPLY,
) -> tuple[list[list[tuple[str, int]]], float]:
    """Returns `count` different answers for each prompt, each as text and number of tokens, and the number of sampled
    tokens per second. The first answer is the greedy one; the others are in the order in which `BestFirstSearch` finds
    them. `rows` prompts are decoded at once (0: as many as the device's default). Without `device` a GPU is used if
    there is one. Answers have at most `most` tokens."""
    tokenizer = load(folder)
    encoder, end = Encoder(tokenizer), id_of(tokenizer, TURN_END)
    encoded = [encoder.prompt(prompt) for prompt in prompts]
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = rows or min(ROWS[device.type], len(encoded))
    context, width = max(map(len, encoded)) + most, WIDTH if count > 1 else 0
    decoder = Decoder(load_folder(folder), end, rows=rows, context=context, device=device, width=width)
    searches, answers = [BestFirstSearch() for _ in encoded], [list[tuple[str, int]]() for _ in encoded]
    began, sampled = time.monotonic(), 0
    for _ in range(count):
        begun = [search.next() or START for search in searches]
        asked = {
            number: GenerationRequest([*encoded[number], *one.ids], temperature=0.0, most=most - len(one.ids))
            for number, one in enumerate(begun)
            if one.ids[-1:] != (end,) and len(one.ids) < most
        }
        replies = dict(zip(asked, decoder.decode(list(asked.values())), strict=True))
        for number, one in enumerate(begun):
            reply = replies.get(number, _NOTHING)
            ids = [*one.ids, *reply.ids]
            others = [*([()] * len(one.ids)), *reply.others]
            searches[number].add(one, ids, [*one.logprobs, *reply.logprobs], others)
            text = tokenizer.decode(ids[:-1] if ids[-1] == end else ids, skip_special_tokens=False)
            answers[number].append((text, len(ids)))
            sampled += len(reply.ids)
    return answers, sampled / (time.monotonic() - began)
