"""Runs the steps of a measurement run, in the background of start.sh:

    python -m bench.measurement_run.run WORK PLACEMENT...

Steps that ended well are not run again. If this process is killed its steps end too, and the next start continues with
them. Standard library only, because it checks the placement before any package is installed.
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

from bench.measurement_run.placement import NEEDS, Lane, PlacementError, before, lanes, limits, listed

STEPS = Path(__file__).parent / "steps"
#: Seconds after its limit in which a step can save its results.
GRACE = 45
#: Seconds in which the step of a killed runner must end.
PATIENCE = 90.0
GPU_LOG = ("nvidia-smi", "--query-gpu=timestamp,index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")


def main(words: Sequence[str]) -> int:
    check, words = words[0] == "--check", [word for word in words if word != "--check"]
    work, asked = Path(words[0]).absolute(), words[1:]
    try:
        placed = lanes(asked, sorted(os.sched_getaffinity(0)))
        allowed = limits(os.environ.get("MEASUREMENT_LIMITS", ""))
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
        threads = [threading.Thread(target=self._lane, args=(index,)) for index in range(len(self.lanes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, index: int) -> None:
        for other in before(self.lanes, index):
            for step in self.lanes[other].steps:
                self._over[step].wait()
        for step in self.lanes[index].steps:
            if NEEDS.get(step) in self._over:
                self._over[NEEDS[step]].wait()
            try:
                self._step(step, self.lanes[index])
            except OSError as error:
                self._say(step, f"could not be run: {error}")
            finally:
                self._over[step].set()

    def _step(self, step: str, lane: Lane) -> None:
        file = self.work / "state" / f"{step}.json"
        known = read(file)
        if known.get("code") == 0:
            return
        # The step's process holds the lock too, so a step that outlives its runner is waited for.
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
        """Logs, for each running step, what runs beside it, because that affects its measurements."""
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
            log.write(f"[measurement run {time.strftime('%H:%M:%S')}] {step}: {words}\n")


def command(step: str, lane: Lane, limit: int) -> list[str]:
    """The command of a step: ends with the runner and at the limit, and uses only its cores."""
    words = ["timeout", f"--kill-after={GRACE}", str(limit)]
    if shutil.which("setpriv"):
        words = ["setpriv", "--pdeathsig", "TERM", *words]
    if shutil.which("taskset"):
        words += ["taskset", "--cpu-list", listed(lane.cores)]
    return [*words, "bash", str(STEPS / f"{step}.sh")]


def environment(work: Path, step: str, lane: Lane, limit: int) -> dict[str, str]:
    """The environment variables of a step. Each step has a home of its own, so that registrations and warm processes
    are not shared."""
    variables = {
        **os.environ,
        "MEASUREMENT_WORK": str(work),
        "MEASUREMENT_OUT": str(work / "results" / step),
        "MEASUREMENT_CORES": str(len(lane.cores)),
        "MEASUREMENT_GPUS": str(len(lane.gpus)),
        # For steps that watch the time themselves, and end before their limit.
        "MEASUREMENT_SECONDS": str(max(limit - 60, limit // 2)),
        "KERNEL_ASSISTANT_HOME": str(work / "home" / step),
        "PYTHONUNBUFFERED": "1",
    }
    if os.environ.get("MEASUREMENT_TARGET", "cuda") == "cuda":
        variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, lane.gpus))}
    return variables


class gpu_log:  # noqa: N801 - used as a with statement, as contextlib's are
    """Logs a line per second and GPU while steps run."""

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
    """Replaces the file atomically."""
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
