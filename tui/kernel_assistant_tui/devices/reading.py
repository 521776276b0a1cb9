"""Records for one reading of the devices."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of GPU memory in use by no listed process that are not worth showing.
NEXT_TO_NOTHING = 1 << 30


@dataclass(frozen=True)
class Process:
    """A process on one GPU. `name` is "" if the process is not visible from here; `memory` is in bytes, None if it is
    not reported."""

    pid: int
    name: str
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """The load of a GPU. Values that the driver does not report are None. `busy` is in per cent, memory in bytes,
    power in watts, temperature in degrees Celsius.

    `note` is one line about values that cannot be read, because of MIG or permissions.
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
        """Bytes of memory that no listed process uses. 0 if the memory of a listed process is unknown, or if less
        than 1 GiB is left.

        Drivers list no processes in some containers and virtual machines.
        """
        listed = [one.memory for one in self.processes if one.memory is not None]
        left = (self.memory or 0) - sum(listed)
        return left if len(listed) == len(self.processes) and left > NEXT_TO_NOTHING else 0


@dataclass(frozen=True)
class Cpu:
    """The load of the CPU: `cores` is the load of each core in per cent, memory is in bytes, `load` is the load
    average of one minute."""

    cores: tuple[float, ...]
    memory: int
    memory_total: int
    load: float

    @property
    def busy(self) -> float:
        return sum(self.cores) / max(len(self.cores), 1)


@dataclass(frozen=True)
class DeviceSample:
    """One reading of all devices. `trouble` says in one line why no GPUs are visible, "" if there are some."""

    gpus: tuple[Gpu, ...]
    cpu: Cpu
    trouble: str = ""
