"""What a recipe or a stage will take, before anything runs: `--dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_assistant.errors import UsageError
from kernel_assistant.targets import cuda
from kernel_assistant_training.pipeline.board import clock
from kernel_assistant_training.pipeline.estimate import Cost, cost, parameters_of
from kernel_assistant_training.pipeline.kinds import KINDS, TIMED_EACH_START, words
from kernel_assistant_training.pipeline.reading import Asked, read
from kernel_assistant_training.pipeline.recipe import Recipe, Stage
from kernel_assistant_training.pipeline.starts import clock_of

_HEAD = ("stage", "time", "limit", "{}-hours", "disk", "evaluations", "tokens")


def checked(recipe: Recipe) -> list[dict[str, Any]]:
    """The options of each stage, defaults too. Raises UsageError where a stage would not understand them."""
    found = read([Asked(parser=KINDS[one.of_kind].parser, words=_words(recipe, one)) for one in recipe.stage])
    for stage, one in zip(recipe.stage, found, strict=True):
        if one.error:
            step = f"kernel-assistant train {stage.of_kind} --help has its options"
            raise UsageError(f"stage {stage.name}: {one.error}", step)
    return [one.options for one in found]


def plan(recipe: Recipe) -> str:
    """A row for each stage, all of them, and by which rates. Raises UsageError."""
    options = checked(recipe)
    shape = next((one.get("shape") for one in options if one.get("shape")), None)
    parameters = parameters_of(recipe.base, shape)
    costs = _costs(recipe, options, parameters)
    rows = [_row(stage.name, one, recipe.target, stage.limit) for stage, one in zip(recipe.stage, costs, strict=True)]
    bounded = [_bounded(one, stage.limit) for stage, one in zip(recipe.stage, costs, strict=True)]
    rows.append(_row("all", _sum(bounded), recipe.target, recipe.limit))
    head = [f"{recipe.about}".strip(), f"from {recipe.base}, {parameters / 1e6:,.1f} M parameters, on {recipe.target}"]
    return "\n".join([*filter(None, head), "", *_table(recipe.target, rows), "", *_sources(costs)])


def _costs(recipe: Recipe, options: Sequence[Mapping[str, Any]], parameters: float) -> list[Cost]:
    """Of each stage; those that learn from episodes are given those of the stages before them."""
    lora = any(one.get("lora") for one in options)
    found: list[Cost] = []
    made: dict[str, float] = {}
    for stage, one in zip(recipe.stage, options, strict=True):
        given = made.get({"sft": "episodes", "critic": "rft"}.get(stage.of_kind, ""), 0.0)
        device = _device(one) or recipe.target
        found.append(cost(stage.of_kind, one, device, parameters, lora=lora, given=given))
        made[stage.of_kind] = made.get(stage.of_kind, 0.0) + _bounded(found[-1], stage.limit).episodes
    return found


def single(kind: str, given: Sequence[str]) -> str:
    """Of one stage with these words. Raises UsageError for words that it does not know."""
    (found,) = read([Asked(parser=KINDS[kind].parser, words=list(given))])
    if found.error:
        raise UsageError(f"{kind}: {found.error}", f"kernel-assistant train {kind} --help")
    options = found.options
    target = _device(options) or ("cuda" if cuda.gpus() else "cpu")
    base = str(options.get("base") or "scratch")
    parameters = parameters_of(base, options.get("shape"))
    one = cost(kind, options, target, parameters)
    about = f"{parameters / 1e6:,.1f} M parameters, on {target}"
    return "\n".join([about, "", *_table(target, [_row(kind, one, target, None)]), "", *_sources([one])])


def _device(options: Mapping[str, Any]) -> str:
    """Where it runs, "" where its options do not say: those of fine-tuning say whose kernels it learns."""
    said = options.get("target")
    return said if said in ("cpu", "cuda") else ""


def _words(recipe: Recipe, stage: Stage) -> list[str]:
    """With folders in the places of what is not there yet."""
    kind = KINDS[stage.of_kind]
    if stage.of_kind == "export":
        return [".", "model", *words(stage.options)]
    places = dict.fromkeys(kind.takes, ".")
    fixed = {"seed": recipe.seed, "target": recipe.target}
    found: dict[str, Any] = {**places, **{name: one for name, one in fixed.items() if name in kind.takes}}
    if stage.models:
        found["base"] = ["."] * len(stage.models)
    if stage.of_kind in TIMED_EACH_START:
        found["seconds"] = clock_of(stage)
    return [*kind.words, *words({**found, **stage.options})]


def _bounded(one: Cost, limit: float) -> Cost:
    """As much of it as fits into the limit."""
    share = min(1.0, limit / one.seconds) if one.seconds else 1.0
    counted = {name: getattr(one, name) * share for name in ("seconds", "evaluations", "tokens", "episodes")}
    return replace(one, **counted)


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(
        sum(one.seconds for one in costs),
        sum(one.disk for one in costs),
        sum(one.evaluations for one in costs),
        sum(one.tokens for one in costs),
    )


def _row(name: str, one: Cost, target: str, limit: float | None) -> tuple[str, ...]:
    """Hours are those of the limit where it takes longer."""
    shown = one if limit is None else _bounded(one, limit)
    late = " (ended there)" if limit is not None and one.seconds > limit else ""
    return (
        name,
        clock(one.seconds),
        "" if limit is None else clock(limit) + late,
        f"{shown.seconds / 3600:.3f}",
        f"{shown.disk / 1e6:,.0f} MB",
        _count(shown.evaluations),
        _count(shown.tokens),
    )


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.1f} M"
    return f"{value:,.0f}" if value else ""


def _table(target: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    head = tuple(name.format("GPU" if target == "cuda" else "CPU") for name in _HEAD)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    return [line.rstrip() for line in lines]


def _sources(costs: Sequence[Cost]) -> list[str]:
    rates = list(dict.fromkeys(found for one in costs for found in one.rates))
    lines = ["by these rates; numbers in brackets are experiments of docs/experiments.md:"]
    for found in sorted(rates, key=lambda one: not one.measured):
        word = "measured" if found.measured else "assumed"
        lines.append(f"  {word}  {found.value:>12,.4g} a second  {found.where}")
    return [
        *lines,
        "time is computed, limit is what the stage gets; hours, disk, evaluations and tokens within the limit",
    ]
