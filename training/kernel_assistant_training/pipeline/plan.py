"""The estimate, before anything runs, of the time and resources that a recipe or a stage will take: `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel_assistant.session.training_stages import clock
from kernel_assistant.targets import cuda
from kernel_assistant_training.options.stages import PretrainOptions
from kernel_assistant_training.pipeline.estimate import StageCost, cost, parameters_of
from kernel_assistant_training.pipeline.inputs import parsed_options
from kernel_assistant_training.pipeline.recipe import Recipe


def plan(recipe: Recipe, options: Sequence[Any]) -> str:
    """A table with a row for each stage and their sum, and the rates used. `options` are those of each stage."""
    shape = next((one.shape for one in options if isinstance(one, PretrainOptions)), None)
    parameters = parameters_of(recipe.base, shape)
    lora = any(getattr(one, "lora", 0) for one in options)
    costs: list[StageCost] = []
    #: Episodes that the stages so far produce, by kind.
    made: dict[str, float] = {}
    for stage, one in zip(recipe.stage, options, strict=True):
        given = made.get({"sft": "episodes", "critic": "rft"}.get(stage.kind, ""), 0.0)
        costs.append(cost(stage.kind, one, _device(one) or recipe.target, parameters, lora=lora, given=given))
        made[stage.kind] = made.get(stage.kind, 0.0) + costs[-1].within(stage.limit).episodes
    rows = [(stage.name, one, stage.limit) for stage, one in zip(recipe.stage, costs, strict=True)]
    bounded = [one.within(limit) for _, one, limit in rows]
    names = ("seconds", "disk", "evaluations", "tokens")
    rows.append(("all", StageCost(*(sum(getattr(one, name) for one in bounded) for name in names)), recipe.limit))
    about = [recipe.about] if recipe.about else []
    return "\n".join([*about, f"from {recipe.base}, {_text(parameters, recipe.target, rows)}"])


def single(kind: str, given: Sequence[str]) -> str:
    """The estimate for one stage with these command-line options. Raises UsageError for options that it does not
    know."""
    options = parsed_options(kind, given, kind)
    target = _device(options) or ("cuda" if cuda.gpus() else "cpu")
    base = getattr(options, "base", None) or "scratch"
    parameters = parameters_of(str(base[0] if isinstance(base, tuple) else base), getattr(options, "shape", None))
    return _text(parameters, target, [(kind, cost(kind, options, target, parameters), None)])


def _device(options: object) -> str:
    """The device of a stage, "" if its options do not say: for fine-tuning, `target` is that of the learned kernels."""
    target = getattr(options, "target", None)
    return target if target in ("cpu", "cuda") else ""


def _text(parameters: float, target: str, rows: Sequence[tuple[str, StageCost, float | None]]) -> str:
    head = ("stage", "time", "limit", f"{'GPU' if target == 'cuda' else 'CPU'}-hours", "disk", "evaluations", "tokens")
    cells = [head, *(_cells(*row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{parameters / 1e6:,.1f} M parameters, on {target}", ""]
    for name, *row in cells:
        aligned = (cell.rjust(width) for cell, width in zip(row, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    lines += ["", "by these rates; numbers in brackets are experiments of docs/experiments.md:"]
    rates = dict.fromkeys(rate for _, one, _ in rows for rate in one.rates)
    for rate in sorted(rates, key=lambda one: not one.measured):
        word = "measured" if rate.measured else "assumed"
        lines.append(f"  {word}  {rate.value:>12,.4g} a second  {rate.where}")
    lines.append("time is computed, limit is what the stage gets; hours, disk, evaluations and tokens within the limit")
    return "\n".join(lines)


def _cells(name: str, one: StageCost, limit: float | None) -> tuple[str, ...]:
    """One row of the table; hours are those up to the limit."""
    shown = one if limit is None else one.within(limit)
    end = "" if limit is None else clock(limit) + (" (ended there)" if one.seconds > limit else "")
    disk, numbers = f"{shown.disk / 1e6:,.0f} MB", (shown.evaluations, shown.tokens)
    return (name, clock(one.seconds), end, f"{shown.seconds / 3600:.3f}", disk, *map(_count, numbers))


def _count(value: float) -> str:
    return f"{value / 1e6:,.1f} M" if value >= 1e6 else f"{value:,.0f}" if value else ""
