"""A pipeline whose stages count: real processes, with the control of real stages, without torch.

`python -m counting …` is `python -m kernel_assistant_training pipeline …` that knows one more kind, `count`. Its stages
(`python -m counting stage --out …`) count to `--to`, a step each `--every` seconds, and go on from their file. With
`--at N` one fails there, or hangs and is deaf to all but SIGKILL.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant_training.options.command_line import option, parse


@dataclass(frozen=True)
class CountArguments:
    out: Path = option()
    base: Path | None = option(None)
    to: int = option(5)
    every: float = option(0.02)
    at: int = option(-1)
    what: str = option("")
    seed: int = option(0)


def count(options):
    from kernel_assistant_training.run_control import RunControl

    file = options.out / "count"
    at = int(file.read_text()) if file.is_file() else 0
    with RunControl(options.out, "count") as control:
        while at < options.to and control.goes_on(at):
            at += 1
            if at == options.at:
                misbehave(options.what)
            fresh = file.with_suffix(".new")
            fresh.write_text(str(at))
            fresh.replace(file)
            control.report(at, {"reward": at / options.to, "loss": 1.0 / at, "evaluations": at})
            time.sleep(options.every)
    if at == options.to:
        begun = int((options.base / "config.json").read_text()) if options.base else 0
        (options.out / "model").mkdir(exist_ok=True)
        (options.out / "model" / "config.json").write_text(str(begun + at))
    sys.stdout.write(json.dumps({"counted": at}) + "\n")


def misbehave(what):
    if what == "fail":
        sys.stderr.write("the disk is made of cheese\nuse another one\n")
        raise SystemExit(4)
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)


def main():
    if sys.argv[1] == "stage":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        count(parse(CountArguments, "count", sys.argv[2:]))
        return
    from kernel_assistant_training import __main__ as entry
    from kernel_assistant_training.pipeline import kinds, process

    taken = ("out", "seed", "base")
    kinds.KINDS["count"] = kinds.StageKind(("counting", "stage"), CountArguments, taken, model="model/config.json")
    process.DEADLINES.update({process.StopCause.limit: (1.0, 2.0), process.StopCause.interrupted: (0.0, 3.0)})
    raise SystemExit(entry.main(["pipeline", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
