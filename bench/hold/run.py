"""Runs the steps of a hold: `python -m bench.hold.run WORK PLACEMENT...`, which start.sh leaves in the background.

What has ended well is not run again. One that is killed takes its steps with it, and the next goes on with them.
Standard library only: it says what is wrong with a placement before any package is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.hold.placement import NEEDS, Lane, PlacementError, before, lanes, limits, listed

STEPS = Path(__file__).parent / "steps"
#: Seconds behind its limit that a step has to leave what it has.
GRACE = 45
#: Seconds that the step of a runner that was killed has to end.
PATIENCE = 90.0
GPU_LOG = ("nvidia-smi", "--query-gpu=timestamp,index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")


def main(words: Sequence[str]) -> int:
    check, words = words[0] == "--check", [word for word in words if word != "--check"]
    work, asked = Path(words[0]).absolute(), words[1:]
    try:
        placed = lanes(asked, sorted(os.sched_getaffinity(0)))
        allowed = limits(os.environ.get("HOLD_LIMITS", ""))
    except PlacementError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if check:
        return 0
    for name in ("state", "logs", "results", "home"):
        (work / name).mkdir(parents=True, exist_ok=True)
    lock = os.open(work / "state" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stdout.write("the steps run already: nothing was started\n")
        return 0
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    write(work / "state" / "placement.json", {"words": list(asked), "time": time.time()})
    sys.stdout.write(f"the steps run, by process {os.getpid()}: {' '.join(asked)}\n")
    sys.stdout.flush()
    with gpu_log(work):
        Runner(work, placed, allowed).run()
    return 0


@dataclass
class Runner:
    work: Path
    lanes: list[Lane]
    limits: dict[str, int]
    running: dict[str, Lane] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        steps = [step for lane in self.lanes for step in lane.steps]
        self._over = {step: threading.Event() for step in steps}
        threads = [threading.Thread(target=self._lane, args=(place,)) for place in range(len(self.lanes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, place: int) -> None:
        for other in before(self.lanes, place):
            for step in self.lanes[other].steps:
                self._over[step].wait()
        for step in self.lanes[place].steps:
            if NEEDS.get(step) in self._over:
                self._over[NEEDS[step]].wait()
            try:
                self._step(step, self.lanes[place])
            except OSError as error:
                self._say(step, f"could not be run: {error}")
            finally:
                self._over[step].set()

    def _step(self, step: str, lane: Lane) -> None:
        file = self.work / "state" / f"{step}.json"
        known = read(file)
        if known.get("code") == 0:
            return
        # Held by the step's own process too: one that outlives its runner is waited for.
        held = os.open(self.work / "state" / f"{step}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _taken(held):
                self._say(step, "an earlier start of it did not end: it is not started again")
                return
            self._alone(step, lane, file, int(known.get("starts", 0)) + 1, held)
        finally:
            os.close(held)

    def _alone(self, step: str, lane: Lane, file: Path, starts: int, held: int) -> None:
        limit, began = self.limits[step], time.time()
        state: dict[str, Any] = {"step": step, "gpus": lane.gpus, "cores": listed(lane.cores), "limit": limit}
        state |= {"starts": starts, "began": began}
        self._say(step, f"start {starts} on GPU {_plus(lane.gpus)}, cores {listed(lane.cores)}, at most {limit} s")
        with (self.work / "logs" / f"{step}.log").open("ab") as log:
            process = subprocess.Popen(
                command(step, lane, limit),
                env=environment(self.work, step, lane, limit),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(held,),
            )
        write(file, {**state, "pid": process.pid})
        self._changed(step, lane)
        code = process.wait()
        self._changed(step, None)
        seconds = round(time.time() - began, 1)
        how = " (its limit)" if code in (124, 137) else ""
        write(file, {**state, "code": code, "seconds": seconds})
        self._say(step, f"ended with {code}{how} after {seconds} s")

    def _changed(self, step: str, lane: Lane | None) -> None:
        """What runs beside a step is part of what it measures: each is told when that changes."""
        with self.lock:
            if lane is None:
                del self.running[step]
            else:
                self.running[step] = lane
            load = f"load {os.getloadavg()[0]:.1f}"
            for one in self.running:
                others = [
                    f"{name} on GPU {_plus(other.gpus)} with cores {listed(other.cores)}"
                    for name, other in self.running.items()
                    if name != one
                ]
                self._say(one, f"beside it: {'; '.join(others) or 'nothing'}; {load}")

    def _say(self, step: str, words: str) -> None:
        with (self.work / "logs" / f"{step}.log").open("a") as log:
            log.write(f"[hold {time.strftime('%H:%M:%S')}] {step}: {words}\n")


def command(step: str, lane: Lane, limit: int) -> list[str]:
    """Ends with the runner, and at its limit; keeps to its cores."""
    words = ["timeout", f"--kill-after={GRACE}", str(limit)]
    if shutil.which("setpriv"):
        words = ["setpriv", "--pdeathsig", "TERM", *words]
    if shutil.which("taskset"):
        words += ["taskset", "--cpu-list", listed(lane.cores)]
    return [*words, "bash", str(STEPS / f"{step}.sh")]


def environment(work: Path, step: str, lane: Lane, limit: int) -> dict[str, str]:
    """Homes are a step's own: what one registers or keeps warm is not another's."""
    found = {
        **os.environ,
        "HOLD_WORK": str(work),
        "HOLD_OUT": str(work / "results" / step),
        "HOLD_CORES": str(len(lane.cores)),
        "HOLD_GPUS": str(len(lane.gpus)),
        # For steps with a clock of their own, which end before their limit.
        "HOLD_SECONDS": str(max(limit - 60, limit // 2)),
        "KERNEL_ASSISTANT_HOME": str(work / "home" / step),
        "PYTHONUNBUFFERED": "1",
    }
    if os.environ.get("HOLD_TARGET", "cuda") == "cuda":
        found |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, lane.gpus))}
    return found


class gpu_log:  # noqa: N801 - used as a with statement, as contextlib's are
    """A line a second and GPU, as long as steps run."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def __enter__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with (self._work / "logs" / "gpu.csv").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*GPU_LOG, "--loop=1"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.DEVNULL
                )
            except OSError as error:
                sys.stderr.write(f"the GPUs' use is not written down: {error}\n")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def write(file: Path, document: dict[str, Any]) -> None:
    """Whole or not at all."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(json.dumps(document) + "\n")
    fresh.replace(file)


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def _taken(lock: int) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.2)


def _plus(gpus: Sequence[int]) -> str:
    return "+".join(map(str, gpus))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
