"""How fast the parts of stages are, for estimates: each rate names the machine that it was measured on.

A rate that was not measured names the assumption behind it. Numbers in brackets are experiments of docs/experiments.md.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Parameters of the model for which training and decoding were measured.
MEASURED_PARAMETERS = 11.3e6
#: Dense bf16 operations a second of an H200 (its data sheet), and the share of them that training is assumed to reach.
PEAK, REACHED = 989e12, 0.35
#: Bytes per second of an H200's memory (its data sheet), which bounds decoding of a large model.
MEMORY = 4.8e12
#: Operations per token and parameter in training; LoRA needs no gradients of the weights.
FULL, LORA = 6.0, 4.0


@dataclass(frozen=True)
class Rate:
    """`value` per second; `where` describes what was measured, and on which machine."""

    value: float
    where: str
    measured: bool = True


_H200 = "one H200, 16 cores"
_CORES = "two cores by processor time (docs/training_recipes.md)"
_EXPORT = Rate(50e6, "parameters exported: not measured", False)
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
