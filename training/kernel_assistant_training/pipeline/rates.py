"""How fast what a stage consists of is, for plans: figures with the machine that they were measured on.

A rate that was not measured says what it is assumed from. Numbers are experiments of docs/experiments.md.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Parameters of the model that the measured rates of training and decoding are of.
MEASURED_PARAMETERS = 11.3e6
#: Dense bf16 operations a second of an H200 (its data sheet), and the share of them that training is assumed to reach.
PEAK, REACHED = 989e12, 0.35
#: Bytes a second of an H200's memory (its data sheet): what decoding of a large model reads its weights with.
MEMORY = 4.8e12
#: Operations of a token in training, a parameter; LoRA needs no gradients of the weights.
FULL, LORA = 6.0, 4.0


@dataclass(frozen=True)
class Rate:
    """`value` a second; `where` it is from."""

    value: float
    where: str
    measured: bool = True


_H200 = "one H200, 16 cores"
_CORES = "two cores by processor time (docs/training_recipes.md)"
RATES = {
    ("pretrain", "cuda"): Rate(1.55e6, f"tokens of pre-training, 11.3 M parameters, {_H200} (63)"),
    ("tune", "cuda"): Rate(140e3, f"tokens of fine-tuning, 11.3 M parameters, {_H200} (42)"),
    ("decode", "cuda"): Rate(157e3, f"generated tokens, 11.3 M parameters, 512 rows, {_H200} (40)"),
    ("episodes", "cuda"): Rate(10.9, f"episodes of the teacher, {_H200} (63)"),
    ("quick", "cuda"): Rate(21.9, f"quick evaluations, {_H200} (20)"),
    ("full", "cuda"): Rate(1 / 1.26, f"full evaluations, {_H200} (20)"),
    ("open", "cuda"): Rate(0.43, f"tasks opened, a worker of ten, {_H200} (63)"),
    ("filter", "cuda"): Rate(1.6, f"candidates for tasks, a worker of twelve, {_H200} (60)"),
    ("pretrain", "cpu"): Rate(520.0, f"tokens of training, 11.3 M parameters, {_CORES}"),
    ("tune", "cpu"): Rate(520.0, f"tokens of training, 11.3 M parameters, {_CORES}"),
    ("decode", "cpu"): Rate(140.0, f"generated tokens, 11.3 M parameters, 16 rows, {_CORES}"),
    ("episodes", "cpu"): Rate(3.4, "episodes of the teacher, 8 of 16 cores (41)"),
    ("quick", "cpu"): Rate(0.45, "evaluations, two busy cores (docs/tasks.md)"),
    ("full", "cpu"): Rate(0.2, "full evaluations: not measured, half of the quick ones", False),
    ("filter", "cpu"): Rate(1.33, "candidates for tasks, two busy cores (docs/tasks.md)"),
}


def rate(what: str, target: str, parameters: float, *, lora: bool = False) -> Rate:
    """Of a model of `parameters`. Training and decoding go down with them; beyond ten times the measured ones they are
    assumed from the H200's data sheet."""
    known = RATES[what, target]
    if what not in ("pretrain", "tune", "decode"):
        return known
    if target == "cuda" and parameters > 10 * MEASURED_PARAMETERS:
        if what == "decode":
            where = f"generated tokens, {parameters / 1e9:.1f} G parameters, 64 rows, half of the memory's rate"
            return Rate(64 * MEMORY / (2 * parameters) / 2, where, False)
        operations = (LORA if lora else FULL) * parameters
        where = f"tokens of training, {parameters / 1e9:.1f} G parameters, {REACHED:.0%} of the peak"
        return Rate(PEAK * REACHED / operations, where, False)
    # A small model does not get faster than launches and the host let it on a GPU; on a CPU it does.
    scale = MEASURED_PARAMETERS / parameters
    scale = min(scale, 1.0) if target == "cuda" else scale
    if abs(scale - 1) < 0.1:
        return known
    return Rate(known.value * scale, f"{known.where}, scaled to {parameters / 1e6:.1f} M parameters", False)
