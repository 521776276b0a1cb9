"""Watches a hold, then takes what there is: `python -m bench.hold.look WORK OUT SECONDS [--all]`."""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from bench.hold.gather import export_finished, gather
from bench.hold.run import GPU_LOG, read

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
    """Whether a runner has its lock."""
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
    """Steps with their last words, and what the GPUs do."""
    states = [read(file) for file in sorted((work / "state").glob("*.json")) if file.stem not in ("sent", "placement")]
    said = []
    for one in sorted(states, key=lambda one: float(one["began"])):
        if "code" in one:
            said.append(f"{one['step']} ended with {one['code']} after {_clock(one['seconds'])}")
        else:
            spent = time.time() - one["began"]
            words = last(work / "logs" / f"{one['step']}.log") or figures(work, one["step"])
            said.append(f"{one['step']} {_clock(spent)}: {words}")
    return " | ".join([time.strftime("%H:%M:%S"), *said, *_gpus()])


def last(log: Path) -> str:
    """The last line that a step itself wrote, without what terminals make of it."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        text = _NOISE.sub("", file.read().decode(errors="replace")).replace("\r", "\n")
    lines = [one.strip() for one in text.split("\n")]
    said = [one for one in lines if one and not one.startswith("[hold ") and not _WARNING.search(one)]
    return said[-1][:_LONGEST] if said else ""


def figures(work: Path, step: str) -> str:
    """Of a step that says nothing: the last of its metrics."""
    found = [*(work / "results" / step).glob("metrics.jsonl"), *(work / "results" / step).glob("*/metrics.jsonl")]
    if not found:
        return ""
    *_, text = ["", *found[0].read_text().splitlines()]
    known = json.loads(text) if text.endswith("}") else {}
    numbers = {name: value for name, value in known.items() if isinstance(value, int | float) and name != "time"}
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())[:_LONGEST]


def _gpus() -> list[str]:
    try:
        found = subprocess.run(GPU_LOG, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [row.split(", ") for row in found.splitlines()]
    return [f"GPU {gpu} {use}% {int(memory) / 1024:.0f} GiB" for _, gpu, use, memory in rows]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
