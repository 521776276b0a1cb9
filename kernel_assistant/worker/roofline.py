"""The least time that a task can take on a device: bytes that must move over measured bandwidth. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

#: Nobody is faster than 1.15 times the measured ceiling or than the datasheet.
MEASURED_SLACK = 1.15


@dataclass(frozen=True)
class Ceilings:
    """Bandwidths in bytes/s (0: unknown) and the cache in bytes. `read` is for reading only, `copy` for both."""

    copy: float = 0.0
    read: float = 0.0
    datasheet: float = 0.0
    cache_bytes: int = 0

    @property
    def limit(self) -> float:
        """Bandwidth that nothing can exceed, 0 if unknown."""
        measured = MEASURED_SLACK * max(self.copy, self.read)
        return max(measured, self.datasheet)


def floor_seconds(read_bytes: int, written_bytes: int, ceilings: Ceilings) -> float:
    """Time to read and write so many bytes once: the common part at copy bandwidth, the rest at its own."""
    if not ceilings.copy:
        return 0.0
    both = min(read_bytes, written_bytes)
    rest = ceilings.read if read_bytes > written_bytes and ceilings.read else ceilings.copy
    return 2 * both / ceilings.copy + abs(read_bytes - written_bytes) / rest


def impossible(seconds: float, read_bytes: int, written_bytes: int, footprint: int, ceilings: Ceilings) -> bool:
    """Whether a measured time beats what the device can move. Only where the sets exceed the cache twice over."""
    if not ceilings.limit or footprint < 2 * ceilings.cache_bytes:
        return False
    return seconds < (read_bytes + written_bytes) / ceilings.limit
