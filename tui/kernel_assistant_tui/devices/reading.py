"""One reading of the machine: records, without knowing who reads or draws them."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of a GPU that may be in use without anybody to name.
NEXT_TO_NOTHING = 1 << 30


@dataclass(frozen=True)
class Process:
    """Of one GPU. `name` is "" where it is not seen from here, `memory` in bytes, None where that is not told."""

    pid: int
    name: str
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """None for what the driver does not say. `busy` in per cent, memory in bytes, power in watts, degrees Celsius.

    `note` is one line on what cannot be had: MIG, permissions.
    """

    index: int
    name: str
    busy: int | None = None
    memory: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    temperature: int | None = None
    processes: tuple[Process, ...] = ()
    note: str = ""

    @property
    def unlisted(self) -> int:
        """Bytes in use that no listed process has; 0 where one does not tell what it has, or next to nothing is left.

        Drivers list no processes in some containers and virtual machines.
        """
        listed = [one.memory for one in self.processes if one.memory is not None]
        left = (self.memory or 0) - sum(listed)
        return left if len(listed) == len(self.processes) and left > NEXT_TO_NOTHING else 0


@dataclass(frozen=True)
class Cpu:
    """`cores` in per cent each, memory in bytes, `load` is the average of one minute."""

    cores: tuple[float, ...]
    memory: int
    memory_total: int
    load: float

    @property
    def busy(self) -> float:
        return sum(self.cores) / max(len(self.cores), 1)


@dataclass(frozen=True)
class Reading:
    """`trouble` says in one line why there are no GPUs to see, "" where there are."""

    gpus: tuple[Gpu, ...]
    cpu: Cpu
    trouble: str = ""
