"""Measures how much of the CPU other processes use. Linux only; elsewhere it reports no load."""

from __future__ import annotations

import os
import time

#: Cores used by other work above which a measurement carries a warning.
UNSAFE_CORES = 0.5


class OtherLoad:
    """Measures the CPU load of other processes since this object was made. `own` are the ids of our own processes,
    whose work, threads included, does not count."""

    def __init__(self, own: list[int]) -> None:
        self._own = own
        self._began = (time.monotonic(), _busy(), _ours(own))

    def cores(self) -> float:
        """Returns the number of cores that other processes kept busy on average since this object was made."""
        began, busy, ours = self._began
        elapsed = max(time.monotonic() - began, 1e-3)
        return max((_busy() - busy) - (_ours(self._own) - ours), 0.0) / elapsed

    def warning(self) -> str:
        """Returns "", or a warning in one line if the load makes timing unsafe."""
        cores = self.cores()
        if cores <= UNSAFE_CORES:
            return ""
        return f"other processes used {cores:.1f} of {os.cpu_count()} cores while this was timed"


def _busy() -> float:
    """Returns the seconds that all cores together have been busy since the system started (user, nice, system,
    interrupts and steal); 0 if Linux does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(value) for value in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    user, nice, system, _, _, interrupts, soft, steal = fields
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


def _ours(pids: list[int]) -> float:
    return sum(_seconds(pid) for pid in pids)


def _seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
