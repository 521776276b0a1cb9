"""Makes conversations in which a model writes a PyTorch task from a list of operators, and questions that ask a small
model for such a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from kernel_assistant.records import OpGraph
from kernel_assistant.records.canonical import canonical
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.synth.calls import Unwritten
from kernel_assistant_training.synth.memory import elements
from kernel_assistant_training.synth.readable import operators, readable
from kernel_assistant_training.synth.sampler import input_shape, sample
from kernel_assistant_training.synth.sizes import size_text
from kernel_assistant_training.synth.split import split_of

SYSTEM = "Compose a PyTorch task of these operators. Answer: one fenced file with Model, get_inputs, get_init_inputs."
LEAST, MOST = 2, 5
#: Most operators of a graph (views and casts included) and most characters of a text. Longer tasks are left out, so
#: that an answer has at most 400 tokens of the shipped vocabulary.
NODES, CHARACTERS = 12, 700
#: Weights of tasks with one to four steps.
LEVELS = (0.2, 0.4, 0.3, 0.1)
#: Most tasks with the same canonical key in one stream.
CAP = 4
_DTYPES = {"f32": 0.7, "bf16": 0.2, "f16": 0.1}
#: Operators that are asked for only with certain ranks of the first input, the batch dimension included.
_RANKS = {
    **dict.fromkeys(("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d"), (4,)),
    **dict.fromkeys(("avg_pool3d", "max_pool3d"), (5,)),
    **dict.fromkeys(("group_norm", "instance_norm"), (3, 4, 5)),
    "batch_norm": (2, 3, 4, 5),
}
#: Operators that questions name, with weights that nearly match their frequencies in the stream's tasks.
_ASKED = {
    "mul": 8, "add": 8, "sub": 4, "div": 2, "mean": 4, "pow": 2, "sigmoid": 4, "tanh": 4, "softmax": 5, "abs": 3,
    "gelu": 4, "layer_norm": 4, "where": 2, "sum": 3, "cumsum": 3, "relu": 4, "amax": 2, "batch_norm": 3,
    "log_softmax": 2, "masked_fill": 2, "softplus": 3, "silu": 4, "neg": 2, "clamp": 3, "rms_norm": 4, "sqrt": 1,
    "avg_pool2d": 4, "group_norm": 4, "exp": 1, "logsumexp": 2, "max_pool2d": 4, "square": 2, "leaky_relu": 3,
    "prelu": 2, "instance_norm": 3, "linalg_vector_norm": 1, "hardsigmoid": 2, "erf": 2, "minimum": 2, "maximum": 2,
    "hardswish": 2, "cummax": 1, "cummin": 1, "log_sigmoid": 2, "sin": 2, "cos": 1, "relu6": 2, "amin": 1, "mish": 2,
    "elu": 2, "selu": 1, "max_pool3d": 3, "avg_pool3d": 1, "adaptive_avg_pool2d": 1, "glu": 1, "hardtanh": 2,
}  # fmt: skip


def question(names: Sequence[str], shape: Sequence[str], dtype: str) -> list[Message]:
    """Returns the system and the user message that ask for a task of the operators `names`. `shape` is the shape of the
    largest input, with B for the batch size."""
    asked = f"{', '.join(names)}\n[{','.join(shape)}] {dtype}"
    return [Message(role="system", content=SYSTEM), Message(role="user", content=asked)]


def asked(random: Random) -> list[Message]:
    """Returns a question for a task of random operators, also for combinations that no training task has."""
    shape = input_shape(random)
    fitting = [name for name in _ASKED if len(shape) in _RANKS.get(name, (len(shape),))]
    names: list[str] = []
    count = random.choices(range(LEAST, MOST + 1), (4, 3, 2, 1))[0]
    while len(names) < count:
        (name,) = random.choices(fitting, [_ASKED[one] for one in fitting])
        names += [name] if name not in names else []
    (dtype,) = random.choices(list(_DTYPES), list(_DTYPES.values()))
    return question(names, tuple(map(size_text, shape)), dtype)


def compositions(seed: int) -> Iterator[list[Message]]:
    """Yields conversations (system, user, assistant) without end. The user asks for a task of given operators, and the
    assistant answers with a training task."""
    random = Random(f"compositions {seed}")
    for graph, text in drawn(random, Counter()):
        names = list(operators(graph))
        if random.random() < 0.5:
            random.shuffle(names)
        given = [value.spec for value in graph.inputs if value.kind == "input"]
        spec = max(given, key=lambda one: elements(one, graph.dims))
        reply = Message(role="assistant", content=f"```python\n{text}```")
        yield [*question(names, spec.shape, spec.dtype), reply]


def drawn(random: Random, yields: Counter[str]) -> Iterator[tuple[OpGraph, str]]:
    """Yields training tasks without end: graphs with their source texts. `yields` counts the drawn tasks, the kept
    tasks and, by reason, the tasks that are left out."""
    seen = Counter[str]()
    while True:
        (level,) = random.choices(range(1, 1 + len(LEVELS)), LEVELS)
        graph = sample(random, level)
        yields["drawn"] += 1
        try:
            text = _text(graph)
            _taken(graph, seen)
        except _LeftOut as why:
            yields[str(why)] += 1
            continue
        yields["kept"] += 1
        yield graph, text


class _LeftOut(Exception):
    """Raised if the drawn task is not used; the message is the reason."""


def _text(graph: OpGraph) -> str:
    if len(graph.nodes) > NODES:
        raise _LeftOut("too long")
    if not LEAST <= len(operators(graph)) <= MOST:
        raise _LeftOut("too few or too many operators")
    try:
        text = readable(graph)
    except Unwritten as unwritten:
        raise _LeftOut("an operator without a text") from unwritten
    if len(text) > CHARACTERS:
        raise _LeftOut("too long")
    return text


def _taken(graph: OpGraph, seen: Counter[str]) -> None:
    key = canonical(graph).key()
    if seen[key] >= CAP:
        raise _LeftOut("seen too often")
    part = split_of(graph, key)
    if part != "train":
        raise _LeftOut(part)
    seen[key] += 1
