"""The figures of a measurement, and the page that shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bench.harness import markdown

Aim = tuple[Literal["≤", "≥"], float]


@dataclass(frozen=True)
class Settings:
    """How long to measure. `short` is for trying the scripts out; its figures mean little."""

    target: str
    short: bool = False
    comparisons: int = 200

    def count(self, full: int, short: int) -> int:
        return short if self.short else full


@dataclass(frozen=True)
class Figure:
    """A number with its unit, its aim, and how it was measured."""

    name: str
    value: float
    unit: str
    how: str = ""
    aim: Aim | None = None

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        sign, bound = self.aim
        return self.value <= bound if sign == "≤" else self.value >= bound

    def plain(self) -> dict[str, Any]:
        """The figure as plain data for JSON."""
        aim = None if self.aim is None else f"{self.aim[0]} {self.aim[1]:g}"
        return {**asdict(self), "aim": aim, "met": self.met}


def p95(seconds: Sequence[float]) -> float:
    """The 95th percentile, in milliseconds."""
    return sorted(seconds)[max(0, round(0.95 * len(seconds)) - 1)] * 1e3


def page(document: dict[str, Any]) -> str:
    """The JSON document of a run as a page of Markdown."""
    lines = [f"# Benchmarks: {document['device']}, target {document['target']}", ""]
    lines += ["Written by `make bench`; each part says when it was measured. Do not edit.", ""]
    lines += [*markdown(("machine", ""), document["machine"].items()), ""]
    for name, rows in document["figures"].items():
        lines += [f"## {name}", "", f"Measured {document['taken'][name]}.", ""]
        lines += [*markdown(("figure", "value", "aim", "met", "how"), map(_cells, rows)), ""]
    if document["failed"]:
        lines += ["## Not measured", "", *(f"- {name}: {reason}" for name, reason in document["failed"].items()), ""]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    met = {True: "yes", False: "**no**", None: ""}[row["met"]]
    return row["name"], f"{number(row['value'])} {row['unit']}", row["aim"] or "", met, row["how"]


def number(value: float) -> str:
    """The value with three significant digits, without an exponent for everyday sizes."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}" if 1e-4 <= abs(value) < 1000 else f"{value:.4g}"
