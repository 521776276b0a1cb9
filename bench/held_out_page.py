"""Formats rows of held-out tasks as a page. Pure."""

from __future__ import annotations

import re
from collections import Counter
from statistics import median
from typing import Any

from bench.harness import Row, markdown

SPLITS = {
    "held_out": "held out",
    "held_pairs": "withheld pairs",
    "held_families": "withheld families",
    "composed": "composed",
}
COLUMNS = ["tasks of", "number", "one attempt", "best of all", "generator: first", "best of as many", "wins", "outside"]


def page(meta: dict[str, Any], rows: list[Row]) -> str:
    """The page as Markdown. Shares refer to all tasks of a line, including those that could not be opened."""
    thorough = sum(row.get("thorough", False) for row in rows)
    lines = [
        f"# Held-out tasks, {meta.get('target', '')} target",
        "",
        f"Model: {meta.get('model', '?')}. {meta.get('attempts', '?')} answers a task, the likeliest beginnings first;",
        f"{meta.get('tokens_per_second', 0):.0f} tokens/s. Of {thorough} tasks all are judged, the generator's beside,",
        "of the others those up to the first that is right. How it is measured: [held-out tasks](../held_out.md).",
        "",
        *markdown(("", ""), meta.get("machine", {}).items()),
        "",
        *markdown(COLUMNS, (_cells(name, some) for name, some in _groups(rows) if some)),
        "",
        *[f"- {note}" for note in _notes(rows)],
        "",
        "## What the answers came to",
        "",
        *_outcomes([row["attempts"] for row in rows if "attempts" in row]),
    ]
    return "\n".join(lines) + "\n"


def _groups(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    return [
        *((name, [row for row in rows if row["split"] == split]) for split, name in SPLITS.items()),
        ("of these: the generator can write it", [row for row in rows if row["writable"]]),
        ("the generator cannot", [row for row in rows if not row["writable"]]),
        *(
            (f"{level} step{'s' * (level > 1)}", [row for row in rows if row["level"] == level])
            for level in sorted({row["level"] for row in rows})
        ),
        ("all", rows),
    ]


def _cells(name: str, rows: list[Row]) -> list[Any]:
    wins = [row["win"] for row in rows if "win" in row]
    beside = [row["generator"] for row in rows if "generator" in row]
    return [
        *(name, len(rows), _share(rows, "first"), _share(rows, "best")),
        *(_share(beside, "first"), _share(beside, "best")),
        *((len(wins), sum(one["outside"] for one in wins)) if beside else ("", "")),
    ]


def _share(rows: list[Row], name: str) -> str:
    return f"{sum(bool(row.get(name)) for row in rows) / len(rows):.0%}" if rows else ""


def _notes(rows: list[Row]) -> list[str]:
    notes, stages = list[str](), Counter[str]()
    if room := [row["faster"] for row in rows if row.get("headroom")]:
        share = f"{sum(room)} of {len(room)} with at least 10% headroom ({sum(room) / len(room):.0%})"
        notes.append(f"measurably faster than torch.compile: {share}")
    if answered := [row for row in rows if row.get("attempts")]:
        tokens, answers = (sum(row["tokens"] for row in answered), sum(len(row["attempts"]) for row in answered))
        notes.append(f"{tokens / answers:.0f} tokens an answer")
    pairs = [(row["generator"]["best_ms"], row["best_ms"]) for row in rows if "generator" in row]
    if ratios := [theirs / mine for theirs, mine in pairs if theirs and mine]:
        measured = f"median {median(ratios):.2f} ({len(ratios)} tasks, quick tier)"
        notes.append(f"time of the generator's best over the model's best: {measured}")
    unopened = Counter(row["outcome"] for row in rows if row["outcome"] != "judged")
    notes += [f"{count} tasks {outcome.replace('_', ' ')}" for outcome, count in unopened.items()]
    for row in rows:
        stages.update(row.get("stages", {}))
    each = ", ".join(f"{name} {seconds / len(rows):.2f}" for name, seconds in stages.most_common())
    seconds = sum(row["seconds"] for row in rows) / max(1, len(rows))
    return [*notes, f"{seconds:.1f} s of judging a task ({each})"]


def _outcomes(judged: list[list[Row]]) -> list[str]:
    """Counts of outcomes, for the first answers and for all, with the commonest reasons."""
    first = Counter(attempts[0]["outcome"] for attempts in judged)
    every = Counter(attempt["outcome"] for attempts in judged for attempt in attempts)
    del every["not_judged"]
    cells = ((name.replace("_", " "), first[name], count) for name, count in every.most_common())
    lines = markdown(("outcome", "first answers", "all that were judged"), cells)
    why = Counter(_short(attempts[0]["why"]) for attempts in judged if "why" in attempts[0])
    if why:
        lines += ["", "Commonest reasons of first answers:", ""]
        lines += [f"- {count} × {reason}" for reason, count in why.most_common(12)]
    return lines


def _short(reason: str) -> str:
    """The reason without numbers, which differ from task to task."""
    return re.sub(r"[\d#]+", "#", reason)[:100].replace("|", "/").replace("\n", " ")
