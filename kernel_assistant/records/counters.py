"""KernelCounters: the GPU's hardware counters for one kernel of a plan, as Nsight Compute reads them."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class KernelCounters(Record, frozen=True, kw_only=True):
    """The counters of one launch, before which the caches were flushed. Shares are between 0 and 1.

    `memory` and `compute` are shares of the peak rates of DRAM and of the multiprocessors. `occupancy` is the share of
    the warps that a multiprocessor can hold, averaged while it was active. `l2_hits` is the share of requested sectors
    that were in the L2 cache. `loads` and `stores` are the used shares of the 32-byte sectors that global accesses
    move. `bank_conflicts` is the number of conflicts in shared memory. `stalls` are the reasons why warps waited,
    largest first, each with the number of waiting warps per issued instruction.
    """

    symbol: str
    microseconds: float
    memory: float
    compute: float
    occupancy: float
    l2_hits: float
    read_bytes: int
    written_bytes: int
    loads: float
    stores: float
    bank_conflicts: int
    stalls: tuple[tuple[str, float], ...] = ()

    def text(self) -> str:
        """Returns the counters in one line, for people and models."""
        moved = f"{self.read_bytes / 1e6:.3g} MB read, {self.written_bytes / 1e6:.3g} MB written"
        parts = [
            f"{self.microseconds:.3g} µs",
            f"memory {self.memory:.0%} and arithmetic {self.compute:.0%} of their peaks",
            moved,
            f"L2 hits {self.l2_hits:.0%}",
            f"sectors used by loads {self.loads:.0%}, by stores {self.stores:.0%}",
            f"achieved occupancy {self.occupancy:.0%}",
        ]
        parts += [f"{self.bank_conflicts} bank conflicts"] if self.bank_conflicts else []
        waits = ", ".join(f"{reason} {warps:.2g}" for reason, warps in self.stalls[:2])
        parts += [f"warps wait for {waits}"] if waits else []
        return f"counters of {self.symbol}: {'; '.join(parts)}"
