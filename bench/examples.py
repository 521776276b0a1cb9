"""Every module under `examples/`, as a user would have it: optimize, apply, undo. Makes a page of docs/benchmarks.

    python bench/examples.py --target cpu --budget 40s --out docs/benchmarks/examples-cpu

Works on a copy of the folder with a home of its own. One line of JSON per module is written as soon as it is done, and
modules that are in the file already are left out; `--table` makes the page of what is there. Ends with 1 if a module
was not verified, or came back from `apply` slower or changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

COLUMNS = (
    "example",
    "eager",
    "compile",
    "ours",
    "× eager",
    "× compile",
    "99.9% interval",
    "error ratio",
    "outcome",
    "in the file",
)
HEAD = """# Examples on the {target} target

Taken by `python bench/examples.py`; do not edit. {machine}

Milliseconds, confirmed on fresh samples. "In the file" is the edited module against the original in eager mode, guard
included, each at sizes of its own: declared, then (where a size is free) 1, odd, one and a half times. A compiled
parent keeps the original where the kernels inside it gained nothing ([apply](../apply.md)). Where there is no
measurable gain over both eager and `torch.compile`, nothing is offered and `apply` refuses.
"""


def main() -> int:
    from bench.cli_cost import own_home, stop

    arguments = _arguments()
    out = Path(arguments.out).with_suffix(".jsonl")
    done = {row["file"] for row in _rows(out)}
    wanted = arguments.only or examples()
    names = [] if arguments.table else [name for name in wanted if name not in done]
    with tempfile.TemporaryDirectory(prefix="ka-") as folder:
        copy = shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        environment = own_home(Path(folder, "home"))
        try:
            for name in names:
                row = {
                    "example": name.removesuffix(".py"),
                    "file": name,
                    **_played(copy / name, arguments, environment),
                }
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(" | ".join(_cells(row)), flush=True)
        finally:
            stop(environment)
    rows = _rows(out)
    out.with_suffix(".md").write_text(page(rows, arguments.target), encoding="utf-8")
    return 1 if any(row["wrong"] for row in rows) else 0


def examples() -> list[str]:
    """Files with one module each, relative to `examples/`."""
    folder = ROOT / "examples"
    blocks = [path.with_name("block.py") for path in folder.glob("*/__init__.py")]
    return [str(path.relative_to(folder)) for path in sorted([*folder.glob("*.py"), *blocks])]


def _played(path: Path, arguments: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Optimizes, applies and undoes one module; returns its row as plain data, in which `wrong` says what went
    wrong."""
    flags = ["--target", arguments.target, "--budget", arguments.budget, "--no-free-wins", "--json"]
    result = json.loads(_command(["optimize", str(path), *flags], environment, arguments.log))
    row: dict[str, Any] = {"outcome": result["outcome"], "evaluations": result["evaluations"], "wrong": ""}
    files = result["artifacts"]
    if "evaluation.json" in files:
        evaluation = json.loads(Path(files["evaluation.json"]).read_text(encoding="utf-8"))
        row |= {"timing": evaluation["timing"], "accuracy": evaluation["accuracy"]}
        row["schedule"] = json.loads(Path(files["plan.json"]).read_text(encoding="utf-8"))["schedule"]
    if not row.get("timing"):
        return row | {"wrong": "not verified"}
    if "applied.json" in files:
        row["applied"] = json.loads(Path(files["applied.json"]).read_text(encoding="utf-8"))
    if result["outcome"] == "improved":
        row["wrong"] = _applied_and_undone(path, row, environment, arguments.log)
    return row


def _applied_and_undone(path: Path, row: dict[str, Any], environment: dict[str, str], log: str | None) -> str:
    """What is wrong after apply and undo, "" if nothing is."""
    if "applied" not in row:
        return "the edited file was not timed"
    before = path.read_bytes()
    _command(["apply", str(path)], environment, log)
    changed = path.read_bytes() != before
    _command(["undo", str(path)], environment, log)
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


def _command(arguments: list[str], environment: dict[str, str], log: str | None) -> str:
    """The standard output of a command. Raises RuntimeError if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel_assistant", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(arguments)}\n{done.stderr}\n")
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def page(rows: list[dict[str, Any]], target: str) -> str:
    """The rows as Markdown, in the order in which they were measured."""
    from bench.machine import describe
    from kernel_assistant.targets.detect import detect

    machine = describe(detect(target))
    shown = "; ".join(f"{key}: {value}" for key, value in machine.items()) + "."
    lines = [HEAD.format(target="CPU" if target == "cpu" else "CUDA", machine=shown)]
    lines += [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    wrong = [f"{row['example']}: {row['wrong']}" for row in rows if row["wrong"]]
    lines += ["", f"{len(rows)} modules: {words}. Not as it should be: {'; '.join(wrong) or 'nothing'}."]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    timing, accuracy = row.get("timing") or {}, row.get("accuracy") or {}

    def shown(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    interval = timing.get("speedup_vs_compile_ci")
    times = [shown(timing.get(f"{name}_ms"), ".3g") for name in ("eager", "compile", "candidate")]
    gains = [shown(timing.get(f"speedup_vs_{name}"), ".2f") for name in ("eager", "compile")]
    between = f"{interval[0]:.2f} – {interval[1]:.2f}" if interval else ""
    ratio = shown(accuracy.get("error_ratio"), ".2f")
    return [row["example"], *times, *gains, between, ratio, row["outcome"], _in_the_file(row)]


def _in_the_file(row: dict[str, Any]) -> str:
    if row["wrong"]:
        return f"**{row['wrong']}**"
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


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every module under examples/: optimize, apply, undo.")
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", default="40s", help="of each optimize")
    parser.add_argument("--only", nargs="+", choices=examples(), help="these alone")
    parser.add_argument("--out", default="examples", help="name of the .jsonl and .md that are written")
    parser.add_argument("--log", default=os.environ.get("BENCH_LOG"), help="file for what the commands say")
    parser.add_argument("--table", action="store_true", help="make the page of what is there and do nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
