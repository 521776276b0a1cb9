"""What every target (kind of device: cuda or cpu) provides: a compiler with its flags, and the facts of a device."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class DeviceFacts(Record, frozen=True, kw_only=True):
    """One device. Bandwidths in bytes/s and rates in flop/s; `copy_bandwidth`, `read_bandwidth` and `flops_fp32` are
    measured once for each device, and 0 until then (on a GPU, `flops_fp32` stays 0); `*_datasheet` is 0 if the vendor's
    figure is not known.

    `arch` is "sm_90" for CUDA and the ISA level ("x86-64-avx512", "x86-64-avx2", "x86-64", "aarch64") for the CPU.
    `cores` is the number of SMs, or of CPUs that this process may use; `cache_bytes` the last-level cache (L2 on a
    GPU).
    """

    target: str
    name: str
    arch: str
    index: int = 0
    cores: int = 1
    threads: int = 1
    cache_bytes: int = 0
    memory_bytes: int = 0
    shared_bytes_per_block: int = 0
    copy_bandwidth: float = 0.0
    read_bandwidth: float = 0.0
    flops_fp32: float = 0.0
    bandwidth_datasheet: float = 0.0
    flops_fp32_datasheet: float = 0.0
    driver: str = ""

    @property
    def key(self) -> str:
        """A key for caches: devices with equal keys share measured rates and binaries."""
        return f"{self.target}-{self.name}-{self.arch}-{self.threads}".replace(" ", "_").replace("/", "_")
