"""Estimates what a stage takes from its options: seconds, disk, evaluations, tokens. Reads nothing but a base model's
size."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_assistant_training.pipeline.kinds import KINDS

#: Parameters of the model for which training and decoding were measured.
MEASURED_PARAMETERS = 11.3e6
#: Dense bf16 operations a second of an H200 (its data sheet), and the share of them that training is assumed to reach.
PEAK, REACHED = 989e12, 0.35
#: Bytes per second of an H200's memory (its data sheet), which bounds decoding of a large model.
MEMORY = 4.8e12
#: Operations per token and parameter in training; LoRA needs no gradients of the weights.
FULL, LORA = 6.0, 4.0
#: Bytes of a stored episode or label, and of a verdict on a candidate task (docs/tasks.md).
ROW_BYTES, VERDICT_BYTES = 8e3, 5e3
#: Shares: of candidate tasks that are kept (docs/tasks.md), of episodes whose best candidate is evaluated in the full
#: tier, and of candidates that were not evaluated before, for tasks of few operators (a run of `smoke`).
KEPT, FULL_SHARE, FRESH = 0.6, 0.5, 0.15
#: Seconds from a stage's start to its first step: imports, workers, graphs; on a GPU layers compile too.
BEGIN_S = {"cpu": 5.0, "cuda": 15.0}
SHAPES = {"shipped": 12.6e6, "small": 1.4e6, "tiny": 0.84e6}
#: Episodes that a stage learns from if no earlier stage gives their number.
GIVEN = {"sft": 5000.0, "critic": 256.0}
#: Tokens of a prompt, a reply and an observation, and usual replies of an episode. Measured on episodes of the shipped
#: model; the values of the full profile are guesses.
CONVERSATIONS = {"compact": (700, 300, 40, 3), "full": (5000, 1200, 700, 10)}
#: A number that no stage reaches.
_UNBOUNDED = 1e18


@dataclass(frozen=True)
class Rate:
    """`value` per second; `where` describes what was measured, and on which machine."""

    value: float
    where: str
    measured: bool = True


_H200 = "one H200, 16 cores"
_CORES = "two cores by processor time (docs/training_recipes.md)"
_EXPORT = Rate(50e6, "parameters exported: not measured", False)
#: How fast the parts of stages are. A rate that was not measured names the assumption behind it. Numbers in brackets
#: are experiments of docs/experiments.md.
RATES = {
    ("pretrain", "cuda"): Rate(1.55e6, f"tokens of pre-training, 11.3 M parameters, {_H200} (63)"),
    ("tune", "cuda"): Rate(140e3, f"tokens of fine-tuning, 11.3 M parameters, {_H200} (42)"),
    ("decode", "cuda"): Rate(157e3, f"generated tokens, 11.3 M parameters, 512 rows, {_H200} (40)"),
    ("episodes", "cuda"): Rate(10.9, f"lessons played, {_H200} (63)"),
    ("quick", "cuda"): Rate(21.9, f"quick evaluations, {_H200} (20)"),
    ("full", "cuda"): Rate(1 / 1.26, f"full evaluations, {_H200} (20)"),
    ("open", "cuda"): Rate(0.43, f"tasks opened, a worker of ten, {_H200} (63)"),
    ("filter", "cuda"): Rate(1.6, f"candidates for tasks, a worker of twelve, {_H200} (60)"),
    ("export", "cuda"): _EXPORT,
    ("pretrain", "cpu"): Rate(520.0, f"tokens of training, 11.3 M parameters, {_CORES}"),
    ("tune", "cpu"): Rate(520.0, f"tokens of training, 11.3 M parameters, {_CORES}"),
    ("decode", "cpu"): Rate(140.0, f"generated tokens, 11.3 M parameters, 16 rows, {_CORES}"),
    ("episodes", "cpu"): Rate(3.4, "lessons played, 8 of 16 cores (41)"),
    ("quick", "cpu"): Rate(0.45, "evaluations, two busy cores (docs/tasks.md)"),
    ("full", "cpu"): Rate(0.2, "full evaluations: not measured, half of the quick ones", False),
    ("filter", "cpu"): Rate(1.33, "candidates for tasks, two busy cores (docs/tasks.md)"),
    ("export", "cpu"): _EXPORT,
}


def rate(what: str, target: str, parameters: float, *, lora: bool = False) -> Rate:
    """The rate for a model of `parameters`. Training and decoding are scaled with its size; on a GPU, beyond ten times
    the measured size, they are computed from the H200's data sheet."""
    if what == "head":
        whole = rate("tune", target, parameters, lora=lora)
        return Rate(3 * whole.value, f"{whole.where}, three times as fast for the value head alone", False)
    known = RATES[what, target]
    if what not in ("pretrain", "tune", "decode"):
        return known
    # On a GPU a small model is bound by kernel launches and the host, and gets no faster; on a CPU it does.
    scale = MEASURED_PARAMETERS / parameters if target == "cpu" else min(MEASURED_PARAMETERS / parameters, 1.0)
    if abs(scale - 1) < 0.1:
        return known
    if target == "cpu" or scale >= 0.1:
        return Rate(known.value * scale, f"{known.where}, scaled to {parameters / 1e6:.1f} M parameters", False)
    size = f"{parameters / 1e9:.1f} G parameters"
    if what == "decode":
        where = f"generated tokens, {size}, 64 rows, half of the memory's rate"
        return Rate(64 * MEMORY / (2 * parameters) / 2, where, False)
    operations = (LORA if lora else FULL) * parameters
    return Rate(PEAK * REACHED / operations, f"tokens of training, {size}, {REACHED:.0%} of the peak", False)


@dataclass(frozen=True)
class StageCost:
    """`seconds` before the limit is applied, `disk` in bytes. `episodes` is how many the stage produces; `rates` are
    those that the estimate uses."""

    seconds: float
    disk: float
    evaluations: float
    tokens: float
    episodes: float = 0.0
    rates: tuple[Rate, ...] = ()

    def within(self, limit: float) -> StageCost:
        """The part of the cost that fits into the limit."""
        share = min(1.0, limit / self.seconds) if self.seconds else 1.0
        counted = {name: getattr(self, name) * share for name in ("seconds", "evaluations", "tokens", "episodes")}
        return replace(self, **counted)


def cost(
    kind: str, options: Any, target: str, parameters: float, *, lora: bool = False, given: float = 0.0
) -> StageCost:
    """The cost of a stage with these options, of the class that its kind has. `lora` says that an earlier stage trains
    adapters; `given` is the number of episodes from earlier stages that this one learns from."""
    lora = lora or bool(getattr(options, "lora", 0))
    # A checkpoint in bfloat16; one of adapters is assumed to have a hundredth of the bytes.
    checkpoint = 2 * parameters * (0.01 if lora else 1.0)
    counts, rows, disk = _work(kind, options, parameters, checkpoint, given or GIVEN.get(kind, 0.0))
    # On the CPU the rate of evaluations includes opening tasks.
    rates = {
        what: rate(what, target, parameters, lora=lora)
        for what, count in counts.items()
        if count and (what, target) != ("open", "cpu")
    }
    parallel = {"filter": options.workers, "open": options.workers} if hasattr(options, "workers") else {}
    seconds = sum(counts[what] / one.value / max(parallel.get(what, 1), 1) for what, one in rates.items())
    # Playing, most of the time of `rft`, is not bounded by its clock.
    clock = 0.0 if kind == "rft" else getattr(options, "seconds", 0.0)
    share = min(1.0, clock / seconds) if clock and seconds else 1.0
    if seconds * share > _UNBOUNDED / 1e6:
        share = 0.0  # nothing bounds it
    counts = {what: count * share for what, count in counts.items()}
    tokens = sum(counts.get(what, 0.0) for what in ("pretrain", "tune", "head", "decode"))
    evaluations = counts.get("filter", 0.0) + counts.get("quick", 0.0) + 2 * counts.get("episodes", 0.0)
    disk += rows * share * (VERDICT_BYTES if kind == "synth" else ROW_BYTES)
    # A time limit that counts from each start includes the startup.
    begin = 0.0 if KINDS[kind].timed == "each start" else BEGIN_S["cpu" if kind == "export" else target]
    return StageCost(seconds * share + begin, disk, evaluations, tokens, rows * share, tuple(rates.values()))


def parameters_of(base: str, shape: str | None) -> float:
    """The number of parameters of a base, without loading it: from the size of a folder's weights, or from its name
    (`-7B`)."""
    path, match = Path(base), re.search(r"(\d+(?:\.\d+)?)([bm])\b", base.lower())
    if base == "scratch":
        return SHAPES.get(shape or "shipped", MEASURED_PARAMETERS)
    if path.is_dir():
        config = path / "config.json"
        single = config.is_file() and re.search(r'"(torch_)?dtype": *"float32"', config.read_text(encoding="utf-8"))
        size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        return size / (4 if single else 2) or MEASURED_PARAMETERS
    if match and not path.is_file():
        return float(match[1]) * (1e9 if match[2] == "b" else 1e6)
    return MEASURED_PARAMETERS


def _work(
    kind: str, o: Any, parameters: float, checkpoint: float, given: float
) -> tuple[dict[str, float], float, float]:
    """What a stage with the options `o` does without a limit of time: how often the work of each rate, the rows that it
    stores, and other bytes on disk."""
    prompt, reply, observation, usual = CONVERSATIONS[getattr(o, "profile", None) or "compact"]
    turns = min(getattr(o, "turns", usual) or 1, usual)
    length = min(prompt + turns * (reply + observation), getattr(o, "context", None) or _UNBOUNDED)
    rows: float
    match kind:
        case "synth":
            rows = min(o.count / KEPT, o.most)
            return {"filter": rows}, rows, 0.0
        case "label":
            rows = min(o.tasks_most * o.candidates, o.rows_most)
            return {"quick": rows}, rows, 0.0
        case "pretrain":
            # The model, the one saved at half of the time, and a checkpoint with two moments in float32.
            return {"pretrain": o.steps * o.rows * o.length or _UNBOUNDED}, 0.0, 16 * parameters
        case "episodes":
            rows = o.tasks * o.lessons * o.processes
            return {"episodes": rows}, rows, 0.0
        case "export":
            return {"export": parameters}, 0.0, (2 if o.form == "folder" else 1.1) * parameters
        case "sft":
            examples = given / max(1 - o.pairs_share, 0.01) * o.epochs
            examples = o.steps * o.batch * o.accumulate if o.steps > 0 else examples
            return {"tune": examples * length}, 0.0, 2 * checkpoint + 8 * parameters
        case "critic":
            return {"head": given * length * o.epochs}, 0.0, 3 * checkpoint
    # Stages that play episodes.
    attempts = o.attempts if kind == "eval" else o.episodes
    tasks = max(1, len(o.base)) * o.tasks if kind == "eval" else getattr(o, "iterations", 1) * (o.prompts or o.tasks)
    rows = 0 if getattr(o, "trajectories", ()) else tasks * attempts
    counts = {
        "decode": rows * turns * min(reply, o.reply or reply),
        "quick": rows * turns * (FRESH if o.only else 1.0),
        "full": 0.0 if o.reward == "correctness" else FULL_SHARE * rows,
        # A task is opened for the prompt and again for its candidates.
        "open": 2 * tasks if rows else 0.0,
    }
    if kind == "eval":
        return counts, rows, 0.0
    if kind == "rft":
        kept = tasks * min(o.most_each, attempts) / 2
        return counts | {"tune": kept * length * o.epochs}, rows, 2 * checkpoint
    counts["quick"] += (o.iterations // max(o.evaluate_every, 1) + 1) * o.held_out
    # The first checkpoint and the newest two are kept.
    return counts | {"tune": rows * length * o.epochs}, rows, 3 * checkpoint
