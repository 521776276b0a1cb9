"""Formats rows of held-out tasks as a page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

Row = dict[str, Any]
SPLITS = {"held_out": "held out", "held_pairs": "withheld pairs", "held_families": "withheld families"}


def page(meta: dict[str, Any], rows: list[Row]) -> str:
    """The page as Markdown. Shares refer to all tasks of a line, including those that could not be opened."""
    machine, thorough = meta.get("machine", {}), sum(row.get("thorough", False) for row in rows)
    lines = [
        f"# Held-out tasks, {meta.get('target', '')} target",
        "",
        f"Model: {meta.get('model', '?')}. {meta.get('attempts', '?')} answers a task, the likeliest beginnings first;",
        f"{meta.get('tokens_per_second', 0):.0f} tokens/s. Of {thorough} tasks all are judged, the generator's beside,",
        "of the others those up to the first that is right. How it is measured: [held-out tasks](../held_out.md).",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in machine.items()),
        "",
        *_shares(rows),
        "",
        *_notes(rows),
        "",
        "## What the answers came to",
        "",
        *_outcomes(rows),
    ]
    return "\n".join(lines) + "\n"


def _shares(rows: list[Row]) -> list[str]:
    head = [
        "tasks of",
        "number",
        "one attempt",
        "best of all",
        "generator: first",
        "best of as many",
        "wins",
        "outside",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    groups = [(name, [row for row in rows if row["split"] == split]) for split, name in SPLITS.items()]
    groups.append(("of these: the teacher has a form", [row for row in rows if row["taught"]]))
    groups.append(("the teacher has none", [row for row in rows if not row["taught"]]))
    levels = sorted({row["level"] for row in rows})
    groups += [(f"{level} step{'s' * (level > 1)}", [row for row in rows if row["level"] == level]) for level in levels]
    groups.append(("all", rows))
    lines += [f"| {' | '.join(_cells(name, some))} |" for name, some in groups if some]
    return lines


def _cells(name: str, rows: list[Row]) -> list[str]:
    wins = [row["win"] for row in rows if "win" in row]
    beside = [row["generator"] for row in rows if "generator" in row]
    return [
        name,
        str(len(rows)),
        _share(row.get("first") for row in rows),
        _share(row.get("best") for row in rows),
        _share(one["first"] for one in beside),
        _share(one["best"] for one in beside),
        str(len(wins)) if beside else "",
        f"{sum(one['outside'] for one in wins)}" if beside else "",
    ]


def _notes(rows: list[Row]) -> list[str]:
    lines = []
    room = [row for row in rows if row.get("headroom")]
    if room:
        faster = sum(row["faster"] for row in room)
        lines.append(
            f"- measurably faster than torch.compile: {faster} of {len(room)} with at least 10% headroom "
            f"({faster / len(room):.0%})"
        )
    answers = [attempt for row in rows for attempt in row.get("attempts", ())]
    if answers:
        judged = sum(row["tokens"] for row in rows if "attempts" in row)
        lines.append(f"- {judged / len(answers):.0f} tokens an answer")
    both = [row for row in rows if row.get("best_ms") and row.get("generator", {}).get("best_ms")]
    if both:
        ratio = median(row["generator"]["best_ms"] / row["best_ms"] for row in both)
        lines.append(
            f"- time of the generator's best over the model's best: median {ratio:.2f} ({len(both)} tasks, quick tier)"
        )
    unopened = Counter(row["outcome"] for row in rows if row["outcome"] != "judged")
    lines += [f"- {count} tasks {outcome.replace('_', ' ')}" for outcome, count in unopened.items()]
    stages = Counter[str]()
    for row in rows:
        stages.update(row.get("stages", {}))
    each = ", ".join(f"{name} {seconds / len(rows):.2f}" for name, seconds in stages.most_common())
    lines.append(f"- {sum(row['seconds'] for row in rows) / max(1, len(rows)):.1f} s of judging a task ({each})")
    return lines


def _outcomes(rows: list[Row]) -> list[str]:
    """Counts of outcomes, for the first answers and for all, with the commonest reasons."""
    judged = [row["attempts"] for row in rows if "attempts" in row]
    first = Counter(attempts[0]["outcome"] for attempts in judged)
    outcomes = (attempt["outcome"] for attempts in judged for attempt in attempts)
    every = Counter(outcome for outcome in outcomes if outcome != "not_judged")
    lines = ["| outcome | first answers | all that were judged |", "|---|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {first[name]} | {count} |" for name, count in every.most_common()]
    why = Counter(_short(attempt["why"]) for attempts in judged for attempt in attempts[:1] if "why" in attempt)
    if why:
        lines += ["", "Commonest reasons of first answers:", ""]
        lines += [f"- {count} × {reason}" for reason, count in why.most_common(12)]
    return lines


def _share(values: Iterable[bool | None]) -> str:
    flags = [bool(value) for value in values]
    return f"{sum(flags) / len(flags):.0%}" if flags else ""


def _short(reason: str) -> str:
    """The reason without numbers, which differ from task to task."""
    words = "".join("#" if character.isdigit() else character for character in reason)
    while "##" in words:
        words = words.replace("##", "#")
    return words[:100].replace("|", "/").replace("\n", " ")
