"""Occupancy: the share of an SM's warps that blocks of a kernel can fill at once. Pure.

Limits per SM are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Registers
are allocated to a warp in units of 256, and a block takes 1 KiB of shared memory besides its own.
"""

from __future__ import annotations

from kernel_assistant.records import KernelResources, OpGraph, Plan
from kernel_assistant.worker.runner.plan import PlanError, evaluate

WARP = 32
REGISTERS = 65536
UNIT = 256
RESERVED = 1024
#: Architecture → warps, blocks, shared bytes.
SM = {
    "sm_80": (64, 32, 164 << 10),
    "sm_86": (48, 16, 100 << 10),
    "sm_89": (48, 24, 100 << 10),
    "sm_90": (64, 32, 228 << 10),
}


def occupancy(kernel: KernelResources, plan: Plan, graph: OpGraph, arch: str) -> tuple[float, str] | None:
    """The share of an SM's warps at the base sizes, and the name of the resource that limits it ("" at 1.0); None if it
    is not known.
    """
    launch = next((one for one in plan.launches if one.symbol == kernel.symbol), None)
    if arch not in SM or launch is None or not kernel.registers:
        return None
    try:
        x, y, z = (evaluate(size, graph.dims) for size in launch.block)
        dynamic = evaluate(launch.shared, graph.dims)
    except PlanError:
        return None
    most_warps, most_blocks, shared = SM[arch]
    warps = -(-x * y * z // WARP)
    if not 0 < warps <= 1024 // WARP:
        return None
    of_a_warp = -(-kernel.registers * WARP // UNIT) * UNIT
    blocks = {
        "registers": REGISTERS // of_a_warp // warps,
        "shared memory": shared // (kernel.shared_bytes + dynamic + RESERVED),
        "the block's size": min(most_warps // warps, most_blocks),
    }
    limit = min(blocks, key=lambda name: blocks[name])
    share = blocks[limit] * warps / most_warps
    return share, "" if share == 1.0 else limit
