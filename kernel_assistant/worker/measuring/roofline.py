"""Computes the least time that a task can take on a device: the bytes that must move divided by the measured bandwidth,
or the operations divided by the measured rate, whichever is longer. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

#: No kernel is faster than 1.15 times the measured bandwidth, or than the datasheet.
MEASURED_SLACK = 1.15


@dataclass(frozen=True)
class Roofline:
    """What a device can do: measured bandwidths in bytes/s, `read` for reading only and `copy` for reading and writing;
    the bandwidth of its `datasheet`; the size of its cache in bytes; and float32 flop/s. 0 means unknown."""

    copy: float = 0.0
    read: float = 0.0
    datasheet: float = 0.0
    cache_bytes: int = 0
    flops: float = 0.0

    @property
    def limit(self) -> float:
        """Returns the bandwidth in bytes/s that nothing can exceed; 0 if unknown."""
        measured = MEASURED_SLACK * max(self.copy, self.read)
        return max(measured, self.datasheet)


def floor_seconds(read_bytes: int, written_bytes: int, ceilings: Roofline, flops: int = 0) -> float:
    """Returns the seconds to move these bytes once, or to do `flops` float32 operations, whichever is longer; 0 if
    nothing is known."""
    computing = flops / ceilings.flops if ceilings.flops else 0.0
    return max(moving_seconds(read_bytes, written_bytes, ceilings), computing)


def moving_seconds(read_bytes: int, written_bytes: int, ceilings: Roofline) -> float:
    """Returns the seconds to read and write these bytes once; 0 if the bandwidth is unknown. As many bytes as are both
    read and written move at copy bandwidth; further bytes are read at read bandwidth, or written at copy bandwidth."""
    if not ceilings.copy:
        return 0.0
    both = min(read_bytes, written_bytes)
    rest = ceilings.read if read_bytes > written_bytes and ceilings.read else ceilings.copy
    return 2 * both / ceilings.copy + abs(read_bytes - written_bytes) / rest


def impossible(seconds: float, read_bytes: int, written_bytes: int, footprint: int, ceilings: Roofline) -> bool:
    """Whether a measured time is faster than the device can move the data. `footprint` is the size in bytes of all
    copies of inputs and outputs that are timed in turn; False unless that is at least twice the size of the cache."""
    if not ceilings.limit or footprint < 2 * ceilings.cache_bytes:
        return False
    return seconds < (read_bytes + written_bytes) / ceilings.limit
