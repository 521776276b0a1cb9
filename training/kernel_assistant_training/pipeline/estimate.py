"""What a stage takes, by its options: seconds, disk, evaluations, tokens. Pure but for the size of a base model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_assistant_training.pipeline.kinds import TIMED_EACH_START
from kernel_assistant_training.pipeline.rates import MEASURED_PARAMETERS, Rate, rate

#: Kilobytes of an episode's line; the share of episodes whose best candidate goes on to the full protocol.
LINE_KB, FULL_SHARE = 8.0, 0.5
#: Share of the candidates for tasks of few operators that nobody judged before, in a run of `smoke`.
FRESH = 0.15
#: Kilobytes of a candidate's verdict (docs/tasks.md), and the share that is kept (the same).
VERDICT_KB, KEPT = 5.0, 0.6
#: Seconds from a stage's start to its first step: imports, workers, graphs; on a GPU layers compile too.
BEGIN_S = {"cpu": 5.0, "cuda": 15.0}
SHAPES = {"shipped": 11.3e6, "small": 0.94e6, "tiny": 0.51e6}
#: Episodes that a stage learns from where no stage before it says how many.
GIVEN = {"sft": 5000.0, "critic": 256.0}


@dataclass(frozen=True)
class Talk:
    """Tokens of a prompt, of a reply and of what comes back; replies of an episode that may have more."""

    prompt: int
    reply: int
    said: int
    turns: int


#: Of episodes of the shipped model; of the full profile nothing was measured.
TALKS = {"compact": Talk(700, 300, 40, 3), "full": Talk(5000, 1200, 700, 10)}


@dataclass(frozen=True)
class Cost:
    """`seconds` without a bound by the limit, `disk` in bytes; `rates` are those that it was computed by, `episodes`
    those that it leaves."""

    seconds: float = 0.0
    disk: float = 0.0
    evaluations: float = 0.0
    tokens: float = 0.0
    rates: tuple[Rate, ...] = ()
    episodes: float = 0.0


@dataclass
class Model:
    """`parameters` of the model that is trained; `lora` where only adapters are."""

    parameters: float
    target: str
    lora: bool = False
    used: list[Rate] = field(default_factory=list)

    def seconds(self, what: str, count: float) -> float:
        found = rate(what, self.target, self.parameters, lora=self.lora)
        if count and found not in self.used:
            self.used.append(found)
        return count / found.value

    def bytes_each(self) -> float:
        """Of a checkpoint in bfloat16; adapters are about a hundredth."""
        return 2 * self.parameters * (0.01 if self.lora else 1.0)


def cost(
    kind: str, options: Mapping[str, Any], target: str, parameters: float, *, lora: bool = False, given: float = 0.0
) -> Cost:
    """Of a stage with all its options, defaults too. `lora` where the stages before it train adapters; `given` are
    their episodes that it learns from."""
    model = Model(parameters, target, lora=lora or bool(options.get("lora")))
    found = _KINDS[kind]({**options, "given": given or GIVEN.get(kind, 0.0)}, model)
    # A clock of one start counts from its beginning.
    begin = 0.0 if kind == "export" or kind in TIMED_EACH_START else BEGIN_S[target]
    return replace(found, seconds=found.seconds + begin, rates=tuple(model.used))


def parameters_of(base: str, shape: str | None) -> float:
    """Of a base, as far as it can be told without loading it: a folder's weights, a name that says it (`-7B`)."""
    if base == "scratch":
        return SHAPES.get(shape or "shipped", MEASURED_PARAMETERS)
    path = Path(base)
    if path.is_dir():
        return (
            sum(file.stat().st_size for file in path.glob("*.safetensors")) / _bytes_each(path) or MEASURED_PARAMETERS
        )
    said = re.search(r"(\d+(?:\.\d+)?)([bm])\b", base.lower())
    if said and not path.is_file():
        return float(said[1]) * (1e9 if said[2] == "b" else 1e6)
    return MEASURED_PARAMETERS


def _bytes_each(folder: Path) -> int:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 2
    return 4 if config.get("dtype", config.get("torch_dtype")) == "float32" else 2


def _synth(options: Mapping[str, Any], model: Model) -> Cost:
    candidates = min(_number(options, "count") / KEPT, _number(options, "most", float("inf")))
    seconds = model.seconds("filter", candidates) / max(_number(options, "workers", 1), 1)
    return Cost(_clock(options, seconds), candidates * VERDICT_KB * 1e3, candidates)


def _label(options: Mapping[str, Any], model: Model) -> Cost:
    tasks = _number(options, "tasks_most", float("inf"))
    clock = _number(options, "seconds", float("inf"))
    count = min(tasks * _number(options, "candidates"), _number(options, "rows_most", float("inf")))
    if count > 1e9:
        count = clock / model.seconds("quick", 1) if clock < float("inf") else 0.0
    return Cost(_clock(options, model.seconds("quick", count)), count * LINE_KB * 1e3, count)


def _pretrain(options: Mapping[str, Any], model: Model) -> Cost:
    step = _number(options, "rows") * _number(options, "length")
    most, clock = _number(options, "steps", 0) * step, _number(options, "seconds")
    second = model.seconds("pretrain", 1)
    tokens = min(most or float("inf"), clock / second)
    # The model, the one of half of the time, and a checkpoint with the optimiser's two moments in float32.
    return Cost(tokens * second, model.parameters * (2 + 2 + 12), 0.0, tokens)


def _episodes(options: Mapping[str, Any], model: Model) -> Cost:
    clock = _number(options, "seconds")
    most = _number(options, "tasks", float("inf")) * _number(options, "lessons", 1) * _number(options, "processes", 1)
    second = model.seconds("episodes", 1)
    count = min(most, clock / second)
    return Cost(count * second, count * LINE_KB * 1e3, 2 * count, episodes=count)


def _sft(options: Mapping[str, Any], model: Model) -> Cost:
    batch = _number(options, "batch") * _number(options, "accumulate", 1)
    steps = _number(options, "steps", -1)
    each = _length({})
    second = model.seconds("tune", 1)
    tokens = steps * batch * each if steps > 0 else _examples(options) * _number(options, "epochs", 1) * each
    clock = _number(options, "seconds", 0)
    tokens = min(tokens, clock / second) if clock else tokens
    return Cost(tokens * second, 2 * model.bytes_each() + 8 * model.parameters, 0.0, tokens)


def _examples(options: Mapping[str, Any]) -> float:
    """Episodes and the pairs beside them."""
    return _number(options, "given") / max(1 - _number(options, "pairs_share", 0.0), 0.01)


def _played(options: Mapping[str, Any], model: Model, iterations: float) -> Cost:
    """Replies and their judging, without learning."""
    count = iterations * _tasks(options) * _number(options, "episodes")
    talk = _talk(options)
    turns = min(_number(options, "turns", 1), talk.turns)
    replies = count * turns * min(talk.reply, _number(options, "reply", talk.reply))
    evaluations = count * turns * (FRESH if options.get("only") else 1.0)
    quick = options.get("reward") == "correctness"
    seconds = model.seconds("decode", replies) + model.seconds("quick", evaluations)
    seconds += 0.0 if quick else model.seconds("full", FULL_SHARE * count)
    if model.target == "cuda":
        # Once for the prompt, once for the candidates; on the CPU it is part of what an evaluation takes.
        opened = 2 * iterations * _tasks(options)
        seconds += model.seconds("open", opened) / max(_number(options, "workers", 1), 1)
    return Cost(seconds, count * LINE_KB * 1e3, evaluations, replies, episodes=count)


def _ppo(options: Mapping[str, Any], model: Model) -> Cost:
    iterations = _number(options, "iterations")
    played = _played(options, model, iterations)
    learned = _length(options) * iterations * _tasks(options) * _number(options, "episodes")
    learned *= _number(options, "epochs", 1)
    looks = iterations // max(_number(options, "evaluate_every", 1), 1) + 1 if _number(options, "held_out", 0) else 0
    evaluated = looks * _number(options, "held_out", 0)
    seconds = played.seconds + model.seconds("tune", learned) + model.seconds("quick", evaluated)
    # The first checkpoint and the last two.
    disk = played.disk + 3 * model.bytes_each()
    return Cost(seconds, disk, played.evaluations + evaluated, played.tokens + learned, episodes=played.episodes)


def _rft(options: Mapping[str, Any], model: Model) -> Cost:
    played = Cost() if options.get("trajectories") else _played(options, model, 1)
    kept = _tasks(options) * min(_number(options, "most_each", 4), _number(options, "episodes")) / 2
    tokens = kept * _length(options) * _number(options, "epochs", 1)
    seconds = played.seconds + model.seconds("tune", tokens)
    disk = played.disk + 2 * model.bytes_each()
    return Cost(seconds, disk, played.evaluations, played.tokens + tokens, episodes=played.episodes)


def _critic(options: Mapping[str, Any], model: Model) -> Cost:
    # The trunk learns nothing.
    tokens = _number(options, "given") * _length(options) * _number(options, "epochs")
    return Cost(model.seconds("tune", tokens) / 3, 3 * model.bytes_each(), 0.0, tokens)


def _eval(options: Mapping[str, Any], model: Model) -> Cost:
    models = max(1, len(options["base"]) if isinstance(options.get("base"), list) else 1)
    return _played({**options, "episodes": _number(options, "attempts", 1)}, model, models)


def _export(options: Mapping[str, Any], model: Model) -> Cost:
    return Cost(5.0 + model.parameters / 50e6, (2 if options.get("form") == "folder" else 1.1) * model.parameters)


def _tasks(options: Mapping[str, Any]) -> float:
    """Of an iteration."""
    return _number(options, "prompts") or _number(options, "tasks")


def _talk(options: Mapping[str, Any]) -> Talk:
    return TALKS[str(options.get("profile") or "compact")]


def _length(options: Mapping[str, Any]) -> float:
    """Tokens of an episode that one learns from."""
    talk = _talk(options)
    whole = talk.prompt + min(_number(options, "turns", talk.turns), talk.turns) * (talk.reply + talk.said)
    return min(whole, _number(options, "context", whole))


def _clock(options: Mapping[str, Any], seconds: float) -> float:
    return min(seconds, _number(options, "seconds", float("inf")))


def _number(options: Mapping[str, Any], name: str, otherwise: float = 0.0) -> float:
    """Of an option; those without a bound are read as text."""
    value = options.get(name)
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"-?\d+(\.\d+)?|inf", value) else otherwise
    return otherwise if value is None else float(value)


_KINDS: Mapping[str, Callable[[Mapping[str, Any], Model], Cost]] = {
    "synth": _synth,
    "label": _label,
    "pretrain": _pretrain,
    "episodes": _episodes,
    "sft": _sft,
    "ppo-single": _ppo,
    "rft": _rft,
    "critic": _critic,
    "ppo-agent": _ppo,
    "eval": _eval,
    "export": _export,
}
