"""A summary of the rows of KernelBench's own evaluation, or of the four distributions."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import Row, markdown
from bench.kernelbench.tables import mean

COLUMNS = (
    "",
    "run",
    "with a candidate",
    "correct",
    "mean × eager, correct ones",
    "mean × eager",
    "mean × torch.compile",
    "flagged as too fast",
)
NOTES = """\
Means are geometric, the last two over all that were run: what is not correct here, or not measurably faster than
torch.compile in the product's own measurement, is not offered, and eager counts.
"""


def summary(title: str, rows: Sequence[Row]) -> str:
    """A line for each level and one for all, as Markdown."""
    levels = sorted({row["level"] for row in rows})
    lines = [_line(f"level {level}", [row for row in rows if row["level"] == level]) for level in levels]
    if len(levels) > 1:
        lines.append(_line("all", rows))
    return "\n".join([f"## {title}", "", *markdown(COLUMNS, lines), "", NOTES])


def offered(row: Row) -> bool:
    """Whether a user gets the candidate: it is correct, was timed, and the product found it faster."""
    return bool(row.get("correct") and row.get("speedup_vs_eager") and row["loop"].get("outcome") == "faster")


def over_eager(row: Row) -> float | None:
    """What a user gets over eager: the candidate if it is offered, else eager itself."""
    return row["speedup_vs_eager"] if offered(row) else 1.0 if row.get("eager_ms") else None


def over_compile(row: Row) -> float | None:
    """What a user gets over torch.compile."""
    if offered(row):
        known: float | None = row["speedup_vs_compile"]
        return known
    eager, compiled = row.get("eager_ms"), row.get("compile_ms")
    return compiled / eager if eager and compiled else None


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    correct = [row for row in rows if row.get("correct")]
    return [
        name,
        str(len(rows)),
        str(sum(row.get("form") is not None for row in rows)),
        f"{len(correct)} ({len(correct) / len(rows):.1%})",
        mean([row["speedup_vs_eager"] for row in correct]),
        mean([over_eager(row) for row in rows]),
        mean([over_compile(row) for row in rows]),
        str(sum(bool(row.get("excessive_speedup")) for row in rows)),
    ]
