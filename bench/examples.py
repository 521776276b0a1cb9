"""Every module under `examples/`, as a user would have it: optimize, apply, undo. Makes a page of docs/benchmarks.

    python -m bench.examples --target cpu --budget 40 --out docs/benchmarks/examples-cpu

Works on a copy of the folder. Ends with 1 if a module was not
verified, or came back from `apply` slower or changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.harness import Row, RowFile, interval, markdown, measure_cases, shown
from bench.jobs import SessionHost, session_host
from bench.machine import describe
from kernel_assistant.targets.detect import detect

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
COLUMNS = (
    *("example", "eager", "compile", "ours", "× eager", "× compile", "99.9% interval", "error ratio", "outcome"),
    "in the file",
)
HEAD = """# Examples on the {target} target

Taken by `python -m bench.examples`; do not edit. {machine}

Milliseconds, confirmed on fresh samples. "In the file" is the edited module against the original in eager mode, guard
included, each at sizes of its own: declared, then (where a size is free) 1, odd, one and a half times. A compiled
parent keeps the original where the kernels inside it gained nothing ([apply](../apply.md)). Where there is no
measurable gain over both eager and `torch.compile`, nothing is offered and `apply` refuses.
"""


def main() -> int:
    arguments = _arguments()
    out = RowFile(Path(arguments.out).with_suffix(".jsonl"))
    cases = [({"example": name.removesuffix(".py"), "file": name}, name) for name in arguments.only or examples()]
    rows = measure_cases(cases, _played, out, [session_host(arguments.target, arguments.budget)])
    out.path.with_suffix(".md").write_text(page(rows, arguments.target), encoding="utf-8")
    return 1 if any(map(_wrong, rows)) else 0


def examples() -> list[str]:
    """Files with one module each, relative to `examples/`."""
    blocks = [path.with_name("block.py") for path in EXAMPLES.glob("*/__init__.py")]
    return [str(path.relative_to(EXAMPLES)) for path in sorted([*EXAMPLES.glob("*.py"), *blocks])]


def _played(name: str, host: SessionHost) -> Row:
    """Optimizes, applies and undoes one module; `wrong` of its row says what went wrong."""
    path = shutil.copytree(EXAMPLES, host.home / "examples", dirs_exist_ok=True) / name
    result = host.optimize(str(path))
    row: Row = {"outcome": result["outcome"], "evaluations": result["evaluations"], "wrong": ""}
    files = result["artifacts"]
    if "evaluation.json" in files:
        evaluation = json.loads(Path(files["evaluation.json"]).read_text(encoding="utf-8"))
        row |= {"timing": evaluation["timing"], "accuracy": evaluation["accuracy"]}
    else:
        return row | {"wrong": "not verified"}
    if "applied.json" in files:
        row["applied"] = json.loads(Path(files["applied.json"]).read_text(encoding="utf-8"))
    if result["outcome"] == "improved":
        row["wrong"] = _applied_and_undone(path, row, host)
    return row


def _applied_and_undone(path: Path, row: Row, host: SessionHost) -> str:
    """What is wrong after apply and undo, "" if nothing is."""
    if "applied" not in row:
        return "the edited file was not timed"
    before = path.read_bytes()
    host.output("apply", str(path))
    changed = path.read_bytes() != before
    host.output("undo", str(path))
    if not changed or path.read_bytes() != before:
        return "apply or undo did not do what it says"
    served = [
        one
        for one in row["applied"]["rows"]
        if (one["name"] == "alone" and one["elements"] >= row["applied"]["min_elements"])
        or (one["name"] != "alone" and row["applied"]["compiled_parent"] == "kernel")
    ]
    if not all(one["equal"] for one in served):
        return "other values once applied"
    return "slower once applied" if any(one["speedup_ci"][1] < 1.0 for one in served) else ""


def page(rows: list[Row], target: str) -> str:
    """The rows as Markdown, in the order in which they were measured."""
    machine = "; ".join(f"{key}: {value}" for key, value in describe(detect(target)).items()) + "."
    lines = [HEAD.format(target="CPU" if target == "cpu" else "CUDA", machine=machine)]
    lines += markdown(COLUMNS, map(_cells, rows))
    counts = Counter(row["outcome"] for row in rows)
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    wrong = "; ".join(f"{row['example']}: {_wrong(row)}" for row in rows if _wrong(row))
    lines += ["", f"{len(rows)} modules: {words}. Not as it should be: {wrong or 'nothing'}."]
    return "\n".join(lines) + "\n"


def _wrong(row: Row) -> str:
    return str(row.get("reason") or row.get("wrong", ""))


def _cells(row: Row) -> list[str]:
    timing: dict[str, Any] = row.get("timing") or {}
    times = [shown(timing.get(f"{name}_ms"), ".3g") for name in ("eager", "compile", "candidate")]
    gains = [shown(timing.get(f"speedup_vs_{name}")) for name in ("eager", "compile")]
    ratio = shown((row.get("accuracy") or {}).get("error_ratio"))
    between = interval(timing.get("speedup_vs_compile_ci"))
    return [row["example"], *times, *gains, between, ratio, row["outcome"], _in_the_file(row)]


def _in_the_file(row: dict[str, Any]) -> str:
    if wrong := _wrong(row):
        return f"**{wrong}**"
    if "applied" not in row:
        return "not offered"
    applied = row["applied"]
    words = [", ".join(f"{one['speedup']:.2f}" for one in applied["rows"] if one["name"] == "alone")]
    if applied["min_elements"]:
        words.append(f"below {applied['min_elements']} elements the original runs")
    for one in applied["rows"]:
        if one["name"] != "alone":
            runs = "kernels run" if applied["compiled_parent"] == "kernel" else "original runs"
            words.append(f"{one['name']}: {runs} ({one['speedup']:.2f} with kernels)")
    return "; ".join(words)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every module under examples/: optimize, apply, undo.")
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of each optimize")
    parser.add_argument("--only", nargs="+", choices=examples(), help="these alone")
    parser.add_argument("--out", default="examples", help="name of the .jsonl and .md that are written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
