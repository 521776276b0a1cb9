"""Lets a served language model compose tasks: writes the prompt, and parses the model's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from kernel_assistant.policy.client import ModelClient, Request
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.synth import composing
from kernel_assistant_training.tasks.allowed import NotAllowed, check
from kernel_assistant_training.tasks.candidates.crawl import attribution
from kernel_assistant_training.tasks.candidates.operators import Operator
from kernel_assistant_training.tasks.candidates.writing import batch_of
from kernel_assistant_training.tasks.records import TaskText
from kernel_assistant_training.tasks.stream import ASKED
from kernel_assistant_training.tasks.used import plain

#: Operators that a prompt offers, and most operators of a task.
OFFERED, MOST = 24, 5
#: Most tokens of an answer; the answers that a small model is trained on have at most 400.
MAX_TOKENS, MAX_COMPACT_TOKENS = 1500, 512
_FENCE = re.compile(r"```(?:python|py)?\s*\n(.*?)```", re.DOTALL)
_DECLARED = re.compile(r"^#?\s*operators:\s*(.+)$", re.MULTILINE | re.IGNORECASE)

PROMPT = """\
Write one small PyTorch module that composes {count} operators in sequence, as they might meet in a real model.
Choose them from: {offered}.

Answer with one Python file in a ```python fence and nothing else. Its first line is a comment that names the operators
you used, by the names above:
# operators: NAME, NAME
The file has a line `BATCH = 16` at its top level; a class `Model(nn.Module)` whose `__init__` takes no argument and
whose `forward` returns a tensor; a function `get_inputs()` that returns the list of input tensors, made with
torch.randn or torch.rand, with BATCH as first dimension; and a function `get_init_inputs()` that returns [].
The batch stays the first dimension. Nothing is random, in place, moved to a device or printed. Every operator that is
named changes the result.
"""


class Unreadable(Exception):
    """Raised if an answer contains no task. The message says why; equal messages are counted."""


@dataclass(frozen=True)
class Composer:
    """Asks a model for tasks. A `compact` model was trained on the short question of the synthesis; other models get a
    longer prompt."""

    client: ModelClient
    compact: bool = False

    def ask(self, operators: list[Operator], number: int, seed: int, cancelled: Callable[[], bool]) -> TaskText:
        """Asks the model for answer number `number` and returns the task in it. Raises Unreadable if the answer has
        none, and the errors of the client."""
        random = Random(f"composer {seed} {number}")
        if self.compact:
            # Greedy, because the questions already differ and samples of a small model are often broken.
            request = Request(tuple(composing.asked(random)), max_tokens=MAX_COMPACT_TOKENS, temperature=0.0)
        else:
            request = Request((_explained(operators, random),), max_tokens=MAX_TOKENS)
        reply = self.client.complete(request, cancelled)
        return read_answer(reply.content, self.client.name, number, operators)


def _explained(operators: list[Operator], random: Random) -> Message:
    names = sorted({one.name for one in random.sample(operators, min(OFFERED, len(operators)))})
    return Message(role="user", content=PROMPT.format(count=random.randint(2, MOST), offered=", ".join(names)))


def read_answer(answer: str, model: str, number: int, operators: Sequence[Operator] = ()) -> TaskText:
    """Parses an answer and returns its task; nothing is run. `operators` give the full name of each plain name, for the
    attribution. Raises Unreadable if the answer has no task or does something that is not allowed."""
    fences = _FENCE.findall(answer)
    if not fences:
        raise Unreadable("no fence with a file")
    text = fences[-1].strip() + "\n"
    declared = _DECLARED.search(text)
    if declared is None:
        raise Unreadable("names no operators")
    names = tuple(dict.fromkeys(one.strip(" `.") for one in declared[1].split(",") if one.strip(" `.")))
    if not 1 <= len(names) <= MOST:
        raise Unreadable(f"names {len(names)} operators")
    if batch_of(text) is None:
        raise Unreadable("has no line BATCH = …")
    for needed in ("class Model(", "def get_inputs(", "def get_init_inputs("):
        if needed not in text:
            raise Unreadable(f"has no {needed.strip('(')}")
    try:
        check(text)
    except NotAllowed as error:
        raise Unreadable(error.kind) from error
    full = _full_names(operators)
    known = (name if name.startswith("torch.") else full.get(plain(name), "") for name in names)
    origin = (f"composed by the model {model}", *(attribution(name) for name in known if name))
    return TaskText(number=ASKED + number, source="model", operators=names, attribution=origin, text=text)


def _full_names(operators: Sequence[Operator]) -> dict[str, str]:
    """Returns plain name → full name of an operator of torch, without overload; tensor methods take precedence."""
    torch_names = sorted((one.name for one in operators if one.name.startswith("torch.")), reverse=True)
    whole = (".".join(name.split(".")[:3]) if name.startswith("torch.Tensor.") else name for name in torch_names)
    return {plain(name): name for name in whole}


def asked(
    composer: Composer,
    operators: list[Operator],
    seed: int,
    numbers: Iterator[int],
    cancelled: Callable[[], bool],
    unreadable: Callable[[str], None],
) -> Iterator[TaskText]:
    """Yields the tasks in the model's answers, one for each of `numbers`. If an answer contains no task, `unreadable`
    is called with the reason instead."""
    for number in numbers:
        try:
            yield composer.ask(operators, number, seed, cancelled)
        except Unreadable as error:
            unreadable(str(error))
