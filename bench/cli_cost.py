"""The cost of the command line before it does anything: time and memory of a front-end process and of the host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.figures import Figure, Settings

COMMAND = (sys.executable, "-m", "kernel_assistant")
#: Most megabytes of resident memory; the tests use this bound on slow machines too.
MOST_MEGABYTES = 120


def measure(settings: Settings) -> list[Figure]:
    count = settings.count(15, 3)
    with tempfile.TemporaryDirectory(prefix="ka-") as folder:
        environment = own_home(Path(folder))
        costs = [run_measured(["--help"], environment) for _ in range(count + 1)][1:]
        jobs = run_measured(["jobs"], environment)
        host = host_megabytes(Path(folder))
        stop(environment)
    figures = [
        Figure("--help", median([seconds for seconds, _ in costs]), "s", f"median of {count} processes", ("≤", 0.3)),
        memory("--help", costs[0][1]),
        memory("jobs", jobs[1]),
    ]
    return figures + ([memory("the host, idle", host)] if host is not None else [])


def memory(of: str, megabytes: float) -> Figure:
    return Figure(f"peak memory of {of}", megabytes, "MB", "resident", ("≤", MOST_MEGABYTES))


def own_home(folder: Path) -> dict[str, str]:
    """Environment variables that keep the user's own state untouched."""
    root = str(Path(__file__).resolve().parent.parent)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("KERNEL_ASSISTANT_")},
        "KERNEL_ASSISTANT_HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH", "")])]),
    }


def run_measured(arguments: list[str], environment: dict[str, str], out: Path | None = None) -> tuple[float, float]:
    """Seconds and peak megabytes of one command, whose output goes to `out`. Raises RuntimeError if it fails."""
    began = time.perf_counter()
    with open(out or os.devnull, "wb") as sink, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=sink, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip()
            raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}: {words[-300:]}")
    return seconds, usage.ru_maxrss / 1000


def host_megabytes(folder: Path) -> float | None:
    """Peak resident memory of the host of this home, in megabytes; None if there is no host."""
    for address in folder.rglob("host.json"):
        pid = json.loads(address.read_text(encoding="utf-8"))["pid"]
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        match = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(match[1]) / 1000 if match else None
    return None


def stop(environment: dict[str, str]) -> None:
    """Stops the host of this home and its workers."""
    subprocess.run([*COMMAND, "host", "stop"], env=environment, capture_output=True, check=False, timeout=60)
