"""Tables of a run of the loop, beside PyTorch's modes where they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench.harness import Row, interval, markdown, shown
from bench.kernelbench.baselines import MODES, speedups_of_modes
from bench.kernelbench.problems import number
from kernel_assistant.records.evaluation import measurably_faster

SUMMARY = (
    "",
    "problems",
    "verified",
    "measurably faster than torch.compile",
    "measurably slower",
    "mean × torch.compile",
    "measurably faster than the best mode",
    "mean × the best mode",
)
COLUMNS = (
    "problem",
    "eager",
    "compile",
    "reduce-overhead",
    "max-autotune",
    "ours",
    "× eager",
    "× compile",
    "99.9% interval",
    "× best mode",
    "roofline",
    "in our kernels",
    "error ratio",
    "compile's error ratio",
    "seconds",
    "outcome",
)
NOTES = """\
Times in milliseconds. Speed-ups and intervals against torch.compile are from paired blocks. The best mode is the
fastest of eager, torch.compile, `reduce-overhead` and `max-autotune`; each was timed against torch.compile in a series
of its own, so the quotient's interval takes the unfavourable end of both. Means are geometric and over all problems:
where the result is not measurably faster nothing is offered, and eager counts. Error ratios are multiples of eager's
own error.
"""


@dataclass(frozen=True)
class Result:
    """A problem's result. `baseline` is its row of modes, None if they were not measured."""

    row: Row
    baseline: Row | None

    @property
    def verified(self) -> bool:
        return bool(self.row.get("speedup_vs_compile"))

    @property
    def offered(self) -> bool:
        return bool(self.row["outcome"] == "faster")

    @property
    def eager_over_compile(self) -> float | None:
        """torch.compile's time over eager's: eager's speed-up."""
        if self.baseline is not None:
            return speedups_of_modes(self.baseline).get("eager", (None, None))[0]
        eager, compiled = self.row.get("eager_ms"), self.row.get("compile_ms")
        return compiled / eager if eager and compiled else None

    @property
    def over_compile(self) -> float | None:
        """What a user gets over torch.compile: the result if it is offered, else eager."""
        return float(self.row["speedup_vs_compile"]) if self.offered else self.eager_over_compile

    @property
    def over_best(self) -> float | None:
        """What a user gets over the best mode."""
        given = self.over_compile if self.offered_against_best else self.eager_over_compile
        return None if given is None or self.baseline is None else given / self._best()

    @property
    def ratio_to_best(self) -> float | None:
        """The verified result's speed-up over the best mode, offered or not."""
        return self.row["speedup_vs_compile"] / self._best() if self.verified and self.baseline is not None else None

    @property
    def offered_against_best(self) -> bool:
        """Whether the result is measurably faster than the best mode."""
        if not self.offered or self.baseline is None:
            return False
        low, high = self.row["speedup_vs_compile_ci"]
        modes = speedups_of_modes(self.baseline).values()
        unfavourable = max(end for _, end in modes)
        return measurably_faster(self.ratio_to_best, (low / unfavourable, high / self._best()))

    def _best(self) -> float:
        assert self.baseline is not None
        return max(estimate for estimate, _ in speedups_of_modes(self.baseline).values())


def _key(row: Row) -> tuple[int, str, str]:
    return row["level"], row["problem"], row["precision"]


def results(rows: Sequence[Row], baselines: Sequence[Row] = ()) -> list[Result]:
    """A result for each row of the loop, in the order of level and problem."""
    modes = {_key(row): row for row in baselines if row["outcome"] == "measured"}
    ordered = sorted(rows, key=lambda row: (row["level"], number(row["problem"])))
    return [Result(row, modes.get(_key(row))) for row in ordered]


def page(some: Sequence[Result]) -> str:
    """The summary by level, then a line for each problem, as Markdown."""
    levels = sorted({one.row["level"] for one in some})
    of_level = {level: [one for one in some if one.row["level"] == level] for level in levels}
    counted = [_counts(f"level {level}", of_level[level]) for level in levels]
    lines = markdown(SUMMARY, counted + ([_counts("all", some)] if len(levels) > 1 else []))
    lines += ["", NOTES]
    for level in levels:
        lines += [f"## Level {level}", "", *markdown(COLUMNS, map(_cells, of_level[level])), ""]
    return "\n".join(lines)


def drift(before: Sequence[Row], now: Sequence[Row]) -> str:
    """How much the times of modes that were measured again differ from those kept."""
    known = {_key(row): row for row in before}
    ratios = dict[str, list[float]]()
    for row in now:
        then = known.get(_key(row))
        for mode, one in row.get("modes", {}).items():
            earlier = ((then or {}).get("modes", {}).get(mode) or {}).get("ms")
            if earlier and one["ms"]:
                ratios.setdefault(mode, []).append(one["ms"] / earlier)
    return "\n".join(
        f"{mode}: {len(some)} measured again, {geometric_mean(some):.3f} times as long as before "
        f"({min(some):.3f} to {max(some):.3f})"
        for mode, some in ratios.items()
    )


def _counts(name: str, some: Sequence[Result]) -> list[str]:
    total = len(some)
    faster = sum(one.offered for one in some)
    slower = sum(one.row["outcome"] == "slower" for one in some)
    best = sum(one.offered_against_best for one in some)
    known = any(one.baseline for one in some)
    return [
        name,
        str(total),
        f"{sum(one.verified for one in some) / total:.1%}",
        f"{faster / total:.1%}",
        str(slower),
        mean([one.over_compile for one in some]),
        f"{best / total:.1%}" if known else "not measured",
        mean([one.over_best for one in some]) if known else "not measured",
    ]


def mean(values: Sequence[float | None]) -> str:
    """The geometric mean in a cell, with the number of those that have no value."""
    known = [value for value in values if value]
    if not known:
        return ""
    missing = len(values) - len(known)
    return f"{geometric_mean(known):.2f}" + (f" (without {missing} that have no time)" if missing else "")


def _cells(one: Result) -> list[str]:
    row, modes = one.row, (one.baseline or {}).get("modes", {})
    why = row.get("stop_reason") or row.get("reason", "")
    return [
        row["problem"],
        shown(row.get("eager_ms"), ".4g"),
        shown(row.get("compile_ms"), ".4g"),
        *(shown(modes.get(mode, {}).get("ms"), ".4g") for mode in MODES if mode != "compile"),
        shown(row.get("candidate_ms"), ".4g"),
        shown(row.get("speedup_vs_eager"), ".3f"),
        shown(row.get("speedup_vs_compile"), ".3f"),
        interval(row.get("speedup_vs_compile_ci"), ".3f"),
        shown(one.ratio_to_best, ".3f"),
        shown(row.get("roofline"), ".0%"),
        shown(row.get("share_in_our_kernels"), ".0%"),
        shown(row.get("error_ratio"), ".2f"),
        shown(modes.get("compile", {}).get("error_ratio"), ".2f"),
        shown(row.get("seconds"), ".0f"),
        f"{row['outcome']}: {why}"[:120],
    ]
