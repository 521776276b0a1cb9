"""Watches a measurement run, then collects its results so far.

`python -m bench.measurement_run.status WORK OUT SECONDS [--all]`
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from bench.measurement_run.gather import export_finished, gather
from bench.measurement_run.run import GPU_LOG, read

EVERY_S = 20.0
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WARNING = re.compile(r"warnings\.warn\(|Warning: ")
_LONGEST = 90


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float, help="at most; it ends sooner when every step has ended")
    parser.add_argument("--all", action="store_true", help="also what was sent before")
    options = parser.parse_args()
    work, until = options.work.absolute(), time.monotonic() + options.seconds
    while True:
        began = time.monotonic()
        print(line(work), flush=True)
        for words in export_finished(work):
            print(words, flush=True)
        if not runs(work) or began + EVERY_S > until:
            break
        while runs(work) and time.monotonic() < began + EVERY_S:
            time.sleep(0.5)
    time.sleep(max(0.0, until - time.monotonic()) if runs(work) else 0)
    for words in export_finished(work):
        print(words, flush=True)
    for words in gather(work, options.out, again=options.all):
        print(words, flush=True)
    print("steps run" if runs(work) else "all steps have ended")
    return 0


def runs(work: Path) -> bool:
    """Whether a runner holds the lock."""
    lock = work / "state" / "lock"
    if not lock.exists():
        return False
    with lock.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def line(work: Path) -> str:
    """The steps with their last output, and the use of the GPUs."""
    states = [read(file) for file in sorted((work / "state").glob("*.json")) if file.stem not in ("sent", "placement")]
    parts = []
    for one in sorted(states, key=lambda one: float(one["began"])):
        if "code" in one:
            parts.append(f"{one['step']} ended with {one['code']} after {_clock(one['seconds'])}")
        else:
            spent = time.time() - one["began"]
            words = last(work / "logs" / f"{one['step']}.log") or figures(work, one["step"])
            parts.append(f"{one['step']} {_clock(spent)}: {words}")
    return " | ".join([time.strftime("%H:%M:%S"), *parts, *_gpus()])


def last(log: Path) -> str:
    """The last line that a step itself wrote, without terminal control codes."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        text = _NOISE.sub("", file.read().decode(errors="replace")).replace("\r", "\n")
    lines = [one.strip() for one in text.split("\n")]
    written = [one for one in lines if one and not one.startswith("[measurement run ") and not _WARNING.search(one)]
    return written[-1][:_LONGEST] if written else ""


def figures(work: Path, step: str) -> str:
    """The last metrics of a step, for one that prints nothing."""
    files = [*(work / "results" / step).glob("metrics.jsonl"), *(work / "results" / step).glob("*/metrics.jsonl")]
    if not files:
        return ""
    *_, text = ["", *files[0].read_text().splitlines()]
    known = json.loads(text) if text.endswith("}") else {}
    numbers = {name: value for name, value in known.items() if isinstance(value, int | float) and name != "time"}
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())[:_LONGEST]


def _gpus() -> list[str]:
    try:
        output = subprocess.run(GPU_LOG, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [row.split(", ") for row in output.splitlines()]
    return [f"GPU {gpu} {use}% {int(memory) / 1024:.0f} GiB" for _, gpu, use, memory in rows]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
