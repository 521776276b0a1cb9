"""The table of `real_classes.py`: rows of classes and of whole models as markdown."""

from __future__ import annotations

from typing import Any

CLASS_COLUMNS = (
    "class",
    "package",
    "eager",
    "compile",
    "ours",
    "× eager",
    "× compile",
    "99.9% interval",
    "verified",
    "in our kernels",
    "free wins (over compile)",
    "in the program before → after, ms",
    "its first calls, ms",
    "check",
)
MODEL_COLUMNS = (
    "model",
    "before, ms",
    "after, ms",
    "gain",
    "over rounds",
    "differs by",
    "calls of kernels",
    "left out",
)


def page(classes: dict[str, dict[str, Any]], models: list[dict[str, Any]], whole: dict[str, Any]) -> str:
    """The page as Markdown."""
    rows = [_class(name, row) for name, row in classes.items()]
    lines = [*_head(CLASS_COLUMNS), *map(_line, rows)]
    lines += ["", *_head(MODEL_COLUMNS), *(_line(_model(row)) for row in models)]
    lines += ["", *_whole(whole)]
    failed = [f"- {name}: {row['problem']}" for name, row in classes.items() if row.get("problem")]
    lines += ["", "What failed:", "", *failed] if failed else []
    lines += ["", *(f"problem: {text}" for text in whole.get("problems", ()))]
    return "\n".join(lines).rstrip() + "\n"


def _class(name: str, row: dict[str, Any]) -> list[str]:
    interval = row.get("speedup_vs_compile_ci")
    verified = (
        "" if row.get("error_ratio") is None else f"{row['inputs_tried']} inputs, {row['error_ratio']:.2f} × error"
    )
    free = [
        f"{win['name']} {win['speedup']:.2f}" if win["speedup"] else f"{win['name']}: {win['note']}"
        for win in row.get("free_wins", ())
        if win["name"] != "compile"
    ]
    measured = [row.get(when, {}) for when in ("before", "after")]
    first = [one.get("first_seconds") for one in measured]
    later = [one["inclusive_seconds"] - one.get("first_seconds", 0.0) if one else None for one in measured]
    return [
        name,
        row.get("module", "").partition(".")[0],
        _shown(row.get("eager_ms"), ".4g"),
        _shown(row.get("compile_ms"), ".4g"),
        _shown(row.get("candidate_ms"), ".4g"),
        _shown(row.get("speedup_vs_eager")),
        _shown(row.get("speedup_vs_compile")),
        f"{interval[0]:.2f} – {interval[1]:.2f}" if interval else "",
        verified or row.get("outcome", ""),
        _shown(row.get("share_in_our_kernels"), ".0%"),
        "; ".join(free),
        _pair(later),
        _pair(first),
        row.get("check", ""),
    ]


def _model(row: dict[str, Any]) -> list[str]:
    if "problem" in row:
        return [row["model"], "", "", row["problem"], "", "", "", ""]
    return [
        row["model"],
        f"{row['before_ms']:.3f}",
        f"{row['after_ms']:.3f}",
        f"{row['speedup']:.3f}",
        f"{row['lowest']:.3f} – {row['highest']:.3f} ({row['rounds']})",
        f"{row['difference']:.1e}",
        ", ".join(f"{name} {count}" for name, count in row["kernel_calls"].items()),
        ", ".join(f"{name} {reasons}" for name, reasons in row["fallbacks"].items()),
    ]


def _whole(whole: dict[str, Any]) -> list[str]:
    lines = []
    for when in ("before", "after"):
        if when in whole:
            row = whole[when]
            spans = f"{row['wall_seconds']:.2f} s in all, {row['calls_seconds']:.2f} s from the first call to the last"
            lines.append(f"Program {when}: {spans} ({row['device']}, torch {row['torch']}).")
    spent = ", ".join(f"{name} {seconds} s" for name, seconds in whole.get("seconds", {}).items())
    return [*lines, f"Stages: {spent}."]


def _pair(seconds: list[float | None]) -> str:
    return " → ".join(_shown(None if one is None else one * 1e3, ".1f") for one in seconds)


def _head(columns: tuple[str, ...]) -> list[str]:
    return [_line(columns), "|" + "---|" * len(columns)]


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _shown(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)
