"""`make bench`: measures this tool itself, prints a table, and writes JSON and a page to docs/benchmarks/.

Each measurement runs in a process of its own, so that one that fails or spoils its process does not cost the others.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

from bench.figures import Settings, number, page
from bench.harness import IsolatedProcess
from bench.machine import describe
from kernel_assistant.environment.measuring import MEASURING
from kernel_assistant.targets.detect import detect

ROOT = Path(__file__).resolve().parent.parent
#: Name on the command line → module; the longest measurements are last.
MEASUREMENTS = {
    "build": "build_time",
    "evaluation": "evaluation",
    "call": "call_overhead",
    "cli": "cli_cost",
    "lsp": "lsp",
    "tui": "tui",
    "generator": "generator_rate",
    "cancel": "cancelling",
    "optimize": "optimize_time",
    "pool": "pool",
    "ppo": "ppo_seeds",
    "judge": "judge_itself",
}
MOST_SECONDS = 1800
#: What a document has for each measurement.
PARTS = ("taken", "figures", "failed", "seconds")


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Processes that a measurement starts find the checkout too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    device = detect(arguments.target)
    settings = Settings(device.target, arguments.short, arguments.comparisons)
    about = {"target": device.target, "device": device.name, "short": arguments.short, "machine": describe(device)}
    document: dict[str, Any] = {"schema": "kernel-assistant/bench/2", **about, **{part: {} for part in PARTS}}
    letters = (letter if letter.isalnum() else "-" for letter in device.name)
    file = f"{device.target}-{''.join(letters).strip('-').lower()}.json"
    path = Path(arguments.out or ROOT / "docs" / "benchmarks") / file
    writes = bool(arguments.out) or not (arguments.only or arguments.short)
    if arguments.only and writes and path.exists():
        # Figures that were measured earlier on this device stay, of measurements that do not run now.
        before = json.loads(path.read_text(encoding="utf-8"))
        document |= {part: before[part] for part in PARTS if before["schema"] == document["schema"]}
    for name in arguments.only or MEASUREMENTS:
        print(f"\n{name}", flush=True)
        began = time.perf_counter()
        result = measured(name, settings)
        document["seconds"][name] = round(time.perf_counter() - began, 1)
        document["taken"][name] = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
        document["failed"].pop(name, None)
        if isinstance(result, str):
            document["failed"][name] = result
            document["figures"].pop(name, None)
            print(f"  not measured: {result}")
        else:
            document["figures"][name] = result
            for row in result:
                verdict = {True: "met", False: "NOT MET", None: ""}[row["met"]]
                print(f"  {row['name']:<44} {number(row['value']):>9} {row['unit']:<6} {row['aim'] or '':<8} {verdict}")
        if writes:
            # Written after each measurement, so that a run that is stopped loses one only.
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            path.with_suffix(".md").write_text(page(document), encoding="utf-8")
    if writes:
        print(f"\nwritten: {path} and .md")
    return 1 if document["failed"] else 0


def measured(name: str, settings: Settings) -> list[dict[str, Any]] | str:
    """The figures of one measurement, or why there are none."""
    # The judge's measurement acts as a worker, so it gets a worker's environment, which is read when a process starts.
    extra = MEASURING if name == "judge" else {}
    with IsolatedProcess(MOST_SECONDS) as process, mock.patch.dict(os.environ, extra):
        try:
            return process.call(figures_of, name, settings)
        except Exception as error:  # noqa: BLE001 - the other measurements are worth having
            return str(error)[:300]


def figures_of(name: str, settings: Settings) -> list[dict[str, Any]]:
    """Runs one measurement in this process."""
    module = importlib.import_module(f"bench.{MEASUREMENTS[name]}")
    return [figure.plain() for figure in module.measure(settings)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(MEASUREMENTS),
        help="these alone; written with --out only, beside what is there",
    )
    parser.add_argument("--target", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--out", help="folder to write to (default docs/benchmarks, where everything is measured)")
    parser.add_argument("--short", action="store_true", help="try the scripts out: few repeats, nothing is written")
    parser.add_argument("--comparisons", type=int, default=200, help="of the judge with itself")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
